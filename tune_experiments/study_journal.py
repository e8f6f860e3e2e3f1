"""The journal of a study: one line of JSON per event, written before Tune acts on it, so that a kill loses nothing."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from arlarena_rllib.diagnostics.metric_names import EVALUATION_BEFORE_SAMPLED, EVALUATION_SAMPLED
from arlarena_rllib.errors import CheckpointError
from arlarena_rllib.objectives import Stability, stability_rule
from tune_experiments.study_plan import Outcome, TrialKey
from tune_experiments.study_settings import StabilitySettings

STARTED, RESULT, ENDED, RETRIED, LOST = "started", "result", "ended", "retried", "lost"
FINISHED, STOPPED, FAILED = "finished", "stopped", "failed"


class StudyJournal:
    """What the trials of one task did so far.

    Args:
        file: JSON lines; made if it does not exist. A last line that a kill cut off is dropped.
        stability: the rule that a trial is judged by.
        iterations: that a trial has when it was not stopped early.

    Raises:
        CheckpointError: a line of the file cannot be read.
    """

    def __init__(self, file: Path, stability: StabilitySettings, iterations: int) -> None:
        self._file, self._rule, self._iterations = file, stability, iterations
        self._keys: dict[str, TrialKey] = {}
        self._curves: dict[str, dict[int, float]] = {}
        self._values: dict[str, dict[int, float]] = {}
        self._before: dict[str, float] = {}
        self._ends: dict[str, str] = {}
        self._repeated: dict[str, int] = {}
        self._read()

    # --- what happened -------------------------------------------------------------------------------------------

    def started(self, trial_id: str, key: TrialKey) -> None:
        """Note that Tune was given a trial."""
        self._note({"event": STARTED, "trial": trial_id, "key": asdict(key)})

    def result(self, trial_id: str, metrics: Mapping[str, Any]) -> None:
        """Note an iteration: ``metrics`` is flat; only success and evaluation are kept."""
        iteration = int(metrics["training_iteration"])
        if iteration > self._iterations:
            return  # one too many, when a kill came between a trial's end and Tune's note of it
        watched = {"success": self._rule.metric, "value": EVALUATION_SAMPLED, "before": EVALUATION_BEFORE_SAMPLED}
        values = {name: metrics.get(metric) for name, metric in watched.items()}
        known = {name: number for name, value in values.items() if (number := _finite(value)) is not None}
        self._note({"event": RESULT, "trial": trial_id, "iteration": iteration, **known})

    def ended(self, trial_id: str, how: str) -> None:
        """Note how a trial ended: finished, stopped or failed."""
        self._note({"event": ENDED, "trial": trial_id, "how": how})

    def retried(self, trial_id: str) -> None:
        """Note that a trial that ended goes on."""
        self._note({"event": RETRIED, "trial": trial_id})

    def lost(self, trial_id: str) -> None:
        """Note that a trial cannot go on; another one takes its place."""
        self._note({"event": LOST, "trial": trial_id})

    def drop_unknown(self, known_to_tune: Collection[str]) -> list[TrialKey]:
        """Note as lost, and return, the trials that Tune was given but had not written down when it was killed.

        One that has ended is not lost, though Tune's notes about it may be.
        """
        lost = [trial for trial in self._keys if trial not in known_to_tune and trial not in self._ends]
        keys = [self._keys[trial] for trial in lost]
        for trial in lost:
            self.lost(trial)
        return keys

    def drop_unfinished(self) -> list[TrialKey]:
        """Note as lost, and return, the trials that did not end."""
        return self.drop_unknown(())

    # --- what is known -------------------------------------------------------------------------------------------

    def keys(self) -> dict[str, TrialKey]:
        """Return trial id -> key of all trials that were started."""
        return dict(self._keys)

    def trial_ids(self) -> list[str]:
        """Return the ids of all trials that were started, in this order."""
        return list(self._keys)

    def running(self) -> list[str]:
        """Return the ids of the trials that have not ended."""
        return [trial for trial in self._keys if trial not in self._ends]

    def outcomes(self) -> dict[TrialKey, Outcome | None]:
        """Return what :class:`~tune_experiments.study_plan.StudyPlan` asks for."""
        return {key: self._outcome(trial) if trial in self._ends else None for trial, key in self._keys.items()}

    def how_ended(self, trial_id: str) -> str | None:
        """Return how a trial ended; None while it runs."""
        return self._ends.get(trial_id)

    def repeated(self, trial_id: str) -> int:
        """Return how many iterations of a trial were done again, after a kill."""
        return self._repeated.get(trial_id, 0)

    def stability(self, trial_id: str) -> Stability | None:
        """Return the verdict on a trial's curve; None without one."""
        curve = self._curves.get(trial_id, {})
        if not curve:
            return None
        rule = self._rule
        return stability_rule(
            [curve[i] for i in sorted(curve)],
            tail_fraction=rule.tail_fraction,
            threshold=rule.threshold,
            max_drop=rule.max_drop,
            start=self._before.get(trial_id),
        )

    def _outcome(self, trial_id: str) -> Outcome:
        verdict, values = self.stability(trial_id), self._values.get(trial_id, {})
        is_whole = self._ends[trial_id] == FINISHED and verdict is not None
        value = values[max(values)] if values else math.nan
        return Outcome(bool(is_whole and verdict and verdict.is_stable), value)

    # --- the file ------------------------------------------------------------------------------------------------

    def _note(self, event: dict[str, Any]) -> None:
        with self._file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(event) + "\n")
            out.flush()
            os.fsync(out.fileno())
        self._take(event)

    def _take(self, event: Mapping[str, Any]) -> None:
        trial = event["trial"]
        if event["event"] == STARTED:
            self._keys[trial] = TrialKey(**event["key"])
        elif event["event"] == RESULT:
            curve, iteration = self._curves.setdefault(trial, {}), int(event["iteration"])
            if iteration in curve:
                self._repeated[trial] = self._repeated.get(trial, 0) + 1
            if "success" in event:
                curve[iteration] = float(event["success"])
            if "before" in event:
                self._before[trial] = float(event["before"])
            if "value" in event:
                self._values.setdefault(trial, {})[iteration] = float(event["value"])
        elif event["event"] == ENDED:
            if event["how"] not in (FINISHED, STOPPED, FAILED):
                raise ValueError(f"how={event['how']!r}")
            self._ends[trial] = event["how"]
        elif event["event"] == RETRIED:
            self._ends.pop(trial, None)
        elif event["event"] == LOST:
            for known in (self._keys, self._curves, self._values, self._before, self._ends, self._repeated):
                known.pop(trial, None)
        else:
            raise ValueError(f"event={event['event']!r}")

    def _read(self) -> None:
        try:
            self._file.touch()
            text = self._file.read_bytes()
        except OSError as error:
            raise CheckpointError(f"{self._file} cannot be read: {error.strerror}.") from error
        whole = text[: text.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                if line.strip():
                    self._take(json.loads(line))
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
                raise CheckpointError(f"{self._file}, line {number} is not an event of a study: {error}") from error
        if whole != text:
            os.truncate(self._file, len(whole))  # never written anew, so that a kill now loses nothing either


def _finite(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None
