"""Failed trials of a study, run again on request: from their last checkpoints, as `resume_errored` of Tune's `restore`.

Tune can only resume all trials that failed, and a study leaves those out whose failure has been decided on.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path

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


def reopen_in_notes(trials: Path, ids: Iterable[str]) -> None:
    """Let Tune take up these trials again if its newest notes in ``trials`` say that they failed."""
    newest, wanted = max(trials.glob("experiment_state-*.json"), default=None), set(ids)
    if newest is None:
        return
    state = json.loads(newest.read_text())
    is_changed = False
    for entry in state["trial_data"]:
        trial = json.loads(entry[0])
        if trial["trial_id"] in wanted and trial["status"] == "ERROR":
            entry[0], is_changed = json.dumps({**trial, "status": "PENDING"}), True
    if is_changed:
        half = newest.with_name(f"{newest.name}.half")
        half.write_text(json.dumps(state))
        half.replace(newest)
