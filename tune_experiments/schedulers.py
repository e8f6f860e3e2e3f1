"""Tune's ASHA inside a study: trials that fall behind end early."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ray import tune
from ray.tune.schedulers import ASHAScheduler, TrialScheduler

from arlarena_rllib.errors import ConfigError, nearest

ASHA = "asha"
_OURS = ("self", "metric", "mode", "time_attr", "stop_last_trials")
TIME = "training_iteration"


def check_scheduler(given: Mapping[str, Any], place: str) -> None:
    """Raise ConfigError when :func:`build_scheduler` could not use ``given``, the section ``study.scheduler``."""
    try:
        build_scheduler(given, metric="m")
    except ConfigError as error:
        raise ConfigError(f"{error} ({place})") from None


def build_scheduler(given: Mapping[str, Any], *, metric: str) -> TrialScheduler:
    """Return Tune's scheduler.

    Population-based training is none of them: Tune refuses it together with a searcher, which a study is.

    Args:
        given: ``type: asha`` and arguments of Tune's class, in iterations where they are times.
        metric: flat name of the metric that trials are compared by; larger is better.

    Raises:
        ConfigError: unknown type or argument, or values that Tune refuses.
    """
    kind = given.get("type")
    if kind != ASHA:
        raise ConfigError(f"study.scheduler.type={kind!r} is not known. Allowed: {ASHA}.")
    allowed = set(inspect.signature(ASHAScheduler.__init__).parameters) - set(_OURS)
    arguments = {key: value for key, value in given.items() if key != "type"}
    for key, value in arguments.items():
        if key not in allowed:
            raise ConfigError(
                f"study.scheduler.{key} is not an argument of ASHAScheduler.{nearest(key, allowed)} "
                f"Allowed: {', '.join(sorted(allowed))}."
            )
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value <= 1_000_000:
            raise ConfigError(f"study.scheduler.{key}={value!r} must be a number from 1 to 1000000.")
    try:
        return ASHAScheduler(time_attr=TIME, metric=metric, mode="max", **arguments)
    except (TypeError, ValueError, AssertionError, tune.TuneError) as error:
        raise ConfigError(f"study.scheduler: ASHAScheduler refuses {arguments!r}: {error}") from error
