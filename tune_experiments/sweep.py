"""A study: start per task, Tune over all trials, the chosen settings on the test panel, a report; one folder."""

from __future__ import annotations

import hashlib
import json
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

from arlarena_rllib.config import ARLArenaConfig
from arlarena_rllib.errors import CheckpointError, ConfigError
from arlarena_rllib.rollout.envs import bare_text_env
from tune_experiments.cluster import needed_resources, start_cluster
from tune_experiments.early_checks import check_study
from tune_experiments.kept_notes import KeptNotes
from tune_experiments.mlflow_store import TrackingError
from tune_experiments.population import MUTATIONS, explicit_values
from tune_experiments.prepare import warm_start
from tune_experiments.progress import ProgressDisplay
from tune_experiments.resume import finished_start, resumable_base
from tune_experiments.run_folder import claimed
from tune_experiments.schedulers import PBT
from tune_experiments.stopping import StopRequest, graceful_stop
from tune_experiments.study_config import Study
from tune_experiments.study_plan import TrialKey
from tune_experiments.study_record import StudyRecord, TrialRecord
from tune_experiments.study_report import ReportFiles, write_report
from tune_experiments.study_results import TaskTrials, record_of, test_policies, tune_folders
from tune_experiments.study_retry import DECIDED, failed_to_retry
from tune_experiments.study_searcher import StudySearcher
from tune_experiments.study_stopper import errors_of_stoppers
from tune_experiments.study_tuner import study_tuner
from tune_experiments.tracking import MLflowTracker
from tune_experiments.train import env_data_tag, method_tags
from tune_experiments.upload import fetch_or_refuse, uploaded

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
    with ExitStack() as held:
        progress = held.enter_context(ProgressDisplay(study.run.run.iterations))
        fetch_or_refuse(folder, study.run.run.upload_to, resume=resume, progress=progress)
        held.enter_context(claimed(folder, resume=resume, progress=progress))
        stop = held.enter_context(graceful_stop())
        uploads = held.enter_context(uploaded(folder, study.run.run.upload_to, progress))
        open_runs = held.enter_context(ExitStack())
        began = _hold_to(folder, study, resume=resume)
        start_cluster(study.run.run.num_cpus)
        stop.listen()
        finished: list[TaskTrials] = []
        trackers: dict[str, MLflowTracker] = {}
        run_ids: dict[str, str] = {}
        for task in study.tasks:
            trials, trackers[task] = run_task(
                study, task, folder / task, stop, progress, open_runs, uploads, resume=resume, retry_failed=retry_failed
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
            and (section, key) != ("run", "upload_to")
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
    uploads: Sequence[tune.Callback],
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
    tuner = study_tuner(
        study,
        base,
        folder,
        searcher,
        [tracker, progress, KeptNotes(folder), *uploads],
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
