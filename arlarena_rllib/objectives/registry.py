"""Registry of one axis: choice name -> function, together with the parameters that the choice reads."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

F = TypeVar("F")


class UnknownChoiceError(ValueError):
    """A name was looked up that no one registered; the message carries key, value, nearest and allowed names."""


def unknown_choice(key: str, value: object, allowed: Iterable[str]) -> UnknownChoiceError:
    """Return the error for a value that is not among the allowed names, with the nearest one if any is close."""
    names = sorted(allowed)
    close = difflib.get_close_matches(str(value), names, n=1, cutoff=0.4)
    nearest = f" Nearest: {close[0]!r}." if close else ""
    return UnknownChoiceError(f"{key}={value!r} is not known.{nearest} Allowed: {', '.join(names)}.")


class Registry(Generic[F]):
    """Named choices of one axis of the method grid.

    `reads` lists the `ObjectiveSpec` parameters that a choice looks at; it drives the error for a setting that is set
    but read by nobody.

    Args:
        axis: the `ObjectiveSpec` field that selects a choice, e.g. ``"clipping"``.
    """

    def __init__(self, axis: str) -> None:
        self.axis = axis
        self._choices: dict[str, tuple[F, frozenset[str]]] = {}

    def register(self, name: str, *, reads: Iterable[str] = ()) -> Callable[[F], F]:
        """Return a decorator that stores a function under `name`.

        Raises:
            ValueError: `name` is taken already.
        """
        if name in self._choices:
            raise ValueError(f"{self.axis} {name!r} is registered already; choose another name.")

        def store(function: F) -> F:
            self._choices[name] = (function, frozenset(reads))
            return function

        return store

    def get(self, name: str) -> F:
        """Return the function of a choice.

        Raises:
            UnknownChoiceError: nobody registered `name`.
        """
        return self._entry(name)[0]

    def reads(self, name: str) -> frozenset[str]:
        """Return the parameter names that a choice reads.

        Raises:
            UnknownChoiceError: nobody registered `name`.
        """
        return self._entry(name)[1]

    def readers(self, key: str) -> list[str]:
        """Return the choices that read parameter `key`, sorted."""
        return sorted(name for name, (_, reads) in self._choices.items() if key in reads)

    def names(self) -> list[str]:
        """Return all registered names, sorted."""
        return sorted(self._choices)

    def _entry(self, name: str) -> tuple[F, frozenset[str]]:
        if not isinstance(name, str) or name not in self._choices:
            raise unknown_choice(self.axis, name, self._choices)
        return self._choices[name]
