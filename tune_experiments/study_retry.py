"""Which trials of a resumed study go on from their checkpoints, and which cannot; changes Tune's notes accordingly.

Tune can resume all trials that failed or none, and a study leaves those out whose failure has been decided on. A trial
whose checkpoint is gone would fail with every resume.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path

from ray.tune.experiment import Trial

from arlarena_rllib.whole_checkpoint import MANIFEST, is_whole
from tune_experiments.study_journal import FAILED, StudyJournal
from tune_experiments.study_plan import CONFIRM

DECIDED = "A failed search trial whose arm has been confirmed is not run again: it counts as not stable, and the choice stands."


def can_retry(key_purpose: str, arm: str, confirmed_arms: Collection[str]) -> bool:
    """Say whether a failed trial can be run again: nothing that came later was decided by its failure."""
    return key_purpose == CONFIRM or arm not in confirmed_arms


def failed_to_retry(journal: StudyJournal) -> list[str]:
    """Return the ids of the failed trials of a task that can be run again."""
    keys = journal.keys()
    confirmed = {key.arm for key in keys.values() if key.purpose == CONFIRM}
    return [
        trial
        for trial, key in keys.items()
        if journal.how_ended(trial) == FAILED and can_retry(key.purpose, key.arm, confirmed)
    ]


def reopen_in_notes(trials: Path, ids: Collection[str]) -> None:
    """Let Tune take up these trials again if its newest notes in ``trials`` say that they failed."""

    def reopened(entry: list[str]) -> list[str]:
        trial = json.loads(entry[0])
        is_failed = trial["trial_id"] in ids and trial["status"] == Trial.ERROR
        return [json.dumps({**trial, "status": Trial.PENDING}), entry[1]] if is_failed else entry

    _rewrite(trials, lambda entries: list(map(reopened, entries)))


def drop_without_checkpoint(trials: Path, ids: Collection[str]) -> list[str]:
    """Take those of these trials out of Tune's newest notes whose newest checkpoint is gone or cut off; return their ids."""
    gone: list[str] = []

    def kept(entries: list[list[str]]) -> list[list[str]]:
        gone.extend(
            trial.trial_id
            for entry in entries
            if (trial := _read(entry)).trial_id in ids and not _can_go_on(trials, trial)
        )
        return [entry for entry in entries if json.loads(entry[0])["trial_id"] not in gone]

    _rewrite(trials, kept)
    return gone


def _read(entry: list[str]) -> Trial:
    trial = Trial.from_json_state(entry[0], stub=True)  # this process may not know the trainable yet
    trial.restore_run_metadata(entry[1])
    return trial


def _can_go_on(trials: Path, trial: Trial) -> bool:
    latest = trial.latest_checkpoint_result
    if latest is None or not latest.checkpoint:
        return True  # from the beginning
    # By name, as the study may have been moved.
    checkpoint = next(trials.glob(f"*-{trial.trial_id}"), trials / "gone") / Path(latest.checkpoint.path).name
    return checkpoint.is_dir() and (is_whole(checkpoint) or not (checkpoint / MANIFEST).is_file())


def _rewrite(trials: Path, change: Callable[[list[list[str]]], list[list[str]]]) -> None:
    """Change the entries of the trials in Tune's newest notes, as a whole or not at all."""
    newest = max(trials.glob("experiment_state-*.json"), default=None)
    if newest is None:
        return
    state = json.loads(newest.read_text())
    entries = change(state["trial_data"])
    if entries != state["trial_data"]:
        half = newest.with_name(f"{newest.name}.half")
        half.write_text(json.dumps({**state, "trial_data": entries}))
        half.replace(newest)
