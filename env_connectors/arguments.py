"""Constructor arguments of registered environments, checked by name before the environment is made."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import gymnasium
from gymnasium.envs.registration import load_env_creator

from env_connectors.errors import EnvConfigError

_MOST_SHOWN = 200


def env_creator(env_id: str) -> Callable[..., Any]:
    """Return the class or function behind an id; 'module:id' imports the module first.

    Raises:
        gymnasium.error.Error: the id is not registered.
        ImportError: a module cannot be imported.
        AttributeError: the module has no such class.
    """
    module, _, registered = env_id.rpartition(":")
    if module:
        importlib.import_module(module)
    entry_point = gymnasium.spec(registered).entry_point
    return load_env_creator(entry_point) if isinstance(entry_point, str) else cast(Callable[..., Any], entry_point)


def check_arguments(path: str, creator: Callable[..., Any], config: Mapping[str, Any]) -> None:
    """Refuse an argument that ``creator`` does not take, and a render_mode that Gymnasium could not read.

    Raises:
        EnvConfigError: with the key below ``path``, the nearest and the allowed arguments.
    """
    if not isinstance(mode := config.get("render_mode"), (str, type(None))):
        raise EnvConfigError(f"{path}.render_mode={mode!r} is not allowed. Allowed: None or a name.")
    parameters = inspect.signature(creator).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for key, value in config.items():
        if key not in parameters:
            raise EnvConfigError(
                f"{path}.{key}={value!r} is not an argument of {creator.__name__}.{nearest(key, parameters)} "
                f"Allowed: {', '.join(parameters)}."
            )


def check_whole(key: str, value: Any, least: int | None = None, most: int | None = None) -> None:
    """Refuse a value that is no whole number, or not within its bounds (None = none); True and False are no numbers.

    Raises:
        EnvConfigError: with the key, the value and what is allowed.
    """
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or (least is not None and value < least) or (most is not None and value > most):
        bounds = "".join(f" {word} {bound}" for word, bound in (("from", least), ("to", most)) if bound is not None)
        raise EnvConfigError(f"{key}={shown(value)} is not allowed. Allowed: whole numbers{bounds}.")


def check_flag(key: str, value: Any) -> None:
    """Refuse a value that is neither True nor False: texts like 'false' count as true in Python.

    Raises:
        EnvConfigError: with the key, the value and what is allowed.
    """
    if not isinstance(value, bool):
        raise EnvConfigError(f"{key}={shown(value)} is not allowed. Allowed: true, false.")


def shown(value: Any) -> str:
    """Return a value as a message shows it: of a long one the beginning."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no integers of more than 4300 digits
        text = f"a {type(value).__name__} too long to be shown"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def nearest(name: Any, allowed: Iterable[str]) -> str:
    """Return ``" Nearest: 'x'."`` for the closest allowed name, or ``""`` when nothing is close."""
    match = difflib.get_close_matches(str(name), list(allowed), n=1, cutoff=0.5)
    return f" Nearest: {match[0]!r}." if match else ""
