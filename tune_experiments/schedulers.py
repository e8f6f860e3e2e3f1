"""Tune's schedulers inside a study: ASHA ends trials that fall behind, PBT lets them go on from better ones."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ray import tune
from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining, TrialScheduler

from arlarena_rllib.errors import ConfigError, nearest
from arlarena_rllib.objectives import AXES
from tune_experiments.population import MUTATIONS, StudyPopulation, flat_mutations

ASHA, PBT = "asha", "pbt"
_ASHA_ARGUMENTS = set(inspect.signature(ASHAScheduler.__init__).parameters) - {
    *("self", "metric", "mode", "time_attr", "stop_last_trials"),
}
_PBT_ARGUMENTS = {
    *("perturbation_interval", "burn_in_period", "quantile_fraction", "resample_probability", "synch", MUTATIONS),
}
TIME = "training_iteration"
_COUNTS = (1, 1_000_000)
_RANGES: dict[str, tuple[float, float]] = {
    "quantile_fraction": (1e-6, 0.5),
    "resample_probability": (0, 1),
    "reduction_factor": (1.000001, 1_000_000),
    "brackets": (1, 100),
}
"""Smallest and largest value of what is no number of iterations."""
_FIXED = ("method", "task", *AXES)
"""Keys of section ``training`` that make another method: a checkpoint of one need not fit the other."""


def check_scheduler(given: Mapping[str, Any], place: str) -> None:
    """Raise ConfigError when :func:`build_scheduler` could not use ``given``, the section ``study.scheduler``."""
    try:
        build_scheduler(given, metric="m")
    except ConfigError as error:
        raise ConfigError(f"{error} ({place})") from None


def build_scheduler(given: Mapping[str, Any], *, metric: str) -> TrialScheduler:
    """Return Tune's scheduler.

    Args:
        given: ``type: asha`` and arguments of Tune's class, in iterations where they are times; or ``type: pbt``, arguments of
            Tune's class, and ``mutations``: ``training.key`` -> values, in order, that it may take.
        metric: flat name of the metric that trials are compared by; larger is better.

    Raises:
        ConfigError: unknown type or argument, or values that Tune refuses.
    """
    kind = given.get("type")
    arguments = {key: value for key, value in given.items() if key != "type"}
    if kind == ASHA:
        _check_arguments(arguments, _ASHA_ARGUMENTS, ASHAScheduler)
        return _built(ASHAScheduler, time_attr=TIME, metric=metric, mode="max", **arguments)
    if kind == PBT:
        mutations = _mutations(arguments.pop(MUTATIONS, None))
        _check_arguments(arguments, _PBT_ARGUMENTS, PopulationBasedTraining)
        return _built(
            StudyPopulation,
            time_attr=TIME,
            metric=metric,
            mode="max",
            hyperparam_mutations=mutations,
            require_attrs=False,  # not every iteration has an evaluation
            **arguments,
        )
    raise ConfigError(f"study.scheduler.type={kind!r} is not known. Allowed: {ASHA}, {PBT}.")


def _check_arguments(arguments: Mapping[str, Any], allowed: set[str], of: type) -> None:
    for key, value in arguments.items():
        if key not in allowed:
            raise ConfigError(
                f"study.scheduler.{key} is not an argument of {of.__name__}.{nearest(key, allowed)} "
                f"Allowed: {', '.join(sorted(allowed))}."
            )
        if key == "synch":
            wanted = "" if isinstance(value, bool) else "true or false"
        else:
            low, high = _RANGES.get(key, _COUNTS)
            kinds = (int,) if key == "brackets" else (int, float)
            is_right = isinstance(value, kinds) and not isinstance(value, bool) and low <= value <= high
            wanted = "" if is_right else f"a {'whole ' if key == 'brackets' else ''}number from {low:g} to {high:g}"
        if wanted:
            raise ConfigError(f"study.scheduler.{key}={value!r} must be {wanted}.")


def _mutations(given: Any) -> dict[str, list[Any]]:
    name = f"study.scheduler.{MUTATIONS}"
    if not isinstance(given, Mapping) or not given:
        raise ConfigError(f"{name}={given!r} must be a mapping: training.key -> list of values that it may take.")
    for key, values in given.items():
        if (
            not isinstance(key, str)
            or not key.startswith("training.")
            or not isinstance(values, list)
            or len(values) < 2
            or any(value in values[:number] for number, value in enumerate(values))
        ):
            raise ConfigError(
                f"{name}: {key!r}: {values!r} must be a key of section training, with a list of two values or more, all "
                "different."
            )
        if key.partition(".")[2] in _FIXED:
            raise ConfigError(
                f"{name}: {key!r} does not mutate: the members of a population exchange checkpoints, so all have one method. "
                "Compare methods as arms."
            )
    return flat_mutations(given)


def _built(kind: type[TrialScheduler], **arguments: Any) -> TrialScheduler:
    try:
        return kind(**arguments)
    except (TypeError, ValueError, AssertionError, tune.TuneError) as error:
        given = {
            key: value
            for key, value in arguments.items()
            if key not in ("time_attr", "metric", "mode", "require_attrs")
        }
        raise ConfigError(f"study.scheduler: {kind.__name__} refuses {given!r}: {error}") from error
