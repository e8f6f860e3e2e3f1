"""Reads `env_config.envs` of a mixture: names, environments and weights, with the key path in every complaint."""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import gymnasium
from gymnasium.envs.registration import load_env_creator

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
        _check_arguments(self.name, _load(self.name, self.env), self.config)
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
            raise EnvConfigError(
                f"{PATH}.{name}.{key} is not known.{_nearest(key, _KEYS)} Allowed: {', '.join(_KEYS)}."
            )
    member = Member(name, **entry) if "env" in entry else Member(name, "")
    if not isinstance(member.env, str) or not member.env:
        raise EnvConfigError(f"{PATH}.{name}.env={entry.get('env')!r} is not an id, e.g. 'arlarena/Guess-v0'.")
    is_number = isinstance(member.weight, (int, float)) and not isinstance(member.weight, bool)
    if not is_number or not math.isfinite(member.weight) or member.weight <= 0:
        raise EnvConfigError(f"{PATH}.{name}.weight={member.weight!r} is not allowed. Allowed: numbers > 0.")
    if not isinstance(member.config, Mapping):
        raise EnvConfigError(f"{PATH}.{name}.config={member.config!r} is not a mapping of constructor arguments.")
    return member


def _load(name: str, env_id: str) -> Callable[..., Any]:
    """Return the class behind an id; 'module:id' imports the module first."""
    module, _, registered = env_id.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        entry_point = gymnasium.spec(registered).entry_point
        return load_env_creator(entry_point) if isinstance(entry_point, str) else cast(Callable[..., Any], entry_point)
    except (gymnasium.error.Error, ImportError, AttributeError) as error:
        hint = "" if registered in gymnasium.registry else _nearest(registered, gymnasium.registry)
        raise EnvConfigError(f"{PATH}.{name}.env={env_id!r} cannot be made: {error}{hint}") from error


def _check_arguments(name: str, creator: Callable[..., Any], config: Mapping[str, Any]) -> None:
    parameters = inspect.signature(creator).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for key, value in config.items():
        if key not in parameters:
            raise EnvConfigError(
                f"{PATH}.{name}.config.{key}={value!r} is not an argument of {creator.__name__}."
                f"{_nearest(key, parameters)} Allowed: {', '.join(parameters)}."
            )


def _nearest(name: Any, allowed: Iterable[str]) -> str:
    match = difflib.get_close_matches(str(name), list(allowed), n=1, cutoff=0.5)
    return f" Nearest: {match[0]!r}." if match else ""
