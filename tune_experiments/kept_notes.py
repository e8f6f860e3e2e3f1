"""A second copy of Tune's notes about an experiment: Tune writes its own over and over, and a full disk cuts them off."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

from ray.tune import Callback

from tune_experiments.trial_errors import error_summary

logger = logging.getLogger(__name__)

KEPT = "kept_notes"
_NEWEST = "experiment_state-*.json"


class KeptNotes(Callback):
    """Copies the notes once they tell of a new checkpoint.

    Args:
        folder: of the run; the copies go to ``kept_notes`` in it.
    """

    def __init__(self, folder: Path) -> None:
        self._kept, self._seen, self._is_due = folder / KEPT, 0, False
        self.failure = ""
        """What the last trial that failed said."""

    def on_trial_start(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        """Forget checkpoints that are gone: a killed run's notes can list some, and Tune fails to delete them again."""
        manager = trial.run_metadata.checkpoint_manager
        manager._checkpoint_results = [
            result
            for result in manager._checkpoint_results
            if result is manager.latest_checkpoint_result or Path(result.checkpoint.path).is_dir()
        ]

    def on_trial_error(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        """Keep what the trial said; Tune reads its own note of it when all is over."""
        self.failure = error_summary(trial)

    def on_checkpoint(self, iteration: int, trials: list, trial: Any, checkpoint: Any, **info: Any) -> None:
        """The notes that are written from now on tell of this checkpoint."""
        self._seen, self._is_due = _time_of_notes(Path(trial.storage.experiment_driver_staging_path)), True

    def on_step_end(self, iteration: int, trials: list, **info: Any) -> None:
        """Copy the notes when Tune has written them anew."""
        if self._is_due:
            self._keep(trials)

    def on_experiment_end(self, trials: list, **info: Any) -> None:
        """Copy what Tune wrote last of all: a trial can fail before the notes of its checkpoint were due."""
        if trials and self._is_due:
            self._keep(trials)

    def _keep(self, trials: list) -> None:
        storage = trials[0].storage
        own = Path(storage.experiment_driver_staging_path)  # where Tune writes them before it copies them to the run
        if _time_of_notes(own) <= self._seen:
            return
        self._is_due = False
        copied = Path(storage.experiment_fs_path)  # the notes of earlier calls are only there
        try:
            self._kept.mkdir(exist_ok=True)
            for file in {file.name: file for file in [*_notes(copied), *_notes(own)]}.values():
                _copy(file, self._kept)
        except OSError as error:
            logger.warning("the copy of Tune's notes in %s could not be written: %s", self._kept, error)


def repair_notes(folder: Path, trials: Path) -> None:
    """Replace what cannot be read of the notes in ``trials`` by the copy in the run's ``folder``; drop old decisions.

    A decision to stop that waited for a checkpoint is part of the notes. After a restore Tune would carry it out at the
    next checkpoint, although the trial goes on from an older one; who decided does so again when it is time.
    """
    for file in _notes(trials):
        kept = folder / KEPT / file.name
        if _is_readable(file):
            continue
        if _is_readable(kept):
            logger.warning("%s was cut off, by a full disk say; its copy takes its place.", file)
            _copy(kept, trials)
        elif file.match(_NEWEST):
            file.unlink()  # Tune takes the newest one
    if (folder / KEPT).is_dir() and not any(trials.glob(_NEWEST)):
        for kept in _notes(folder / KEPT):
            _copy(kept, trials)
    for error in trials.glob("*/error.pkl"):
        if not _is_readable(error):
            error.unlink()  # of a trial that failed; its text is in error.txt
    if newest := max(trials.glob(_NEWEST), default=None):
        state = json.loads(newest.read_text())
        state["runner_data"] |= {"_cached_trial_decisions": {}, "_queued_trial_decisions": {}}
        half = newest.with_name(f"{newest.name}.half")
        half.write_text(json.dumps(state))
        half.replace(newest)


def _notes(folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if file.suffix in (".json", ".pkl")]


def _time_of_notes(folder: Path) -> int:
    return max((file.stat().st_mtime_ns for file in folder.glob(_NEWEST)), default=0)


def _is_readable(file: Path) -> bool:
    try:
        if file.match(_NEWEST):
            state = json.loads(file.read_text())
            return isinstance(state["runner_data"], dict) and isinstance(state["trial_data"], list)
        else:
            pickle.loads(file.read_bytes())  # whatever its name ends with
    except Exception:  # noqa: BLE001 - a cut-off pickle raises anything
        return False
    return True


def _copy(file: Path, folder: Path) -> None:
    """Put a copy of ``file`` into ``folder`` as a whole or not at all."""
    half = folder / f"{file.name}.half"
    try:
        shutil.copyfile(file, half)
        with half.open("rb") as written:
            os.fsync(written.fileno())
        half.replace(folder / file.name)
    finally:
        half.unlink(missing_ok=True)
