"""What the stoppers share: each iteration is judged once, also after a restore, and arguments are checked all at once."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

from ray.tune import Stopper
from ray.tune.utils import flatten_dict

from arlarena_rllib.diagnostics.metric_names import ITERATION, SUCCESS
from arlarena_rllib.errors import ConfigError
from tune_experiments.mlflow_names import BOOKKEEPING_KEYS, as_number


class OncePerIteration(Stopper):
    """Base: :meth:`judge` is asked once per trial and iteration, in order; what it ended ends there again.

    A trial that is restored from a checkpoint before its end does the iterations between once more.
    """

    def __init__(self) -> None:
        self._last_iteration: dict[str, int] = {}
        self._ended: dict[str, int] = {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Say whether the trial ends."""
        iteration = int(result.get(ITERATION, 0))  # absent when a function returns without a report
        if trial_id not in self._ended and iteration > self._last_iteration.get(trial_id, 0):
            metrics = flatten_dict({key: value for key, value in result.items() if key != "config"}, delimiter="/")
            if self.judge(trial_id, iteration, metrics):
                self._ended[trial_id] = iteration
            self._last_iteration[trial_id] = iteration
        return iteration >= self._ended.get(trial_id, iteration + 1)

    def judge(self, trial_id: str, iteration: int, metrics: Mapping[str, Any]) -> bool:
        """Say whether the trial ends with this iteration; the metrics are flat, their names joined by "/"."""
        raise NotImplementedError

    def stop_all(self) -> bool:
        """Never end the experiment as a whole."""
        return False


def finite(value: Any) -> float | None:
    """Return a number of a result as ``float``, None for one that is not finite and for anything else."""
    number = as_number(value)
    return number if number is not None and math.isfinite(number) else None


def near(name: Any, known: Sequence[str]) -> str:
    """Return ``" Nearest: 'x', 'y'."`` for up to three known names, or ``""`` when nothing is close."""
    matches = difflib.get_close_matches(str(name), known, n=3, cutoff=0.5)
    return f" Nearest: {', '.join(map(repr, matches))}." if matches else ""


def missing(stopper: Stopper, metric: str, metrics: Mapping[str, Any], what: str) -> ConfigError:
    """Return the error for a metric without a value: what is wrong, and which names of the result are near."""
    if metric in metrics:
        return ConfigError(f"{type(stopper).__name__}: metric={metric!r} {what}; here it is {metrics[metric]!r}.")
    known = [name for name in metrics if name not in BOOKKEEPING_KEYS and as_number(metrics[name]) is not None]
    names = near(metric, known) or f" The result has: {', '.join(known[:8])}{', ...' if len(known) > 8 else ''}."
    return ConfigError(f"{type(stopper).__name__}: metric={metric!r} {what}.{names}")


def refuse(stopper: Stopper, *problems: str | bool | None) -> None:
    """Raise one :class:`ConfigError` with all problems that are sentences."""
    found = [problem for problem in problems if isinstance(problem, str)]
    if found:
        raise ConfigError("\n".join(f"{type(stopper).__name__}: {problem}" for problem in found))


def not_whole(name: str, value: Any, least: int, other: str = "") -> str | None:
    """Return what is wrong with a whole number, None when nothing is."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return None
    return f"{name}={value!r} must be a whole number from {least}{f' {other}' if other else ''}."


def not_number(name: str, value: Any, allowed: str, is_allowed: Callable[[float], bool]) -> str | None:
    """Return what is wrong with a finite number, None when nothing is."""
    if isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value) and is_allowed(float(value)):
        return None
    return f"{name}={value!r} must be a number {allowed}."


def not_metric(metric: Any) -> str | None:
    """Return what is wrong with the name of a metric, None when nothing is."""
    if isinstance(metric, str) and metric:
        return None
    return f"metric={metric!r} must be a name such as {SUCCESS!r}, its parts joined by '/'."


def not_choice(name: str, value: Any, allowed: Sequence[str]) -> str | None:
    """Return what is wrong with one of a few words, None when nothing is."""
    return None if value in allowed else f"{name}={value!r} is not known. Allowed: {', '.join(allowed)}."
