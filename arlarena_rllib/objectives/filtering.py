"""Dynamic filtering: which groups of an iteration are trained on, and when to sample more of them.

Pure bookkeeping: the caller samples and holds the groups, `GroupFilter` says which to take, whether to try again, and
what it did. A registered choice only decides whether one group is informative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arlarena_rllib.objectives.registry import Registry

if TYPE_CHECKING:
    from arlarena_rllib.objectives.spec import ObjectiveSpec

METRICS: tuple[str, ...] = ("success", "reward")
SURPLUSES: tuple[str, ...] = ("drop", "keep")
"""What happens to informative groups beyond the target."""
_COUNTS = ("started", "kept_mixed", "kept_surplus", "kept_uniform", "filled", "dropped_uniform", "dropped_surplus")


@dataclass(frozen=True)
class GroupOutcome:
    """Results of one group: raw episode returns (before any penalty) and success flags, one per trajectory."""

    returns: tuple[float, ...]
    successes: tuple[bool, ...]


@dataclass(frozen=True)
class FilterReport:
    """What a filter did in one iteration; ``started`` is the sum of the next six counts.

    Attributes:
        active: False when nothing was filtered (choice "none" or cold start).
        tries: number of offers.
        target: groups wanted.
        started: groups offered.
        kept_mixed: informative groups taken, up to the target.
        kept_surplus: informative groups taken beyond the target (``surplus="keep"``).
        kept_uniform: uniform groups taken because the filter was not active.
        filled: uniform groups taken on the last try to complete the batch.
        dropped_uniform: uniform groups left out.
        dropped_surplus: informative (or, inactive, any) groups left out because the batch was complete.
        missing: groups that the batch lacks, 0 if it is complete.
        success_before: share of won episodes among all groups offered; nan if there is none.
        success_after: the same among the groups taken: what the policy is trained on.
        log: one ``{"batch", "mixed", "taken"}`` per try.
    """

    active: bool
    tries: int
    target: int
    started: int
    kept_mixed: int
    kept_surplus: int
    kept_uniform: int
    filled: int
    dropped_uniform: int
    dropped_surplus: int
    missing: int
    success_before: float
    success_after: float
    log: tuple[dict[str, int], ...]

    @property
    def all_uniform(self) -> bool:
        """Whether not one informative group was found; then only KL and entropy terms have a gradient."""
        return self.kept_mixed == 0

    @property
    def changed_nothing(self) -> bool:
        """Whether the batch is what it would have been without a filter: one try, nothing left out for uniformity."""
        return self.tries <= 1 and self.dropped_uniform == 0

    def as_metrics(self) -> dict[str, float]:
        """Return the counts and rates as plain numbers, for logging."""
        names = ("active", "tries", *_COUNTS, "missing", "all_uniform", "success_before", "success_after")
        return {name: float(getattr(self, name)) for name in names}


KeepFn = Callable[[GroupOutcome, "ObjectiveSpec"], bool]
REGISTRY: Registry[KeepFn] = Registry("filtering")
register = REGISTRY.register
_UNFILTERED = "none"


@register(_UNFILTERED)
def keep_all(group: GroupOutcome, spec: ObjectiveSpec) -> bool:
    """Return True: every group is trained on, in one try."""
    return True


@register(
    "dynamic",
    needs=("groups",),
    reads=("filter_metric", "max_tries", "fill", "cold_start_iterations", "oversampling", "surplus"),
)
def dynamic(group: GroupOutcome, spec: ObjectiveSpec) -> bool:
    """Return whether a group's episodes differ: ``0 < #success < G``, or returns not all equal.

    Source: DAPO 2503.14476 sec. 3.2; SAMPO 2602.21534 eq. 8 (success); released ARLArena code (reward). A group of one
    never differs.

    Args:
        group: raw returns and success flags.
        spec: reads filter_metric.
    """
    return is_mixed(group, spec.filter_metric)


def is_mixed(group: GroupOutcome, metric: str) -> bool:
    """Return whether the group's episodes differ in the metric, "success" or "reward"."""
    values: Sequence[float] = group.returns if metric == "reward" else group.successes
    return len(values) > 0 and max(values) != min(values)


class GroupFilter:
    """Takes groups try by try until the batch is complete; one instance per iteration.

    Informative groups are taken first come, first served, whole groups; what exceeds the target is dropped, or taken too
    with ``surplus="keep"`` (a larger batch rather than wasted episodes). On the last try a short batch is completed with
    that try's uniform groups in order, if `fill` is set; otherwise it stays short. During the first
    `cold_start_iterations`, and for "none", everything is taken and there is one try.

    Source: released ARLArena rollout code. Differs in: the iteration is passed explicitly, so a cold start cannot
    switch the filter off unnoticed.

    Args:
        spec: reads filtering, filter_metric, max_tries, fill, cold_start_iterations, oversampling, surplus.
        target_groups: groups wanted, >= 1.
        iteration: counts from 0.

    Raises:
        ValueError: target below 1 or iteration below 0.
    """

    def __init__(self, spec: ObjectiveSpec, *, target_groups: int, iteration: int = 0) -> None:
        if target_groups < 1 or iteration < 0:
            raise ValueError(f"target_groups={target_groups} must be >= 1 and iteration={iteration} >= 0.")
        self._spec = spec
        self._keep = REGISTRY.get(spec.filtering)
        self._target = target_groups
        self._active = spec.filtering != _UNFILTERED and iteration >= spec.cold_start_iterations
        self._kept: list[tuple[int, int]] = []
        self._log: list[dict[str, int]] = []
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._successes: dict[str, list[bool]] = {"before": [], "after": []}

    @property
    def needs_more(self) -> bool:
        """Whether another try should be made: the batch is short and tries are left."""
        return self.missing > 0 and len(self._log) < self._max_tries

    @property
    def missing(self) -> int:
        """How many groups the batch still lacks."""
        return max(self._target - len(self._kept), 0)

    @property
    def next_size(self) -> int:
        """How many groups the next try should sample: those missing, times `oversampling` while the filter is active."""
        return math.ceil(self.missing * self._spec.oversampling) if self._active else self.missing

    @property
    def kept(self) -> list[tuple[int, int]]:
        """All taken groups as (try, index in that try's offer), in the order they were taken."""
        return list(self._kept)

    def offer(self, groups: Sequence[GroupOutcome]) -> list[int]:
        """Judge the groups of one try and return the indices to keep, in order: informative ones, then fills.

        Args:
            groups: outcomes of all groups of this try; may be empty when every group failed.
        Returns:
            indices into `groups`.
        Raises:
            RuntimeError: the batch is complete or no try is left; ask `needs_more` first.
        """
        if not self.needs_more:
            raise RuntimeError(
                f"offer() after the end: {len(self._kept)} of {self._target} groups taken in {len(self._log)} of "
                f"{self._max_tries} tries. Ask needs_more before sampling."
            )
        mixed = [index for index, group in enumerate(groups) if self._keep(group, self._spec)]
        candidates = mixed if self._active else list(range(len(groups)))
        keeps_surplus = self._active and self._spec.surplus == "keep"
        taken = candidates if keeps_surplus else candidates[: self.missing]
        uniform = [index for index in range(len(groups)) if index not in set(candidates)]
        is_last = len(self._log) + 1 == self._max_tries
        filled = uniform[: max(self.missing - len(taken), 0)] if is_last and self._spec.fill else []
        self._count(groups, mixed=set(mixed), taken=taken, filled=filled, uniform=uniform)
        batch = len(self._log)
        self._log.append({"batch": batch, "mixed": len(mixed), "taken": len(taken) + len(filled)})
        self._successes["before"] += [won for group in groups for won in group.successes]
        self._successes["after"] += [won for index in (*taken, *filled) for won in groups[index].successes]
        self._kept += [(batch, index) for index in (*taken, *filled)]
        return [*taken, *filled]

    def report(self) -> FilterReport:
        """Return what was done so far."""
        return FilterReport(
            active=self._active,
            tries=len(self._log),
            target=self._target,
            missing=self.missing,
            success_before=_rate(self._successes["before"]),
            success_after=_rate(self._successes["after"]),
            log=tuple(dict(entry) for entry in self._log),
            **self._counts,
        )

    @property
    def _max_tries(self) -> int:
        return self._spec.max_tries if self._active else 1

    def _count(
        self,
        groups: Sequence[GroupOutcome],
        *,
        mixed: set[int],
        taken: list[int],
        filled: list[int],
        uniform: list[int],
    ) -> None:
        within = taken[: self.missing]
        kept_mixed = sum(index in mixed for index in within)
        self._counts["started"] += len(groups)
        self._counts["kept_mixed"] += kept_mixed
        self._counts["kept_surplus"] += len(taken) - len(within)
        self._counts["kept_uniform"] += len(within) - kept_mixed
        self._counts["filled"] += len(filled)
        self._counts["dropped_uniform"] += len(uniform) - len(filled)
        self._counts["dropped_surplus"] += len(groups) - len(uniform) - len(taken)


def _rate(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else math.nan
