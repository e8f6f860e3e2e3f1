"""Stoppers for any `ray.tune.Tuner`: ends trials that are stable, have collapsed, spent their budget, or rest.

Tune saves a stopper with the experiment, and goes on with its memory after `Tuner.restore`. Iterations that a restored trial
does again are not counted again: the first value stands, and a trial ends where it was ended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from ray.tune import Stopper
from ray.tune.stopper import CombinedStopper
from ray.tune.utils.serialization import TuneFunctionDecoder

from arlarena_rllib.diagnostics import AlarmSignal, AlarmThresholds, CollapseAlarm
from arlarena_rllib.diagnostics.metric_names import EVALUATION_BEFORE_SAMPLED, SUCCESS
from arlarena_rllib.errors import CheckpointError
from arlarena_rllib.objectives import Stability, stability_rule
from tune_experiments.stopper_base import (
    OncePerIteration,
    finite,
    missing,
    near,
    not_choice,
    not_metric,
    not_number,
    not_whole,
    refuse,
)

AnyStopper = TypeVar("AnyStopper", bound=Stopper)


class StabilityStopper(OncePerIteration):
    """Ends each trial after `iterations` with a verdict of :func:`stability_rule`, and all once enough are stable.

    Results without the metric, or with one that is not finite, are left out of the curve; an evaluation before training
    (``evaluation_before``) counts for the best value. A trial that something else ends
    before gets no verdict.

    Args:
        iterations: training iterations of a trial, from 1.
        metric: success rate in [0, 1].
        tail_fraction: in (0, 1], as in the rule.
        threshold: > 0, as in the rule.
        max_drop: >= 0, as in the rule.
        stable_trials: after so many stable trials the experiment ends; None = never.

    Attributes:
        verdicts: by trial id.
    """

    def __init__(
        self,
        iterations: int,
        *,
        metric: str = SUCCESS,
        tail_fraction: float = 0.2,
        threshold: float = 2.5e-3,
        max_drop: float = 0.1,
        stable_trials: int | None = 1,
    ) -> None:
        refuse(
            self,
            not_whole("iterations", iterations, 1),
            not_metric(metric),
            not_number("tail_fraction", tail_fraction, "in (0, 1]", lambda value: 0 < value <= 1),
            not_number("threshold", threshold, "above 0", lambda value: value > 0),
            not_number("max_drop", max_drop, "from 0", lambda value: value >= 0),
            stable_trials is not None and not_whole("stable_trials", stable_trials, 1, "or None"),
        )
        super().__init__()
        self.iterations, self.metric, self.stable_trials = iterations, metric, stable_trials
        self.verdicts: dict[str, Stability] = {}
        self._rule = {"tail_fraction": tail_fraction, "threshold": threshold, "max_drop": max_drop}
        self._curves: dict[str, dict[int, float]] = {}
        self._starts: dict[str, float] = {}

    def judge(self, trial_id: str, iteration: int, metrics: Mapping[str, Any]) -> bool:
        """Take one more value of the curve; at its end give the verdict.

        Raises:
            ConfigError: the tail of the curve has no value.
        """
        curve = self._curves.setdefault(trial_id, {})
        if (value := finite(metrics.get(self.metric))) is not None:
            curve[iteration] = value
        if (before := finite(metrics.get(EVALUATION_BEFORE_SAMPLED))) is not None:
            self._starts[trial_id] = before
        if iteration < self.iterations:
            return False
        last, tail_fraction = max(curve, default=0), self._rule["tail_fraction"]
        if last <= round((1.0 - tail_fraction) * iteration, 9):
            raise missing(
                self,
                self.metric,
                metrics,
                f"has no finite value in the last {tail_fraction:.0%} of the {iteration} iterations of trial {trial_id} "
                f"({f'the last one is of iteration {last}' if last else 'nor before'})",
            )
        start = self._starts.pop(trial_id, None)
        self.verdicts[trial_id] = stability_rule(list(self._curves.pop(trial_id).values()), start=start, **self._rule)
        return True

    def stop_all(self) -> bool:
        """Say whether enough trials have ended stable."""
        stable = sum(verdict.is_stable for verdict in self.verdicts.values())
        return self.stable_trials is not None and stable >= self.stable_trials


class CollapseStopper(OncePerIteration):
    """Ends a trial when a signal of a :class:`CollapseAlarm` fires; each trial has its own alarm.

    The metrics are those of the alarm, whatever the trainable; a signal whose metric is absent stays silent.

    Args:
        thresholds: None = the defaults.
        signals: names of the signals that end a trial; None = any.
        grace: before this iteration a signal ends nothing; it is forgotten, so that it may fire again.
    """

    def __init__(
        self, thresholds: AlarmThresholds | None = None, *, signals: Sequence[str] | None = None, grace: int = 0
    ) -> None:
        known = CollapseAlarm().signal_names
        is_list = signals is None or (
            isinstance(signals, Sequence) and not isinstance(signals, str) and len(signals) > 0
        )
        refuse(
            self,
            not isinstance(thresholds, AlarmThresholds | None)
            and f"thresholds={thresholds!r} must be AlarmThresholds or None.",
            not is_list and f"signals={signals!r} must be a list of at least one of {', '.join(known)}, or None.",
            *(
                f"signals: {name!r} is not known.{near(name, known)} Allowed: {', '.join(known)}."
                for name in (signals if is_list and signals else ())
                if name not in known
            ),
            not_whole("grace", grace, 0),
        )
        super().__init__()
        self.thresholds, self.signals, self.grace = thresholds or AlarmThresholds(), tuple(signals or known), grace
        self._alarms: dict[str, CollapseAlarm] = {}
        self._causes: dict[str, AlarmSignal] = {}

    def judge(self, trial_id: str, iteration: int, metrics: Mapping[str, Any]) -> bool:
        """Feed the trial's alarm; the first of the chosen signals that fires ends the trial."""
        alarm = self._alarms.setdefault(trial_id, CollapseAlarm(self.thresholds))
        report = alarm.update(iteration, metrics)
        if iteration < self.grace:
            if report.new:
                alarm.set_state({**alarm.get_state(), "signals": []})
            return False
        cause = next((signal for signal in report.new if signal.name in self.signals), None)
        if cause is not None:
            self._causes[trial_id] = cause
        return cause is not None

    def signal_of(self, trial_id: str) -> AlarmSignal | None:
        """Return the signal that ended the trial, None for one that this stopper did not end."""
        return self._causes.get(trial_id)


class BudgetStopper(OncePerIteration):
    """Ends a trial, or all, when a metric that only grows has reached a budget.

    Args:
        budget: > 0, in the metric's unit.
        metric: e.g. "env_runners/num_env_steps_sampled_lifetime" or "time_total_s".
        per: "trial": each may spend it; "experiment": all trials together, those that have ended included.

    Attributes:
        spent: the metric's largest value, by trial id.
    """

    def __init__(self, budget: float, *, metric: str, per: Literal["trial", "experiment"] = "trial") -> None:
        refuse(
            self,
            not_number("budget", budget, "above 0", lambda value: value > 0),
            not_metric(metric),
            not_choice("per", per, ("trial", "experiment")),
        )
        super().__init__()
        self.budget, self.metric, self.per = budget, metric, per
        self.spent: dict[str, float] = {}

    def judge(self, trial_id: str, iteration: int, metrics: Mapping[str, Any]) -> bool:
        """Note what the trial has spent.

        Raises:
            ConfigError: the result has no such metric, so that no budget would hold.
        """
        if self.metric not in metrics:
            raise missing(self, self.metric, metrics, f"is not in iteration {iteration} of trial {trial_id}")
        self.spent[trial_id] = max(self.spent.get(trial_id, 0.0), finite(metrics[self.metric]) or 0.0)
        return self.stop_all() or (self.per == "trial" and self.spent[trial_id] >= self.budget)

    def stop_all(self) -> bool:
        """Say whether all trials together have spent the budget, if it is one for all."""
        return self.per == "experiment" and math.fsum(self.spent.values()) >= self.budget


class PlateauStopper(OncePerIteration):
    """Ends a trial when its best value has not risen (mode "min": fallen) for `patience` iterations.

    Ray's `TrialPlateauStopper` looks at the standard deviation instead, and finds no nested metric. A result without the
    metric, or with one that is not finite, is no improvement.

    Args:
        metric: name, joined by "/".
        mode: "max" or "min": which value is the better one.
        patience: iterations since the best value, from 1.
        min_delta: >= 0; only a step of more than this from the best value is an improvement.
        grace: before this iteration no trial ends.
    """

    def __init__(
        self,
        metric: str,
        *,
        mode: Literal["max", "min"] = "max",
        patience: int,
        min_delta: float = 0.0,
        grace: int = 0,
    ) -> None:
        refuse(
            self,
            not_metric(metric),
            not_choice("mode", mode, ("max", "min")),
            not_whole("patience", patience, 1),
            not_number("min_delta", min_delta, "from 0", lambda value: value >= 0),
            not_whole("grace", grace, 0),
        )
        super().__init__()
        self.metric, self.mode, self.patience, self.min_delta, self.grace = metric, mode, patience, min_delta, grace
        self._best: dict[str, tuple[float, int]] = {}

    def judge(self, trial_id: str, iteration: int, metrics: Mapping[str, Any]) -> bool:
        """Compare with the best value so far.

        Raises:
            ConfigError: there was not one value when patience came to its end.
        """
        best, since = self._best.setdefault(trial_id, (-math.inf, iteration))
        value = finite(metrics.get(self.metric))
        if value is not None:
            value = value if self.mode == "max" else -value
            if value - best > self.min_delta:
                best, since = self._best[trial_id] = value, iteration
        if iteration < self.grace or iteration - since < self.patience:
            return False
        if best == -math.inf:
            raise missing(
                self, self.metric, metrics, f"had no finite value in {iteration} iterations of trial {trial_id}"
            )
        return True


def stored_stopper(experiment: str | Path, kind: type[AnyStopper]) -> AnyStopper:
    """Return the stopper of this class as Tune last saved it with the experiment, also one of several.

    The one that was given to a Tuner knows nothing of what came after a restore: Tune goes on with the saved one.

    Args:
        experiment: local folder ``<storage_path>/<name>``. Its content is unpickled, so it must come from you.
        kind: e.g. ``StabilityStopper``.
    Raises:
        CheckpointError: nothing is saved there, it cannot be read, or the experiment has no such stopper.
    """
    states = sorted(Path(experiment).glob("experiment_state-*.json"))
    if not states:
        raise CheckpointError(f"{experiment} holds no experiment of Tune: there is no experiment_state-*.json in it.")
    decoder = TuneFunctionDecoder(allow_cloudpickle=True)
    try:
        stopper = decoder.decode(states[-1].read_text())["runner_data"]["_stopper"]
    except ValueError as error:
        raise CheckpointError(f"{states[-1]} cannot be read, Tune may be writing it: {error}.") from error
    found = _flat_stoppers(stopper)
    for one in found:
        if isinstance(one, kind):
            return one
    names = ", ".join(type(one).__name__ for one in found)
    raise CheckpointError(f"{experiment} was run without a {kind.__name__}. Its stoppers: {names}.")


def _flat_stoppers(stopper: Stopper) -> list[Stopper]:
    if not isinstance(stopper, CombinedStopper):
        return [stopper]
    return [one for part in stopper._stoppers for one in _flat_stoppers(part)]
