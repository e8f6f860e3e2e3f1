"""Collapse alarm: watches the metrics of each iteration and says which signal of a collapse came first, and when."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from numbers import Real
from statistics import fmean, median
from typing import Any

from arlarena_rllib.diagnostics import metric_names as names


@dataclass(frozen=True)
class AlarmThresholds:
    """When a signal counts as a collapse.

    Success, format and gradient limits describe the collapses of ARLArena 2602.21534 fig. 3; no number is published for
    any of them. All values are this project's choice.
    """

    success_drop: float = 0.2
    """Success: mean of the last `success_tail` iterations below the best such mean by more than this."""
    success_tail: int = 5
    """Iterations in that mean; one iteration's success is too noisy, its tasks are others each time."""
    evaluation_drop: float = 0.2
    """Sampled success on the fixed panel: below its best, the evaluation before training included, by more than this.

    The standard error of a difference of two evaluations is about 0.7 / sqrt(tasks x draws): 0.04 of 128 x 2 episodes,
    but 0.18 of 8 x 2.
    """
    format_drop: float = 0.1
    """Share of turns with a valid format: below its best by more than this."""
    grad_norm_factor: float = 10.0
    """Gradient norm before clipping: above this many times its running median ..."""
    grad_norm_iterations: int = 3
    """... in so many iterations in a row."""
    off_policy_kl_factor: float = 10.0
    """Off-policy KL (k3): above this many times its running median."""
    off_policy_kl_floor: float = 0.01
    """Off-policy KL up to this [nats per token] is no alarm, whatever the median."""
    ref_kl_factor: float = 10.0
    """KL to the reference: above this many times its running median."""
    ref_kl_floor: float = 0.1
    """Reference KL up to this [nats per token] is no alarm; it starts at 0 and may grow a long time."""
    kl_iterations: int = 1
    """Iterations in a row that a KL must be above its limit."""
    median_window: int = 100
    """Iterations before the present one that the running medians are taken over, at most ...

    A short window follows a slow explosion and never raises an alarm.
    """
    median_min: int = 5
    """... and at least; before that the medians raise no alarm."""
    nonfinite_steps: float = 0.0
    """Optimiser steps with a non-finite gradient in one iteration: more than this."""

    def __post_init__(self) -> None:
        """Check all values at once."""
        whole = ("success_tail", "grad_norm_iterations", "kl_iterations", "median_window", "median_min")
        problems = [
            f"{f.name}={value!r} must be a whole number from 1."
            if f.name in whole
            else f"{f.name}={value!r} must be a number from 0."
            for f in fields(self)
            if not _is_allowed(value := getattr(self, f.name), whole=f.name in whole)
        ]
        if not problems and self.median_min > self.median_window:
            problems.append(f"median_min={self.median_min} must not exceed median_window={self.median_window}.")
        if problems:
            raise ValueError("\n".join(problems))


@dataclass(frozen=True)
class AlarmSignal:
    """One signal at the moment it fired for the first time.

    Attributes:
        name: "nonfinite_steps", "grad_norm", "off_policy_kl", "ref_kl", "format", "evaluation" or "success".
        metric: name of the metric it watches.
        iteration: training iteration.
        value: what was compared (for "success" the tail mean).
        limit: what it was compared with.
    """

    name: str
    metric: str
    iteration: int
    value: float
    limit: float

    def __str__(self) -> str:
        """Return one sentence for logs."""
        side = "below" if self.value < self.limit else "above"
        return f"{self.name} at iteration {self.iteration}: {self.value:.4g} is {side} the limit {self.limit:.4g}"


@dataclass(frozen=True)
class AlarmReport:
    """What the alarm knows after an iteration.

    Attributes:
        iteration: the last one it was fed.
        signals: all signals that fired so far, once each, in the order in which they fired.
        new: those that fired in this iteration.
    """

    iteration: int
    signals: tuple[AlarmSignal, ...] = ()
    new: tuple[AlarmSignal, ...] = ()

    @property
    def first(self) -> AlarmSignal | None:
        """The signal that fired first, None as long as all is well."""
        return self.signals[0] if self.signals else None

    def as_metrics(self) -> dict[str, float]:
        """Return numbers to log: how many signals fired so far, and the iteration of the first (-1: none)."""
        return {
            "signals": float(len(self.signals)),
            "first_iteration": float(self.first.iteration if self.first else -1),
        }


class CollapseAlarm:
    """Fed once per iteration with a flat dict of metrics; remembers which signals of a collapse fired, and when.

    A metric that is absent or not finite leaves its signal as it is. Each signal fires once; of several in one
    iteration the one that tends to be the cause comes first (the order in `AlarmSignal.name`).

    Args:
        thresholds: None = the defaults.
    """

    def __init__(self, thresholds: AlarmThresholds | None = None) -> None:
        self.thresholds = thresholds or AlarmThresholds()
        t = self.thresholds
        kl = {"iterations": t.kl_iterations, "window": t.median_window, "least": t.median_min}
        self._rules: dict[str, tuple[tuple[str, ...], _Limit | _Jump | _Drop]] = {
            "nonfinite_steps": ((names.NONFINITE_STEPS,), _Limit(t.nonfinite_steps)),
            "grad_norm": (
                (names.GRAD_NORM,),
                _Jump(t.grad_norm_factor, 0.0, t.grad_norm_iterations, t.median_window, t.median_min),
            ),
            "off_policy_kl": ((names.OFF_POLICY_KL,), _Jump(t.off_policy_kl_factor, t.off_policy_kl_floor, **kl)),
            "ref_kl": ((names.REF_KL,), _Jump(t.ref_kl_factor, t.ref_kl_floor, **kl)),
            "format": ((names.FORMAT_VALID,), _Drop(t.format_drop, 1)),
            "evaluation": (
                (names.EVALUATION_BEFORE_SAMPLED, names.EVALUATION_SAMPLED),
                _Drop(t.evaluation_drop, 1),
            ),
            "success": ((names.SUCCESS,), _Drop(t.success_drop, t.success_tail)),
        }
        self._memory: dict[str, dict[str, Any]] = {name: {} for name in self._rules}
        self._report = AlarmReport(iteration=-1)

    @property
    def signal_names(self) -> tuple[str, ...]:
        """All signals that it watches for, in the order of `AlarmSignal.name`."""
        return tuple(self._rules)

    @property
    def report(self) -> AlarmReport:
        """What is known after the last iteration."""
        return self._report

    def update(self, iteration: int, metrics: Mapping[str, Any]) -> AlarmReport:
        """Return the report after one more iteration.

        Args:
            iteration: training iteration, >= 0, must grow from call to call.
            metrics: flat, e.g. ``{"env_runners/success_rate": 0.4, "learners/default_policy/grad_norm": 0.8}``.
        Raises:
            ValueError: the iteration does not come after the last one.
        """
        if iteration <= self._report.iteration:
            raise ValueError(
                f"iteration={iteration} was fed after {self._report.iteration}: feed each iteration once, in order, "
                "or restore the state of the checkpoint."
            )
        known = {signal.name for signal in self._report.signals}
        new = []
        for name, (watched, rule) in self._rules.items():
            for metric in watched:
                value = _finite_number(metrics.get(metric))
                if value is None:
                    continue
                seen, limit, fired = rule.judge(self._memory[name], value)
                if fired and name not in known:
                    new.append(AlarmSignal(name, metric, iteration, seen, limit))
        self._report = AlarmReport(iteration, (*self._report.signals, *new), tuple(new))
        return self._report

    def get_state(self) -> dict[str, Any]:
        """Return everything to go on from, for JSON; the thresholds belong to the configuration."""
        return {
            "iteration": self._report.iteration,
            "signals": [asdict(signal) for signal in self._report.signals],
            "memory": {name: dict(memory) for name, memory in self._memory.items()},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`get_state` returned."""
        signals = tuple(AlarmSignal(**signal) for signal in state["signals"])
        self._report = AlarmReport(int(state["iteration"]), signals)
        self._memory = {name: dict(state["memory"].get(name, {})) for name in self._rules}


def replay_alarm(history: Iterable[Mapping[str, Any]], thresholds: AlarmThresholds | None = None) -> AlarmReport:
    """Return what the alarm would have said about a finished run.

    Args:
        history: flat metrics per iteration, in order; the iteration is ``training_iteration``, else it counts from 1.
        thresholds: None = the defaults.
    """
    alarm = CollapseAlarm(thresholds)
    for number, metrics in enumerate(history, start=1):
        alarm.update(int(metrics.get(names.ITERATION, number)), metrics)
    return alarm.report


_Verdict = tuple[float, float, bool]
"""Compared value, its limit, whether the signal fires."""


@dataclass(frozen=True)
class _Limit:
    """Fires above a fixed number."""

    most: float

    def judge(self, memory: dict[str, Any], value: float) -> _Verdict:
        return value, self.most, value > self.most


@dataclass(frozen=True)
class _Jump:
    """Fires after some values in a row above factor x the median of the values before."""

    factor: float
    floor: float
    iterations: int
    window: int
    least: int

    def judge(self, memory: dict[str, Any], value: float) -> _Verdict:
        past: list[float] = memory.get("values", [])
        limit = max(self.factor * median(past), self.floor) if len(past) >= self.least else math.inf
        memory["in_a_row"] = memory.get("in_a_row", 0) + 1 if value > limit else 0
        memory["values"] = [*past, value][-self.window :]
        return value, limit, memory["in_a_row"] >= self.iterations


@dataclass(frozen=True)
class _Drop:
    """Fires when the mean of the last values is below the best such mean before by more than `drop`."""

    drop: float
    tail: int

    def judge(self, memory: dict[str, Any], value: float) -> _Verdict:
        memory["values"] = [*memory.get("values", []), value][-self.tail :]
        mean = fmean(memory["values"])
        if len(memory["values"]) < self.tail:
            return mean, -math.inf, False
        limit = memory["best"] - self.drop if "best" in memory else -math.inf
        memory["best"] = max(memory.get("best", mean), mean)
        return mean, limit, mean < limit


def _finite_number(value: Any) -> float | None:
    is_finite = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_finite else None


def _is_allowed(value: Any, *, whole: bool) -> bool:
    if whole:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 1
    return _finite_number(value) is not None and value >= 0
