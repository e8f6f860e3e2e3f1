"""RewardParts: a reward as a weighted sum of named parts, an environment's own and a user's."""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from env_connectors.arguments import nearest, shown
from env_connectors.errors import EnvConfigError, EnvContractError

RewardFn = Callable[[Mapping[str, Any]], float]
"""From what an environment tells of a turn or an episode (its `reward_facts`) to a number."""


class RewardParts:
    """Named parts with weights; what each one gave is kept apart, so that it can be logged.

    A name is one of the environment's own parts, or 'module:function' for a function of one's own, which is called with one
    mapping (the facts); that part is called by the function's name.
    """

    def __init__(self, weights: Mapping[str, float], own: Mapping[str, RewardFn], *, path: str = "reward") -> None:
        """Find the functions.

        Args:
            weights: name -> factor; 0 reports a part without paying for it.
            own: the environment's parts, name -> function.
            path: the argument, for messages.

        Raises:
            EnvConfigError: a name or a factor cannot be used, two parts have one name, or there is none at all.
        """
        if not isinstance(weights, Mapping) or not weights:
            raise EnvConfigError(
                f"{path}={shown(weights)} must name at least one part. Allowed: {', '.join(own)}, module:function."
            )
        self._parts: dict[str, tuple[float, RewardFn]] = {}
        for name, weight in weights.items():
            place = f"{path}.{name}={shown(weight)}"
            if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not _is_number(weight):
                raise EnvConfigError(f"{place} must be a finite number: the factor of this part.")
            label, function = _found(str(name), own, place)
            if label in self._parts:
                raise EnvConfigError(f"{place}: another part is called {label!r} already. Remedy: rename the function.")
            self._parts[label] = float(weight), function
        self.names = tuple(self._parts)

    def total(self, facts: Mapping[str, Any]) -> tuple[float, dict[str, float]]:
        """Return the reward, and what each part adds to it (value for a factor of 0): `reward_<name>` -> number.

        Raises:
            EnvContractError: a part raises, or is no finite number; the message names it.
        """
        total, told = 0.0, {}
        for name, (weight, function) in self._parts.items():
            try:
                value = function(facts)
            except Exception as error:
                raise EnvContractError(f"the reward part {name!r} raised {type(error).__name__}: {error}") from error
            if not _is_number(value):
                raise EnvContractError(f"the reward part {name!r} gave {shown(value)}; a part is a finite number.")
            total += weight * float(value)
            told[f"reward_{name}"] = float(value) * (weight or 1.0)
        if not math.isfinite(total):
            raise EnvContractError(f"the reward {total} is not finite; its parts are {told}.")
        return total, told


def _is_number(value: Any) -> bool:
    """Return whether a value is a finite number; a number of numpy or a tensor of one element is one, too."""
    if value is None or isinstance(value, (str, bytes)):
        return False
    try:
        return math.isfinite(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: a tensor of several elements
        return False


def _found(name: str, own: Mapping[str, RewardFn], place: str) -> tuple[str, RewardFn]:
    if name in own:
        return name, own[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise EnvConfigError(
            f"{place}: {name!r} is no part of the reward.{nearest(name, own)} Allowed: {', '.join(own)}, or "
            "'module:function' for one of your own."
        )
    try:
        function = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # a module of somebody else may raise anything
        kind = "" if isinstance(error, (ImportError, AttributeError)) else f"{type(error).__name__}: "
        raise EnvConfigError(f"{place}: {name!r} cannot be imported: {kind}{error}") from error
    if not callable(function):
        raise EnvConfigError(f"{place}: {name!r} is a {type(function).__name__}, not a function.")
    try:
        inspect.signature(function).bind({})
    except TypeError as error:
        raise EnvConfigError(
            f"{place}: {name!r} cannot be called with one mapping, the facts, e.g. facts['turns']: {error}."
        ) from error
    except ValueError:  # some functions of C tell no signature
        pass
    return attribute, function
