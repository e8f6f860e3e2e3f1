"""One training run: start, Tune trial, final report on the held-out panel; everything below one folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import yaml
from ray import tune
from ray.tune import Callback

from arlarena_rllib.algorithm import ARLArena
from arlarena_rllib.config import ARLArenaConfig
from arlarena_rllib.errors import ArenaError, CheckpointError
from arlarena_rllib.evaluation import PanelResult, paired_difference
from arlarena_rllib.models.export import export_policy
from arlarena_rllib.models.load import load_causal_lm
from arlarena_rllib.objectives.axes import AXES
from arlarena_rllib.rollout.envs import bare_text_env
from arlarena_rllib.rollout.session import PlaySession
from env_connectors import TextEnv
from tune_experiments.cluster import check_resources, start_cluster
from tune_experiments.cpu_meter import CpuMeter
from tune_experiments.early_checks import check_run
from tune_experiments.kept_notes import KeptNotes, repair_notes
from tune_experiments.plots import learning_curve, read_results, run_collapse_page
from tune_experiments.prepare import Start, base_model, warm_start
from tune_experiments.progress import ProgressDisplay
from tune_experiments.ray_logs import shorten_ray_logs
from tune_experiments.resume import (
    RESOLVED_CONFIG,
    TRIALS,
    can_restore,
    check_unchanged,
    finished_start,
    refuse_lost_notes,
    restored_tuner,
    resumable_base,
)
from tune_experiments.run_config import RunConfig
from tune_experiments.run_folder import claimed
from tune_experiments.stopping import StopAfter, StopRequest, graceful_stop
from tune_experiments.tracking import MLflowTracker
from tune_experiments.trial_errors import last_line
from tune_experiments.upload import fetch_or_refuse, uploaded


@dataclass
class TrainOutcome:
    """Where a run left its results."""

    folder: Path
    start: Start
    final: Path
    results: list[dict[str, Any]]
    panel_hash: str
    tracker: MLflowTracker
    trial_id: str
    training_cpu_seconds: float
    interrupted: bool

    @property
    def mlflow_run_id(self) -> str:
        """MLflow run of the trial."""
        return self.tracker.run_id(self.trial_id)


def train(
    run: RunConfig, *, resume: bool = False, progress: ProgressDisplay | None = None, report: bool = True
) -> TrainOutcome:
    """Run ``run`` to its end and return the outcome.

    Args:
        run: The resolved run.
        resume: Continue the run of the same name from its newest checkpoint.
        progress: Display that is open already; otherwise one is made for this call.
        report: Compare start and result on the report panel at the end.

    Raises:
        ConfigError: before anything starts, when a setting or a combination cannot work.
        CheckpointError: ``resume`` without a run to resume.
        ArenaError: the trial failed; the message is the trial's own.
    """
    if progress is None:
        with ProgressDisplay(run.run.iterations) as display:
            return train(run, resume=resume, progress=display, report=report)
    with opened(run, resume=resume, progress=progress) as folder:
        return train_in(folder, run, resume=resume, progress=progress, report=report)


@contextmanager
def opened(run: RunConfig, *, resume: bool = False, progress: ProgressDisplay) -> Iterator[Path]:
    """Check the run and hold its folder; raises what :func:`train` raises before anything starts."""
    check_run(run)
    folder = (Path(run.run.storage_path) / run.run.name).resolve()
    fetch_or_refuse(folder, run.run.upload_to, resume=resume, progress=progress)
    with claimed(folder, resume=resume, progress=progress):
        yield folder


def train_in(
    folder: Path, run: RunConfig, *, resume: bool = False, progress: ProgressDisplay, report: bool = True
) -> TrainOutcome:
    """Do what :func:`train` does in a folder that is held already."""
    with graceful_stop() as stop, uploaded(folder, run.run.upload_to, progress) as uploads:
        outcome = _train(folder, run, stop, uploads, resume=resume, progress=progress)
        if report and run.run.report_num_tasks and not outcome.interrupted:
            try:
                _report(run, outcome, progress)
            except KeyboardInterrupt:
                progress.message("stopped in the report; the training and its results are kept")
                outcome = replace(outcome, interrupted=True)
        _draw(outcome, run.algorithm(outcome.start.path))
    return outcome


def _train(
    folder: Path,
    run: RunConfig,
    stop: StopRequest,
    uploads: list[Callback],
    *,
    resume: bool,
    progress: ProgressDisplay,
) -> TrainOutcome:
    if unread := run.unread_warm_start():
        progress.message(f"warm_start.source='none': nothing reads {', '.join(unread)}")
    progress.phase("build model")
    base = resumable_base(run, folder) if resume else base_model(run, folder)
    start = _start(run, base, folder, resume, progress)
    config = run.algorithm(start.path)
    config.validate()
    resolved = json.loads(json.dumps(run.resolved(config), default=str))
    if resume:
        check_unchanged(folder, resolved)
    env = bare_text_env(config.env, config.env_config)
    panel_hash = env.tasks().panel_hash
    progress.message(
        " | ".join([f"panel {panel_hash}", *([f"{env.data} tasks"] if env.data else []), f"run folder {folder}"])
    )
    start_cluster(run.run.num_cpus)
    stop.listen()
    check_resources(config)
    (folder / RESOLVED_CONFIG).write_text(yaml.safe_dump(resolved, sort_keys=False))
    tracker = MLflowTracker(
        run.run.experiment,
        run_name=run.run.name,
        storage_dir=folder.parent,
        resolved_config=resolved,
        panel_hash=panel_hash,
        tags={**method_tags(config), "engine": config.engine, "run_folder": str(folder), "seed": str(config.seed)}
        | env_data_tag(env),
        resume=resume,
    )
    if start.cloning is not None:
        for step, loss in enumerate(start.cloning.losses):
            tracker.log_phase("cloning", {"loss": loss}, step)
        tracker.flush()
    meter, notes = CpuMeter(), KeptNotes(folder)
    progress.phase("start the trial")
    try:
        with stop.after_iteration(folder, run.run.iterations) as limit:
            grid = _tuner(run, config, folder, [tracker, progress, meter, notes, *uploads], limit, resume).fit()
    except KeyboardInterrupt:
        tracker.finish("KILLED")
        raise
    except (EOFError, UnpicklingError) as error:  # a full disk has cut off Tune's note of the failure
        tracker.finish("FAILED")
        raise ArenaError(f"the trial failed: {notes.failure or error}") from error
    return _outcome(run, folder, start, grid[0], tracker, meter, stop.requested, panel_hash)


def _draw(outcome: TrainOutcome, config: ARLArenaConfig) -> None:
    """Write the pictures of the run, whole or interrupted, to its folder and to MLflow."""
    names = {"method": config.method, "panel_hash": outcome.panel_hash}
    pictures = (
        learning_curve(outcome.folder / "learning_curve.png", outcome.results, **names),
        run_collapse_page(
            outcome.folder / "collapse.png", outcome.results, thresholds=config.alarm_thresholds, **names
        ),
    )
    for picture in pictures:
        outcome.tracker.log_artifact(picture, trial_id=outcome.trial_id)


def _tuner(
    run: RunConfig, config: Any, folder: Path, callbacks: list[Callback], limit: Path, resume: bool
) -> tune.Tuner:
    # A killed run continues from the newest checkpoint that Tune's own notes name, so they are kept up to date; what
    # a failed trial said is told once, by `_outcome`.
    os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "1")
    os.environ.setdefault("TUNE_PRINT_ALL_TRIAL_ERRORS", "0")
    shorten_ray_logs()
    if resume and (folder / TRIALS).is_dir():
        repair_notes(folder, folder / TRIALS)
    if resume and can_restore(folder / TRIALS):
        return restored_tuner(folder / TRIALS, ARLArena, callbacks, run.run.iterations)
    if resume:
        refuse_lost_notes(folder / TRIALS)
    return tune.Tuner(
        ARLArena,
        param_space=config,
        tune_config=tune.TuneConfig(max_concurrent_trials=1),
        run_config=tune.RunConfig(
            name=TRIALS,
            storage_path=str(folder),
            stop=StopAfter(limit),
            callbacks=callbacks,
            verbose=0,
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_frequency=run.run.checkpoint_frequency,
                checkpoint_at_end=True,
                num_to_keep=run.run.checkpoints_kept,
            ),
            failure_config=tune.FailureConfig(max_failures=run.run.max_failures),
        ),
    )


def _outcome(
    run: RunConfig,
    folder: Path,
    start: Start,
    result: Any,
    tracker: MLflowTracker,
    meter: CpuMeter,
    stop_requested: bool,
    panel_hash: str,
) -> TrainOutcome:
    """Return what the trial left, its policy exported; raise the trial's error if it failed."""
    if result.error is not None:
        tracker.finish("FAILED")
        raise ArenaError(f"the trial failed: {last_line(str(result.error))} (all of it: {result.path}/error.txt)")
    if result.checkpoint is None:
        tracker.finish("FAILED")
        raise CheckpointError(f"the trial in {folder} ended without a checkpoint")
    results = read_results(result.path)
    trial_id = results[-1]["trial_id"]
    interrupted = stop_requested and results[-1]["training_iteration"] < run.run.iterations
    if interrupted:
        tracker.end_run(trial_id, "KILLED")
        tracker.finish("KILLED")
    return TrainOutcome(
        folder=folder,
        start=start,
        final=export_policy(result.checkpoint.path, start.path, folder / "final"),
        results=results,
        panel_hash=panel_hash,
        tracker=tracker,
        trial_id=trial_id,
        training_cpu_seconds=meter.cpu_seconds,
        interrupted=interrupted,
    )


def _report(run: RunConfig, outcome: TrainOutcome, progress: ProgressDisplay) -> None:
    reports = report_panels(run, {"before": outcome.start.path, "after": outcome.final}, progress)
    difference = paired_difference(reports["after"].task_sampled, reports["before"].task_sampled)
    progress.message(
        f"after - before: {difference['difference']:+.3f}, paired standard error {difference['standard_error']:.3f}"
    )
    outcome.tracker.log_metrics(
        {"report": {name: r.summary() for name, r in reports.items()}, "report_difference": difference},
        step=len(outcome.results),
        trial_id=outcome.trial_id,
    )


def env_data_tag(env: TextEnv) -> dict[str, str]:
    """Return the tag that says where an environment's tasks come from; {} for environments with one source."""
    return {"env_data": env.data} if env.data else {}


def report_panels(run: RunConfig, models: dict[str, Path], progress: ProgressDisplay) -> dict[str, PanelResult]:
    """Return each model's success on the report panel; one engine plays all of them."""
    config = run.algorithm(next(iter(models.values())))
    panel = bare_text_env(config.env, config.env_config).tasks()
    tasks = getattr(panel, run.run.report_split)[: run.run.report_num_tasks]
    reports = {}
    progress.phase(f"report on {len(tasks)} {run.run.report_split} tasks")
    with PlaySession(config) as session:
        for name, path in models.items():
            session.publish(load_causal_lm(path).named_parameters())
            reports[name] = session.evaluate(tasks, draws=run.run.report_draws)
            progress.message(
                f"{name}: sampled {reports[name].sampled:.3f} +- {reports[name].ci95:.3f}, "
                f"greedy {reports[name].greedy:.3f} on {len(tasks)} {run.run.report_split} tasks"
            )
    return reports


# --- before the start ---------------------------------------------------------------------------------------------


def _start(run: RunConfig, base: Path, folder: Path, resume: bool, progress: ProgressDisplay) -> Start:
    if resume and (start := finished_start(folder)) is not None:
        return Start(start, None, None)
    if run.warm_start.source == "rft":
        start_cluster(run.run.num_cpus)
    if run.warm_start.source != "none":
        progress.phase("cloning", total=run.warm_start.cloning.steps)
    return warm_start(run, base, folder, lambda step, done, loss: progress.advance(step, loss=loss))


def method_tags(config: ARLArenaConfig) -> dict[str, str]:
    """Return an MLflow run's tags for the method and its choice on each axis."""
    spec = config.objective_spec()
    return {"method": config.method, **{axis: str(getattr(spec, axis)) for axis in AXES}}
