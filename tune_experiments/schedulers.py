"""Tune's schedulers inside a study: ASHA ends trials that fall behind, PBT lets them take over from better ones."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ray import tune
from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining, TrialScheduler

from arlarena_rllib.config import ARLArenaConfig, section_of
from arlarena_rllib.errors import ConfigError, nearest

ASHA, PBT = "asha", "pbt"
_CLASSES: dict[str, type[TrialScheduler]] = {ASHA: ASHAScheduler, PBT: PopulationBasedTraining}
_OURS = (
    "metric",
    "mode",
    "time_attr",
    "hyperparam_mutations",
    "custom_explore_fn",
    "stop_last_trials",
    "require_attrs",
)
MUTATIONS = "mutations"
TIME = "training_iteration"


def check_scheduler(given: Mapping[str, Any], place: str) -> None:
    """Raise ConfigError when :func:`build_scheduler` could not use ``given``, the section ``study.scheduler``."""
    try:
        build_scheduler(given, metric="m")
    except ConfigError as error:
        raise ConfigError(f"{error} ({place})") from None


def build_scheduler(given: Mapping[str, Any], *, metric: str) -> TrialScheduler:
    """Return Tune's scheduler.

    Args:
        given: ``type`` (asha or pbt) and arguments of Tune's class, in iterations where they are times. PBT also needs
            ``mutations``: ``training.<key>`` -> a list of values, or ``{min: a, max: b}`` (drawn log-uniformly).
        metric: flat name of the metric that trials are compared by; larger is better.

    Raises:
        ConfigError: unknown type or argument, a mutation of something that is no setting of ``training``, or values that
            Tune refuses.
    """
    kind = given.get("type")
    if kind not in _CLASSES:
        raise ConfigError(f"study.scheduler.type={kind!r} is not known. Allowed: {', '.join(_CLASSES)}.")
    cls = _CLASSES[kind]
    allowed = set(inspect.signature(cls.__init__).parameters) - {"self", *_OURS}
    allowed |= {MUTATIONS} if kind == PBT else set()
    arguments = {key: value for key, value in given.items() if key != "type"}
    for key in arguments:
        if key not in allowed:
            raise ConfigError(
                f"study.scheduler.{key} is not an argument of {cls.__name__}.{nearest(key, allowed)} "
                f"Allowed: {', '.join(sorted(allowed))}."
            )
    if kind == PBT:
        arguments["hyperparam_mutations"] = _mutations(arguments.pop(MUTATIONS, None))
        arguments["require_attrs"] = False  # the metric comes with an evaluation only, not every iteration
    try:
        return cls(time_attr=TIME, metric=metric, mode="max", **arguments)
    except (TypeError, ValueError, AssertionError, tune.TuneError) as error:
        raise ConfigError(f"study.scheduler: {cls.__name__} refuses {arguments!r}: {error}") from error


def _mutations(given: Any) -> dict[str, Any]:
    where = f"study.scheduler.{MUTATIONS}"
    if not isinstance(given, Mapping) or not given:
        raise ConfigError(f"{where}={given!r} must name at least one setting, as training.lr: [1e-4, 3e-4].")
    return {_training_key(key, where): _space(value, f"{where}.{key}") for key, value in given.items()}


def _training_key(key: Any, where: str) -> str:
    section, _, name = str(key).partition(".")
    if section != "training" or section_of(name) != "training":
        known = [f"training.{name}" for name in ARLArenaConfig.known_keys() if section_of(name) == "training"]
        raise ConfigError(f"{where}.{key} is not a setting of training.{nearest(str(key), known)}")
    return name


def _space(value: Any, where: str) -> Any:
    if isinstance(value, list) and value:
        return value
    if isinstance(value, Mapping) and set(value) == {"min", "max"} and 0 < value["min"] < value["max"]:
        return tune.loguniform(float(value["min"]), float(value["max"]))
    raise ConfigError(f"{where}={value!r} must be a list of values, or {{min: a, max: b}} with 0 < a < b.")
