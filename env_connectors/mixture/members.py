"""Reads `env_config.envs` of a mixture: names, environments and weights, with the key path in every complaint."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium

from env_connectors.arguments import check_arguments, env_creator, nearest
from env_connectors.errors import EnvConfigError, EnvConnectorError
from env_connectors.text_env import TextEnv, make_text_env

PATH = "env_config.envs"
_FORM = "name: {env: id, weight: number > 0, config: {argument: value}}"
_KEYS = ("env", "weight", "config")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Member:
    """One entry of `envs`: a Gymnasium id, its weight, and the arguments of its constructor."""

    name: str
    env: str
    weight: float = 1
    config: Mapping[str, Any] = field(default_factory=dict)

    def make(self) -> TextEnv:
        """Return the environment.

        Raises:
            EnvConfigError: it cannot be made so; the message names the key.
        """
        check_arguments(f"{PATH}.{self.name}.config", _load(self.name, self.env), self.config)
        try:
            return make_text_env(self.env, **self.config)
        except (gymnasium.error.Error, TypeError, ValueError, EnvConnectorError) as error:
            raise EnvConfigError(f"{PATH}.{self.name}.config={dict(self.config)!r}: {error}") from error


def read_members(envs: Any) -> list[Member]:
    """Return the entries, sorted by name, so that their order in a file means nothing.

    Raises:
        EnvConfigError: no entry, or one that is not of the form.
    """
    if not isinstance(envs, Mapping) or not envs:
        raise EnvConfigError(f"{PATH}={envs!r} names no environment. Allowed: one or more of {_FORM}.")
    return [_read(name, envs[name]) for name in sorted(envs, key=str)]


def _read(name: Any, entry: Any) -> Member:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise EnvConfigError(f"{PATH}: the name {name!r} is not allowed. Allowed: letters, digits, '_', '-' and '.'.")
    if not isinstance(entry, Mapping):
        raise EnvConfigError(f"{PATH}.{name}={entry!r} is not a mapping. Allowed: {_FORM}.")
    for key in entry:
        if key not in _KEYS:
            raise EnvConfigError(f"{PATH}.{name}.{key} is not known.{nearest(key, _KEYS)} Allowed: {', '.join(_KEYS)}.")
    member = Member(name, **entry) if "env" in entry else Member(name, "")
    if not isinstance(member.env, str) or not member.env:
        raise EnvConfigError(f"{PATH}.{name}.env={entry.get('env')!r} is not an id, e.g. 'arlarena/Guess-v0'.")
    if ":" in member.env and not all(member.env.rpartition(":")):
        raise EnvConfigError(
            f"{PATH}.{name}.env={member.env!r} is not an id. Allowed: 'id', or 'module:id' for your own."
        )
    is_number = isinstance(member.weight, (int, float)) and not isinstance(member.weight, bool)
    if not is_number or not math.isfinite(member.weight) or member.weight <= 0:
        raise EnvConfigError(f"{PATH}.{name}.weight={member.weight!r} is not allowed. Allowed: numbers > 0.")
    if not isinstance(member.config, Mapping):
        raise EnvConfigError(f"{PATH}.{name}.config={member.config!r} is not a mapping of constructor arguments.")
    return member


def _load(name: str, env_id: str) -> Callable[..., Any]:
    """Return the class behind an id."""
    try:
        return env_creator(env_id)
    except (gymnasium.error.Error, ImportError, AttributeError) as error:
        registered = env_id.rpartition(":")[2]
        hint = "" if registered in gymnasium.registry else nearest(registered, gymnasium.registry)
        raise EnvConfigError(f"{PATH}.{name}.env={env_id!r} cannot be made: {error}{hint}") from error
