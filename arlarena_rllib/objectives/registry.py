"""Registry of one axis: choice name -> function, together with the parameters that the choice reads."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

F = TypeVar("F")

NEEDS: dict[str, str] = {
    "groups": "several episodes of each task",
    "anchors": "a state key of every turn",
    "anchor_texts": "the text of every turn's state",
    "turns": "reward and validity of every turn",
    "turn_rows": "one row per turn",
    "trajectories": "all rows of a trajectory in one minibatch",
    "mask": "which tokens the policy sampled",
    "entropy": "the old policy's entropy at each token",
    "old_logp": "the old policy's log-prob of each token",
    "ref_logp": "the reference policy's log-prob of each token",
    "values": "a critic's value at each token, and which episodes were truncated",
    "prefixes": "which tokens several trajectories share",
    "row_advantages": "one advantage for all tokens of a row",
}
"""What a choice can demand of the rows, and what that is."""
SCORED_NEEDS: frozenset[str] = frozenset({"entropy", "old_logp", "ref_logp", "values"})
"""Needs that only a scoring pass of the learner can fill; it must come before the choice is applied."""


class UnknownChoiceError(ValueError):
    """A name was looked up that no one registered; the message carries key, value, nearest and allowed names."""


def unknown_choice(key: str, value: object, allowed: Iterable[str]) -> UnknownChoiceError:
    """Return the error for a value that is not among the allowed names, with the nearest one if any is close."""
    names = sorted(allowed)
    close = difflib.get_close_matches(str(value), names, n=1, cutoff=0.4)
    nearest = f" Nearest: {close[0]!r}." if close else ""
    return UnknownChoiceError(f"{key}={value!r} is not known.{nearest} Allowed: {', '.join(names)}.")


@dataclass(frozen=True)
class _Choice(Generic[F]):
    function: F
    reads: frozenset[str]
    needs: frozenset[str]
    rules_out: frozenset[str]


class Registry(Generic[F]):
    """Named choices of one axis of the method grid.

    `reads` lists the `ObjectiveSpec` parameters that a choice looks at; it drives the error for a setting that is set
    but read by nobody. `needs` lists what the rows must carry for it (keys of `NEEDS`), `rules_out` what
    they cannot carry with it, so that an impossible combination is refused before anything starts.

    Args:
        axis: the `ObjectiveSpec` field that selects a choice, e.g. ``"clipping"``.
    """

    def __init__(self, axis: str) -> None:
        self.axis = axis
        self._choices: dict[str, _Choice[F]] = {}

    def register(
        self, name: str, *, reads: Iterable[str] = (), needs: Iterable[str] = (), rules_out: Iterable[str] = ()
    ) -> Callable[[F], F]:
        """Return a decorator that stores a function under `name`.

        Raises:
            ValueError: `name` is taken already.
            UnknownChoiceError: what it needs or rules out is not a key of `NEEDS`.
        """
        if name in self._choices:
            raise ValueError(f"{self.axis} {name!r} is registered already; choose another name.")
        demanded, excluded = frozenset(needs), frozenset(rules_out)
        for need in sorted((demanded | excluded) - set(NEEDS)):
            raise unknown_choice(f"need of {self.axis} {name!r}", need, NEEDS)

        def store(function: F) -> F:
            self._choices[name] = _Choice(function, frozenset(reads), demanded, excluded)
            return function

        return store

    def get(self, name: str) -> F:
        """Return the function of a choice.

        Raises:
            UnknownChoiceError: nobody registered `name`.
        """
        return self._entry(name).function

    def reads(self, name: str) -> frozenset[str]:
        """Return the parameter names that a choice reads.

        Raises:
            UnknownChoiceError: nobody registered `name`.
        """
        return self._entry(name).reads

    def needs(self, name: str) -> frozenset[str]:
        """Return what the rows must carry for a choice, keys of `NEEDS`.

        Raises:
            UnknownChoiceError: nobody registered `name`.
        """
        return self._entry(name).needs

    def rules_out(self, name: str) -> frozenset[str]:
        """Return what the rows cannot carry with a choice, keys of `NEEDS`.

        Raises:
            UnknownChoiceError: nobody registered `name`.
        """
        return self._entry(name).rules_out

    def readers(self, key: str) -> list[str]:
        """Return the choices that read parameter `key`, sorted."""
        return sorted(name for name, choice in self._choices.items() if key in choice.reads)

    def names(self) -> list[str]:
        """Return all registered names, sorted."""
        return sorted(self._choices)

    def _entry(self, name: str) -> _Choice[F]:
        if not isinstance(name, str) or name not in self._choices:
            raise unknown_choice(self.axis, name, self._choices)
        return self._choices[name]
