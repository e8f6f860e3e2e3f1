"""What a study's report says of its trials as such: none lost, no iteration lost or repeated, panels that can be paired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tune_experiments.study_page import Cell, Row, Table
from tune_experiments.study_record import StudyRecord, TrialRecord
from tune_experiments.study_statistics import counts_once, setting_words
from tune_experiments.study_text import DASH


def balance_table(record: StudyRecord) -> Table:
    """Return started = finished + stopped + failed per task and purpose."""
    rows: list[Row] = []
    for task in record.tasks:
        for purpose in ("search", "confirm"):
            rows.append(
                [task, purpose, *_balance([t for t in record.trials if (t.task, t.purpose) == (task, purpose)])]
            )
    rows.append([Cell("all", tone="best"), "", *_balance(record.trials)])
    return Table(["task", "purpose", "started", "finished", "stopped", "failed", "iterations"], rows, "llrrrrr")


def _balance(trials: Sequence[TrialRecord]) -> list[str]:
    counts = Counter(trial.status for trial in trials)
    numbers = [
        len(trials),
        counts["finished"],
        counts["stopped"],
        counts["failed"],
        sum(len(t.history) for t in trials),
    ]
    return [str(n) for n in numbers]


def trials_table(record: StudyRecord) -> Table:
    """Return every trial: how it ended, whether its iterations count 1..n once, where it is kept."""
    words: Mapping[bool | None, Cell] = {
        True: Cell("yes"),
        False: Cell("no", tone="bad"),
        None: Cell(DASH, tone="muted"),
    }
    rows: list[Row] = [
        [
            trial.trial_id,
            f"{trial.arm}, {trial.task}, seed {trial.seed}",
            Cell(trial.purpose, setting_words(trial.setting)),
            Cell(trial.status, trial.reason, "" if trial.status == "finished" else "bad"),
            str(len(trial.history)),
            words[counts_once(trial)],
            Cell(trial.mlflow_run_id or DASH, trial.checkpoint),
        ]
        for trial in record.trials
    ]
    head = [
        "trial",
        "arm, task, seed",
        "purpose, setting",
        "ended",
        "iterations",
        "1..n once",
        "MLflow run, checkpoint",
    ]
    return Table(head, rows, "ttttrlt", caption=f"All {len(rows)} trials", is_folded=True)


def exchanges_table(record: StudyRecord, task: str) -> Table:
    """Return who of a population went on from whose checkpoint, and with which settings."""
    rows: list[Row] = [
        [str(e.iteration), f"seed {e.member}", f"seed {e.source}", setting_words(e.before), setting_words(e.after)]
        for e in record.exchanges[task]
    ]
    return Table(["after iteration", "member", "went on from", "its settings before", "and then"], rows, "rlltt")


def exchanges_words(record: StudyRecord, task: str) -> str:
    """Return what exchanges mean for the numbers of a task."""
    return (
        f"The seeds are the members of one population, with {len(record.exchanges[task])} exchanges: they share checkpoints, so "
        "their spread is not that of independent runs, and intervals over them are too narrow."
    )


def accounting_words(record: StudyRecord) -> list[str]:
    """Return what adds up and what does not, as sentences."""
    total = Counter(trial.status for trial in record.trials)
    parts = " + ".join(f"{total[status]} {status}" for status in ("finished", "stopped", "failed"))
    lines = [f"{len(record.trials)} trials started = {parts}."]
    if total["failed"]:
        lines.append(
            "`--resume` leaves failed trials as they are; `arlarena sweep ... --retry-failed` runs those of the confirmation "
            "again, from their last checkpoints. A failed search trial counts as not stable."
        )
    checked = {trial.trial_id: counts_once(trial) for trial in record.trials if trial.history}
    wrong = [name for name, holds in checked.items() if holds is False]
    unknown = [name for name, holds in checked.items() if holds is None]
    if wrong:
        again = sum(trial.repeated for trial in record.trials)
        lines.append(
            f"Iterations lost or repeated in: {', '.join(wrong)}; {again} were done again after a stop or a kill"
            f"{', or by a member that went on from another checkpoint' if record.exchanges else ''}."
        )
    elif len(checked) > len(unknown):
        lines.append(f"training_iteration runs 1..n once in all {len(checked) - len(unknown)} trials that log it.")
    if unknown:
        lines.append(f"Without training_iteration, so not checked: {', '.join(unknown)}.")
    short = [t.trial_id for t in record.trials if t.status == "finished" and len(t.history) != record.iterations]
    if short:
        lines.append(f"Finished with another number of iterations than {record.iterations}: {', '.join(short)}.")
    return lines + _panel_words(record)


def _panel_words(record: StudyRecord) -> list[str]:
    lines = []
    for task in record.tasks:
        tests = [("start", record.start_test.get(task))]
        tests += [(t.trial_id, t.test) for t in record.trials if t.task == task]
        sizes: dict[int, list[str]] = {}
        for name, test in tests:
            if test:
                sizes.setdefault(len(test.task_sampled), []).append(name)
        if len(sizes) > 1:
            found = "; ".join(f"{size} tasks: {', '.join(names)}" for size, names in sorted(sizes.items()))
            lines.append(f"{task}: test panels of different sizes cannot be paired ({found}).")
    return lines
