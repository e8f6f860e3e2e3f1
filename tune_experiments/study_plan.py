"""Which trial of a study comes next: search every arm for a stable setting, then confirm it on fresh seeds. No Ray.

An arm with one setting has nothing to search for; it goes straight to the confirmation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SEARCH, CONFIRM = "search", "confirm"


@dataclass(frozen=True, order=True)
class TrialKey:
    """What a trial is: it exists once in a study.

    Attributes:
        arm: name of the arm.
        setting: number of the setting among the arm's; 0 is its default.
        purpose: SEARCH or CONFIRM.
        seed: of the trial.
    """

    arm: str
    setting: int
    purpose: str
    seed: int

    def __str__(self) -> str:
        """Return a readable name, fit for a folder."""
        return f"{self.arm}-{self.setting}-{self.purpose}-seed{self.seed}"


@dataclass(frozen=True)
class Outcome:
    """How a trial ended, as far as the search needs it.

    Attributes:
        is_stable: the stability rule's verdict; False for a trial that failed or was stopped early.
        value: what settings are compared by (success on validation tasks); NaN when unknown.
    """

    is_stable: bool
    value: float


@dataclass(frozen=True)
class PlannedArm:
    """An arm and its settings in the order in which they are tried; the first is the default, {}."""

    name: str
    settings: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class StudyPlan:
    """The order of trials.

    Attributes:
        arms: in order.
        search_seed: seed of all search trials.
        confirm_seeds: seeds that the chosen setting of an arm is run with, none of them the search seed.
        max_settings: most settings tried per arm.
        tries_all: try all of them and take the best stable one, instead of the first stable one.
    """

    arms: tuple[PlannedArm, ...]
    search_seed: int
    confirm_seeds: tuple[int, ...]
    max_settings: int
    tries_all: bool = False

    def open_trials(self, known: Mapping[TrialKey, Outcome | None]) -> list[TrialKey]:
        """Return the trials that may start now, in order: all arms' searches first, then the confirmations.

        Args:
            known: trials that were started, with their outcome; None = not ended yet.
        """
        searches = [key for arm in self.arms for key in self._searches(arm, known)]
        confirmations = [key for arm in self.arms for key in self._confirmations(arm, known)]
        return [key for key in (*searches, *confirmations) if key not in known]

    def has(self, key: TrialKey) -> bool:
        """Say whether a trial can be one of this plan."""
        settings = next((len(arm.settings) for arm in self.arms if arm.name == key.arm), 0)
        seeds = {SEARCH: (self.search_seed,), CONFIRM: self.confirm_seeds}.get(key.purpose, ())
        return key.seed in seeds and isinstance(key.setting, int) and 0 <= key.setting < settings

    def is_over(self, known: Mapping[TrialKey, Outcome | None]) -> bool:
        """Say whether nothing runs and nothing can start any more."""
        return not self.open_trials(known) and all(outcome is not None for outcome in known.values())

    def choice(self, arm: str, known: Mapping[TrialKey, Outcome | None]) -> int | None:
        """Return the number of the setting that an arm is judged by; None while its search goes on.

        The best stable setting; when none is stable, the best of all, so that the failure is shown.
        """
        planned = next(a for a in self.arms if a.name == arm)
        if not self._count(planned):
            return 0
        if self._next_search(planned, known) is not None:
            return None
        keys = {n: self._search_key(planned, n) for n in range(self._count(planned))}
        tried = {n: known[key] for n, key in keys.items() if key in known}
        if any(outcome is None for outcome in tried.values()):
            return None
        stable = {n: outcome for n, outcome in tried.items() if outcome and outcome.is_stable}
        return _best(stable or tried)

    def most_trials(self) -> int:
        """Return how many trials the study has at most."""
        return sum(self._count(arm) + len(self.confirm_seeds) for arm in self.arms)

    def _count(self, arm: PlannedArm) -> int:
        """Return how many settings are searched."""
        count = min(len(arm.settings), self.max_settings)
        return 0 if count == 1 else count

    def _search_key(self, arm: PlannedArm, number: int) -> TrialKey:
        return TrialKey(arm.name, number, SEARCH, self.search_seed)

    def _searches(self, arm: PlannedArm, known: Mapping[TrialKey, Outcome | None]) -> Iterator[TrialKey]:
        if self.tries_all:
            yield from (self._search_key(arm, number) for number in range(self._count(arm)))
        elif (number := self._next_search(arm, known)) is not None:
            yield self._search_key(arm, number)

    def _next_search(self, arm: PlannedArm, known: Mapping[TrialKey, Outcome | None]) -> int | None:
        """Return the first setting that is to be tried and is not known yet; None when the search has its answer."""
        for number in range(self._count(arm)):
            key = self._search_key(arm, number)
            if key not in known:
                return number
            outcome = known[key]
            if not self.tries_all and (outcome is None or outcome.is_stable):
                return None
        return None

    def _confirmations(self, arm: PlannedArm, known: Mapping[TrialKey, Outcome | None]) -> Sequence[TrialKey]:
        number = self.choice(arm.name, known)
        return [] if number is None else [TrialKey(arm.name, number, CONFIRM, seed) for seed in self.confirm_seeds]


def _best(outcomes: Mapping[int, Outcome | None]) -> int | None:
    """Return the setting of the largest value; of equal ones, or of unknown values, the one tried first."""

    def rank(number: int) -> tuple[float, int]:
        outcome = outcomes[number]
        value = outcome.value if outcome is not None and outcome.value == outcome.value else float("-inf")  # NaN last
        return value, -number

    return max(outcomes, key=rank, default=None)
