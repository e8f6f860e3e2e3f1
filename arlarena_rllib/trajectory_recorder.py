"""TrajectoryRecorder: writes some episodes of each iteration to the trial's folder, one file per iteration."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from arlarena_rllib.learner.recorded_rows import RECORDED, RowLogRatios
from arlarena_rllib.objectives import ObjectiveSpec
from arlarena_rllib.trajectory import TokenBatch, Trajectory, TrajectoryGroup
from arlarena_rllib.trajectory_record import Decode, trajectory_record, turns_training

FOLDER = "trajectories"
"""Below the trial's folder; one JSON object per line, a file per iteration, so that one done again replaces it."""
TRAINED, LEFT_OUT, FAILED = "trained", "left out", "failed"
"""What became of an episode: its group was trained on; its group was filtered out or too small; the episode failed."""
_REPEAT = 20
_COLUMNS = ("trajectory_id", "turn_index", "loss_mask", "advantages")


@dataclass
class TrajectoryRecorder:
    """Follows some episodes of an iteration from the rollout to the update, then writes them down.

    Attributes:
        count: Episodes per iteration; 0 = nothing is done at all.
        folder: Where the files go; made when the first is written.
        spec: The point of the method grid.
        decode: Text of token ids, special tokens included.
        facts: Repeated in every record, e.g. ``env`` and ``method``.
    """

    count: int
    folder: Path
    spec: ObjectiveSpec
    decode: Decode
    facts: Mapping[str, Any]
    _episodes: list[tuple[Trajectory, int | None, str]] = field(default_factory=list)
    _rows: TokenBatch | None = None
    _failures: int = 0

    def begin(self, sampled: Sequence[Trajectory], kept: Sequence[TrajectoryGroup]) -> None:
        """Choose the iteration's episodes: the first of each group as sampled, then the second of each, and so on.

        Args:
            sampled: All episodes of the iteration, failed ones and those of dropped groups included.
            kept: The groups that are trained on, in the order of the batch.
        """
        self._rows = None
        if not self.count:
            return
        numbers = {id(t): number for number, t in enumerate(t for group in kept for t in group.trained)}
        chosen = sorted(sampled, key=lambda t: t.member)[: self.count]
        self._episodes = [(t, number := numbers.get(id(t)), _use(t, number)) for t in chosen]

    def marked(self, batch: TokenBatch) -> TokenBatch:
        """Return the rows to train on, the recorded ones marked for the learners; keep what they say of training."""
        if not self.count:
            return batch
        numbers = [number for _, number, _ in self._episodes if number is not None]
        is_recorded = np.isin(batch["trajectory_id"], np.array(numbers, dtype=np.int64))
        self._rows = {name: batch[name][is_recorded] for name in _COLUMNS}
        return batch | {RECORDED: is_recorded}

    def write(self, iteration: int, log_ratios: Callable[[], Collection[RowLogRatios]]) -> list[str]:
        """Write the iteration's file, and remove those of later iterations: a run that went back has none.

        Args:
            iteration: Counted from 1, as in the results.
            log_ratios: Returns what each learner noted of its recorded rows; only called after an update.

        Returns:
            What a person should read: that nothing could be written. Training goes on.
        """
        if not self.count:
            return []
        found: RowLogRatios = {}
        for noted in log_ratios() if self._rows is not None else ():
            found |= noted
        lines = [json.dumps({"iteration": iteration, **self.facts, **record}) for record in self._records(found)]
        file = self.folder / f"iteration_{iteration:06d}.jsonl"
        half = file.with_suffix(".half")
        self._episodes, self._rows = [], None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            half.write_text("".join(f"{line}\n" for line in lines))
            half.replace(file)
            self._remove_after(iteration)
        except OSError as error:
            _discard(half)
            self._failures += 1
            if self._failures % _REPEAT != 1:
                return []
            return [
                f"reporting.record_trajectories={self.count}: iteration {iteration} could not be written to "
                f"{self.folder}: {error}. Training goes on without it."
            ]
        self._failures = 0
        return []

    def _records(self, log_ratios: RowLogRatios) -> list[dict[str, Any]]:
        records = []
        for trajectory, number, use in self._episodes:
            training = turns_training(trajectory, self._rows_of(number), log_ratios, -1 if number is None else number)
            records.append(trajectory_record(trajectory, training, use=use, spec=self.spec, decode=self.decode))
        return records

    def _rows_of(self, number: int | None) -> TokenBatch:
        if self._rows is None or number is None:
            return {"turn_index": np.zeros(0, dtype=np.int64)}
        own = self._rows["trajectory_id"] == number
        return {name: column[own] for name, column in self._rows.items()}

    def _remove_after(self, iteration: int) -> None:
        for file in self.folder.glob("iteration_*.jsonl"):
            if (name := re.fullmatch(r"iteration_(\d+)", file.stem)) and int(name[1]) > iteration:
                file.unlink()


def _use(trajectory: Trajectory, number: int | None) -> str:
    if trajectory.stop_reason.is_failed_episode:
        return FAILED
    return LEFT_OUT if number is None else TRAINED


def _discard(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError:
        return
