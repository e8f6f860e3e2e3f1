"""A study: start per task, Tune over all trials, the chosen settings on the test panel, a report; one folder."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ray
import yaml
from ray import tune

from arlarena_rllib.algorithm import ARLArena
from arlarena_rllib.config import ARLArenaConfig
from arlarena_rllib.diagnostics.metric_names import EVALUATION_SAMPLED
from arlarena_rllib.errors import CheckpointError, ConfigError
from arlarena_rllib.rollout.envs import bare_text_env
from tune_experiments.early_checks import check_study
from tune_experiments.kept_notes import KeptNotes, repair_notes, shorten_sync_errors
from tune_experiments.mlflow_store import TrackingError
from tune_experiments.population import MUTATIONS, explicit_values
from tune_experiments.prepare import warm_start
from tune_experiments.progress import ProgressDisplay
from tune_experiments.resume import finished_start, resumable_base
from tune_experiments.run_folder import claimed
from tune_experiments.schedulers import PBT, build_scheduler
from tune_experiments.stopping import StopRequest, graceful_stop
from tune_experiments.study_config import Study
from tune_experiments.study_plan import TrialKey
from tune_experiments.study_record import StudyRecord, TrialRecord
from tune_experiments.study_report import ReportFiles, write_report
from tune_experiments.study_results import TRIALS, TaskTrials, record_of, test_policies, tune_folders
from tune_experiments.study_retry import DECIDED, drop_without_checkpoint, failed_to_retry, reopen_in_notes
from tune_experiments.study_searcher import StudySearcher
from tune_experiments.study_stopper import errors_of_stoppers, study_stopper
from tune_experiments.tracking import MLflowTracker
from tune_experiments.train import env_data_tag, method_tags, needed_resources, start_cluster

STARTS = "starts"
STUDY_FILE, SETTINGS_FILE = "study.json", "config.yaml"


@dataclass(frozen=True)
class StudyOutcome:
    """Where a study left its results.

    Attributes:
        folder: of the study.
        record: all trials, with their curves and tests.
        report: the page and the table.
        failed: trials that failed.
    """

    folder: Path
    record: StudyRecord
    report: ReportFiles
    failed: list[TrialRecord]


def sweep(study: Study, *, resume: bool = False, retry_failed: bool = False) -> StudyOutcome:
    """Run a study to its end, or what is left of it, and return the outcome.

    Args:
        study: to run.
        resume: go on with the study of this name.
        retry_failed: resume, and let failed trials go on from their last checkpoints.

    Raises:
        ConfigError: before anything starts, when it cannot work, or when a resumed study has other settings.
        CheckpointError: ``resume`` without a study to resume.
        KeyboardInterrupt: it was stopped; nothing is lost, `resume` goes on.
    """
    resume = resume or retry_failed
    check_study(study)
    folder = (Path(study.run.run.storage_path) / study.run.run.name).resolve()
    with (
        ProgressDisplay(study.run.run.iterations) as progress,
        claimed(folder, resume=resume, progress=progress),
        graceful_stop() as stop,
        ExitStack() as open_runs,
    ):
        began = _hold_to(folder, study, resume=resume)
        start_cluster(study.run.run.num_cpus)
        stop.listen()
        finished: list[TaskTrials] = []
        trackers: dict[str, MLflowTracker] = {}
        run_ids: dict[str, str] = {}
        for task in study.tasks:
            trials, trackers[task] = run_task(
                study, task, folder / task, stop, progress, open_runs, resume=resume, retry_failed=retry_failed
            )
            test_policies(study, trials, progress)
            finished.append(trials)
            run_ids |= {trial: _mlflow_run(trackers[task], trial) for trial in trials.journal.trial_ids()}
        record = record_of(study, finished, run_ids, began)
        record.save(folder / STUDY_FILE)
        report = write_report(record, folder)
        for task, tracker in trackers.items():
            _log_study(tracker, [trial for trial in record.trials if trial.task == task], report)
    return StudyOutcome(folder, record, report, [trial for trial in record.trials if trial.status == "failed"])


def _mlflow_run(tracker: MLflowTracker, trial_id: str) -> str:
    """Return the trial's run; empty when MLflow does not have it, or is away."""
    try:
        return tracker.run_id(trial_id)
    except TrackingError:
        return ""


def _hold_to(folder: Path, study: Study, *, resume: bool) -> float:
    """Write the study's settings to its folder, or check that they are those it began with; return when it began."""
    file = folder / SETTINGS_FILE
    settings = json.loads(json.dumps({"study": asdict(study.settings), **study.run.given}, default=str))
    if resume:
        before = _began_with(file)
        changed = [
            f"{section}.{key}={now!r} was {then!r}"
            for section in {**before["settings"], **settings}
            for key in {**before["settings"].get(section, {}), **settings.get(section, {})}
            if (now := settings.get(section, {}).get(key)) != (then := before["settings"].get(section, {}).get(key))
        ]
        if changed:
            raise ConfigError(
                f"--resume continues the study in {folder} as it was. Different now: {', '.join(changed[:5])}. "
                "Give the same file and overrides, or start a new study with another run.name."
            )
        return before["began"]
    began = time.time()
    file.write_text(yaml.safe_dump({"began": began, "settings": settings}, sort_keys=False))
    return began


def _began_with(file: Path) -> dict[str, Any]:
    """Return what a study wrote down when it began.

    Raises:
        CheckpointError: the file is not that of a study, or cannot be read.
    """
    try:
        before = yaml.safe_load(file.read_text(encoding="utf-8"))
        if {"began", "settings"} == before.keys() and all(isinstance(v, dict) for v in before["settings"].values()):
            return {**before, "began": float(before["began"])}
        problem = "it has other keys"
    except (OSError, ValueError, AttributeError, TypeError, RecursionError, yaml.YAMLError) as error:
        problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
    raise CheckpointError(f"{file} does not say how a study began ({problem}), so there is none to resume.")


def _log_study(tracker: MLflowTracker, trials: Sequence[TrialRecord], report: ReportFiles) -> None:
    """Put the report and each trial's headline numbers where MLflow's table shows them."""
    for file in (report.html, report.markdown):
        tracker.log_artifact(file)
    for trial in trials:
        if trial.test is not None:
            test = {"test": {"sampled": trial.test.sampled, "greedy": trial.test.greedy}}
            tracker.log_metrics(test, step=len(trial.history), trial_id=trial.trial_id)


def run_task(
    study: Study,
    task: str,
    folder: Path,
    stop: StopRequest,
    progress: ProgressDisplay,
    open_runs: ExitStack,
    *,
    resume: bool,
    retry_failed: bool = False,
) -> tuple[TaskTrials, MLflowTracker]:
    """Run all trials of one task, or those that are left of them; ``open_runs`` closes its runs in MLflow."""
    run = study.run_of(task)
    folder.mkdir(parents=True, exist_ok=True)
    starts = {arm.name: _start(study, task, arm.name, folder, progress) for arm in study.arms}
    base = run.algorithm(next(iter(starts.values())))
    env = bare_text_env(base.env, base.env_config)
    every = [study.run_of(task, arm, number) for arm in study.arms for number in range(len(arm.settings))]
    concurrent = room_for([one.algorithm("") for one in every], study.settings.max_concurrent, progress)
    members = len(study.settings.confirm_seeds) if study.settings.scheduler.get("type") == PBT else concurrent
    searcher = StudySearcher(
        study.plan(),
        partial(trial_config, study, task, starts),
        folder,
        study.stability,
        run.run.iterations,
        members,  # of a population all are there from the start and take turns
    )
    if resume and tune_folders(folder) and not searcher.journal.trial_ids():
        raise CheckpointError(
            f"{folder} has trials, but its journal.jsonl is gone or empty: the study cannot go on from it."
        )
    trials = TaskTrials(task, folder, starts, searcher.journal)
    if retry_failed:
        _retry_failed(trials, progress)
    for key in trials.without_folder() if resume else ():
        progress.message(
            f"the folder of trial {key}, which has ended, is gone: the report lacks its curve, and its test if there was none "
            "before. To have it again, start the study under another run.name."
        )
    tracker = open_runs.enter_context(
        MLflowTracker(
            run.run.experiment,
            run_name=run.run.name if len(study.tasks) == 1 else f"{run.run.name}/{task}",
            storage_dir=folder.parents[1],
            resolved_config=json.loads(json.dumps(run.resolved(base), default=str)),
            tags={"study": run.run.name, "task": task, "engine": base.engine} | env_data_tag(env),
            trial_tags=partial(trial_tags, study, task, searcher),
            resume=resume,
            store_required=task == next(iter(study.tasks)),
        )
    )
    progress.phase(f"trials of {task}: at most {study.plan().most_trials()}, {concurrent} at a time")
    tuner = _tuner(
        study,
        base,
        folder,
        searcher,
        [tracker, progress, KeptNotes(folder)],
        resume=resume,
        progress=progress,
    )
    with stop.gently(partial(_end_study, searcher)), errors_of_stoppers():
        tuner.fit()
    if not searcher.is_over:
        raise KeyboardInterrupt
    return trials, tracker


def _retry_failed(trials: TaskTrials, progress: ProgressDisplay) -> None:
    """Note that the failed trials go on, and forget how their policies did on the test panel."""
    keys, again = trials.journal.keys(), failed_to_retry(trials.journal)
    for trial_id in again:
        trials.drop_test(trial_id)
        trials.journal.retried(trial_id)
        progress.message(f"trial {keys[trial_id]} failed; it goes on from its last checkpoint")
    if not again:
        progress.message(f"no failed trial of {trials.task} can be run again. {DECIDED}")


def _end_study(searcher: StudySearcher) -> None:
    print("\nstopping with the last checkpoints (again to stop at once)", flush=True)
    searcher.close()
    signal.raise_signal(signal.SIGUSR1)  # Tune's own: it writes its notes and ends its trials


# --- before Tune --------------------------------------------------------------------------------------------------


def _start(study: Study, task: str, arm: str, folder: Path, progress: ProgressDisplay) -> Path:
    """Return the policy that an arm's trials begin with; arms with the same model and cloning share it."""
    run = study.run_of(task, study.arm(arm))
    deciding = {name: run.given.get(name) for name in ("model", "warm_start", "environment", "env_runners")}
    digest = hashlib.sha256(json.dumps([deciding, run.seed], sort_keys=True, default=str).encode()).hexdigest()[:12]
    home = folder / STARTS / digest
    home.mkdir(parents=True, exist_ok=True)
    if (start := finished_start(home)) is not None:
        return start
    base = resumable_base(run, home)
    if run.warm_start.source == "none":
        return base
    progress.phase(f"cloning for {task}, {arm}", total=run.warm_start.cloning.steps)
    return warm_start(run, base, home, lambda step, done, loss: progress.advance(step, loss=loss)).path


def trial_config(study: Study, task: str, starts: Mapping[str, Path], key: TrialKey) -> dict[str, Any]:
    """Return the flat settings in which a trial differs from the task's own; seed and method always."""
    base = study.run_of(task).algorithm(next(iter(starts.values())))
    config = study.run_of(task, study.arm(key.arm), key.setting, key.seed).algorithm(starts[key.arm])
    before, now = base.to_dict(), config.to_dict()
    changed = {name: value for name, value in now.items() if name not in before or before[name] != value}
    mutating = explicit_values(config, study.settings.scheduler.get(MUTATIONS, {}))
    return {**changed, **mutating, "seed": key.seed, "method": config.method}


def trial_tags(study: Study, task: str, searcher: StudySearcher, trial_id: str) -> dict[str, str]:
    """Return the tags of a trial's MLflow run."""
    key = searcher.journal.keys()[trial_id]
    setting = study.arm(key.arm).settings[key.setting]
    words = ", ".join(f"{name}={value}" for name, value in setting.items()) or "default"
    method = method_tags(study.run_of(task, study.arm(key.arm), key.setting).algorithm(""))
    return {"arm": key.arm, "setting": words, "purpose": key.purpose, "seed": str(key.seed), **method}


def room_for(configs: Sequence[ARLArenaConfig], most: int | None, progress: ProgressDisplay) -> int:
    """Return how many of the largest of these trials fit side by side, and say so.

    Raises:
        ConfigError: with figures, when not even one of them fits.
    """
    available = ray.cluster_resources()
    needs: dict[str, float] = {}
    for config in configs:
        trial, engine = needed_resources(config)
        needs = {kind: max(needs.get(kind, 0.0), trial[kind] + engine[kind]) for kind in trial}
    needs = {kind: need for kind, need in needs.items() if need > 0}
    room = min((int((available.get(kind, 0.0) + 1e-6) / need) for kind, need in needs.items()), default=1)
    figures = ", ".join(f"{need:g} of {available.get(kind, 0.0):g} {kind}s" for kind, need in needs.items())
    if room < 1:
        raise ConfigError(
            f"a trial with its engine needs up to {figures}: it does not fit. Lower that, or raise run.num_cpus."
        )
    chosen = min(room, most) if most else room
    progress.message(f"a trial with its engine takes up to {figures}: {room} fit side by side, {chosen} will run")
    return chosen


# --- Tune ---------------------------------------------------------------------------------------------------------


def _tuner(
    study: Study,
    base: ARLArenaConfig,
    folder: Path,
    searcher: StudySearcher,
    callbacks: list[tune.Callback],
    *,
    resume: bool,
    progress: ProgressDisplay,
) -> tune.Tuner:
    os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "1")
    os.environ.setdefault("TUNE_PRINT_ALL_TRIAL_ERRORS", "0")
    settings = study.run.run
    tune_config = tune.TuneConfig(
        search_alg=searcher,
        scheduler=build_scheduler(study.settings.scheduler, metric=EVALUATION_SAMPLED)
        if study.settings.scheduler
        else None,
        num_samples=-1,
        trial_name_creator=partial(_trial_name, searcher),
        trial_dirname_creator=partial(_trial_folder, searcher),
    )
    shorten_sync_errors()
    trials = max(tune_folders(folder), key=_number, default=folder / f"{TRIALS}.0")
    if resume and trials.is_dir():
        repair_notes(folder, trials)
    if resume and (known := _trials_known_to_tune(trials)) is not None:
        for trial_id in drop_without_checkpoint(trials, searcher.journal.running()):
            progress.message(f"the newest checkpoint of trial {searcher.name_of(trial_id)} is gone; it starts anew")
            known.remove(trial_id)
            searcher.journal.lost(trial_id)
        for key in searcher.journal.drop_unknown(known):
            progress.message(f"trial {key} is not in Tune's notes; it starts anew")
        reopen_in_notes(trials, searcher.journal.running())
        # A search that has ended for Tune gives no more trials, so what is left then needs an experiment of its own.
        if searcher.is_over or known.intersection(searcher.journal.running()):
            tuner = tune.Tuner.restore(str(trials), trainable=ARLArena, param_space=base, resume_unfinished=True)
            # Else Tune goes on with copies, pickled when the study began, that nobody in this process holds.
            tuner._local_tuner.get_run_config().callbacks = list(callbacks)
            tuner._local_tuner._tune_config = tune_config
            return tuner
    if resume and (lost := searcher.journal.drop_unfinished()):
        progress.message(f"Tune's notes are missing or cut off; {len(lost)} unfinished trials start anew")
    if resume and trials.is_dir():
        trials = trials.with_name(f"{TRIALS}.{_number(trials) + 1}")
    return tune.Tuner(
        ARLArena,
        param_space=base,
        tune_config=tune_config,
        run_config=tune.RunConfig(
            name=trials.name,
            storage_path=str(folder),
            stop=study_stopper(study),
            callbacks=callbacks,
            verbose=0,
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_frequency=settings.checkpoint_frequency,
                checkpoint_at_end=True,
                num_to_keep=settings.checkpoints_kept,
            ),
            failure_config=tune.FailureConfig(max_failures=settings.max_failures),
        ),
    )


def _number(trials: Path) -> int:
    return int(trials.suffix[1:])


def _trial_name(searcher: StudySearcher, trial: Any) -> str:
    return searcher.name_of(trial.trial_id)


def _trial_folder(searcher: StudySearcher, trial: Any) -> str:
    return f"{searcher.name_of(trial.trial_id)}-{trial.trial_id}"


def _trials_known_to_tune(trials: Path) -> set[str] | None:
    """Return the ids of the trials in Tune's newest notes; None when there are none, or a kill cut them off."""
    if not tune.Tuner.can_restore(str(trials)) or not any(trials.glob("search_gen_state-*.json")):
        return None
    notes = max(trials.glob("experiment_state-*.json"), default=None)
    try:
        state = json.loads(notes.read_text()) if notes else {}
        return {json.loads(trial)["trial_id"] for trial, _ in state["trial_data"]}
    except (ValueError, KeyError, TypeError):
        return None
