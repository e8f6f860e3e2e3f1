"""The registry of advantages, and what a registered function returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from arlarena_rllib.objectives.advantages.rows import AdvantageRows
from arlarena_rllib.objectives.grouping import group_statistics
from arlarena_rllib.objectives.registry import Registry

if TYPE_CHECKING:
    from arlarena_rllib.objectives.spec import ObjectiveSpec

UNITS: tuple[str, ...] = ("traj", "row")
NORMS: tuple[str, ...] = ("mean_std_norm", "mean_norm")
SINGLETONS: tuple[str, ...] = ("zero", "raw")
ANCHOR_MATCHES: tuple[str, ...] = ("exact", "similar")


@dataclass(frozen=True)
class AdvantageTerms:
    """What a registered advantage returns.

    Attributes:
        advantages: [B] or, per token, [B, T] float64; 0 at positions that the policy did not sample.
        parts: named terms it was made of, [B] or [B, T].
        counts: whole numbers to log.
    """

    advantages: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


AdvantageFn = Callable[[AdvantageRows, "ObjectiveSpec"], AdvantageTerms]
REGISTRY: Registry[AdvantageFn] = Registry("advantage")
register = REGISTRY.register


def group_counts(value_U: Tensor, group_U: Tensor) -> dict[str, int]:
    """Return how many groups there are, how many of one sample, and how many larger ones with all values equal."""
    stats = group_statistics(value_U, group_U)
    share_U, single_U = 1.0 / stats.size_U, stats.size_U == 1
    return {
        "groups": round(float(share_U.sum())),
        "singleton_groups": round(float(share_U[single_U].sum())),
        "uniform_groups": round(float(share_U[stats.uniform_U & ~single_U].sum())),
    }
