"""What a study came to: the chosen policies on the test panel, and all its trials as one record."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any, Literal

from arlarena_rllib.config import ARLArenaConfig
from arlarena_rllib.errors import CheckpointError
from arlarena_rllib.models.export import load_checkpoint_policy
from arlarena_rllib.models.load import load_causal_lm
from arlarena_rllib.objectives import AXES
from arlarena_rllib.rollout.envs import bare_text_env
from arlarena_rllib.rollout.session import PlaySession
from arlarena_rllib.whole_checkpoint import newest_whole
from tune_experiments.mlflow_names import metric_values
from tune_experiments.plots import read_results
from tune_experiments.population import EXCHANGES
from tune_experiments.progress import ProgressDisplay
from tune_experiments.quickstart import git_commit
from tune_experiments.run_config import RunConfig
from tune_experiments.study_config import Study
from tune_experiments.study_journal import FAILED, FINISHED, STOPPED, StudyJournal
from tune_experiments.study_plan import CONFIRM, TrialKey
from tune_experiments.study_record import ArmRecord, ExchangeRecord, StudyRecord, TestResult, TrialRecord

TESTS, TRIALS = "tests", "trials"
STATUS: dict[str | None, Literal["finished", "stopped", "failed"]] = {
    FINISHED: "finished", STOPPED: "stopped", FAILED: "failed", None: "failed",
}  # fmt: skip


@dataclass(frozen=True)
class TaskTrials:
    """The trials of one task after Tune is done with them.

    Attributes:
        task: its name.
        folder: holds Tune's folders and, below ``tests``, one result per tested policy.
        starts: arm -> directory of the policy that its trials began with.
        journal: what happened to every trial.
    """

    task: str
    folder: Path
    starts: Mapping[str, Path]
    journal: StudyJournal

    def trial_folder(self, trial_id: str) -> Path | None:
        """Return Tune's folder of a trial; None when it has none."""
        return next(
            (home for trials in tune_folders(self.folder) for home in trials.glob(f"*-{escape(trial_id)}")), None
        )

    def without_folder(self) -> list[TrialKey]:
        """Return the trials that have ended and whose folders are gone."""
        keys, ended = self.journal.keys(), set(self.journal.trial_ids()) - set(self.journal.running())
        return [key for trial_id, key in keys.items() if trial_id in ended and self.trial_folder(trial_id) is None]

    def drop_test(self, trial_id: str) -> None:
        """Delete the result of a trial's policy on the test panel, if there is one."""
        _result_file(self, str(self.journal.keys()[trial_id])).unlink(missing_ok=True)

    def checkpoint(self, trial_id: str) -> Path | None:
        """Return the newest whole checkpoint of a trial."""
        home = self.trial_folder(trial_id)
        return newest_whole(home) if home else None


def tune_folders(folder: Path) -> list[Path]:
    """Return the folders of Tune's experiments in a task's ``folder``, oldest first; a copy like `trials.0.bak` is none."""
    found = [
        path
        for path in folder.glob(f"{TRIALS}.*")
        if path.name.removeprefix(f"{TRIALS}.").isdecimal() and path.is_dir()
    ]
    return sorted(found, key=lambda path: int(path.suffix[1:]))


def test_policies(study: Study, trials: TaskTrials, progress: ProgressDisplay) -> None:
    """Play the test panel with every start and every confirmed policy; a result that is there already is kept."""
    waiting = {name: job for name, job in _jobs(trials).items() if not _is_tested(_result_file(trials, name), progress)}
    by_start: dict[Path, dict[str, tuple[Path, Path | None]]] = {}
    for name, (start, checkpoint) in waiting.items():
        by_start.setdefault(start, {})[name] = (start, checkpoint)
    for start, jobs in by_start.items():
        run = study.run_of(trials.task)
        progress.phase(
            f"test of {trials.task}: {len(jobs)} policies on {run.run.report_num_tasks} tasks", total=len(jobs)
        )
        _play(run, run.algorithm(start), trials, jobs, progress)


def _is_tested(result: Path, progress: ProgressDisplay) -> bool:
    if not result.is_file():
        return False
    try:
        TestResult.load(result)
    except CheckpointError as error:
        progress.message(f"{error} Its policy is tested again.")
        return False
    return True


def _play(
    run: RunConfig,
    config: ARLArenaConfig,
    trials: TaskTrials,
    jobs: Mapping[str, tuple[Path, Path | None]],
    progress: ProgressDisplay,
) -> None:
    tasks = test_tasks(run)
    with PlaySession(config) as session:
        for number, (name, (start, checkpoint)) in enumerate(jobs.items(), start=1):
            model = load_causal_lm(start) if checkpoint is None else load_checkpoint_policy(checkpoint, start)
            session.publish(model.named_parameters())
            panel = session.evaluate(tasks, draws=run.run.report_draws)
            TestResult(panel.sampled, panel.greedy, panel.n, panel.draws, panel.task_sampled, panel.task_greedy).save(
                _result_file(trials, name)
            )
            progress.advance(number, policy=name, sampled=panel.sampled)


def test_tasks(run: RunConfig) -> tuple[str, ...]:
    """Return the task ids that results are reported on."""
    config = run.algorithm("")
    panel = bare_text_env(config.env, config.env_config).tasks()
    return panel.split(run.run.report_split)[: run.run.report_num_tasks]


def _jobs(trials: TaskTrials) -> dict[str, tuple[Path, Path | None]]:
    """Return name -> (start, checkpoint) of every policy to be tested; a start has no checkpoint."""
    jobs: dict[str, tuple[Path, Path | None]] = {_start_name(start): (start, None) for start in trials.starts.values()}
    for trial_id, key in trials.journal.keys().items():
        checkpoint = trials.checkpoint(trial_id)
        if key.purpose == CONFIRM and checkpoint is not None:
            jobs[str(key)] = (trials.starts[key.arm], checkpoint)
    return jobs


def _start_name(start: Path) -> str:
    return f"start-{start.parent.name}" if start.name == "start" else f"start-{start.name}"


def _result_file(trials: TaskTrials, name: str) -> Path:
    return trials.folder / TESTS / f"{name}.json"


# --- the record ---------------------------------------------------------------------------------------------------


def record_of(study: Study, tasks: list[TaskTrials], run_ids: Mapping[str, str], began: float) -> StudyRecord:
    """Return the record of a study.

    Args:
        study: as configured.
        tasks: what the trials of every task left.
        run_ids: trial id -> MLflow run.
        began: ``time.time()`` of its first start.
    """
    config = study.run.algorithm("")
    return StudyRecord(
        name=study.run.run.name,
        arms=[_arm_record(study, arm.name) for arm in study.arms],
        tasks={trials.task: _task_facts(study.run_of(trials.task)) for trials in tasks},
        stability={
            name: getattr(study.stability, name) for name in ("metric", "tail_fraction", "threshold", "max_drop")
        },
        iterations=study.run.run.iterations,
        seeds={"search": [study.settings.search_seed], "confirm": list(study.settings.confirm_seeds)},
        trials=[
            _trial_record(study, trials, trial_id, key, run_ids.get(trial_id, ""))
            for trials in tasks
            for trial_id, key in trials.journal.keys().items()
        ],
        start_test={trials.task: result for trials in tasks if (result := _start_test(trials)) is not None},
        exchanges={trials.task: found for trials in tasks if (found := _exchanges(trials))},
        seconds=time.time() - began,
        commit=git_commit() or "",
        engine=config.engine,
    )


def _arm_record(study: Study, name: str) -> ArmRecord:
    arm = study.arm(name)
    config = study.run_of(next(iter(study.tasks)), arm).algorithm("")
    spec = config.objective_spec()
    return ArmRecord(name, config.method, {axis: str(getattr(spec, axis)) for axis in AXES}, dict(arm.overrides))


def _task_facts(run: RunConfig) -> dict[str, Any]:
    panel = bare_text_env(run.env, run.algorithm("").env_config).tasks()
    return {"env": run.env, "panel_hash": panel.panel_hash, "n": len(test_tasks(run)), "split": run.run.report_split}


def _start_test(trials: TaskTrials) -> TestResult | None:
    file = _result_file(trials, _start_name(next(iter(trials.starts.values()))))
    return TestResult.load(file) if file.is_file() else None


def _exchanges(trials: TaskTrials) -> list[ExchangeRecord]:
    files = [folder / EXCHANGES for folder in tune_folders(trials.folder)]
    lines = [line for file in files if file.is_file() for line in file.read_text().splitlines()]
    return [ExchangeRecord(**json.loads(line)) for line in lines]


def _trial_record(study: Study, trials: TaskTrials, trial_id: str, key: TrialKey, run_id: str) -> TrialRecord:
    home, how = trials.trial_folder(trial_id), trials.journal.how_ended(trial_id)
    results = read_results(home) if home is not None and (home / "result.json").is_file() else []
    history = [metric_values(result) for result in results][: study.run.run.iterations]
    test, checkpoint = _result_file(trials, str(key)), trials.checkpoint(trial_id)
    return TrialRecord(
        trial_id=trial_id,
        arm=key.arm,
        task=trials.task,
        setting=dict(study.arm(key.arm).settings[key.setting]),
        seed=key.seed,
        purpose="confirm" if key.purpose == CONFIRM else "search",
        status=STATUS[how],
        reason=_reason(how, home, results),
        history=history,
        repeated=trials.journal.repeated(trial_id),
        test=TestResult.load(test) if test.is_file() else None,
        checkpoint=str(checkpoint or ""),
        mlflow_run_id=run_id,
    )


def _reason(how: str | None, home: Path | None, results: list[dict[str, Any]]) -> str:
    if how == "finished":
        return "" if home is not None else "its folder is gone"
    if how == "stopped":
        last = results[-1].get("notices", ()) if results else ()
        return next((note for note in last if note.startswith("collapse alarm")), "ended early by the scheduler")
    error = home / "error.txt" if home is not None else None
    if error is not None and error.is_file():
        return error.read_text(errors="replace").strip().splitlines()[-1]
    return "did not end"
