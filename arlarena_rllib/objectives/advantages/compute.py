"""compute_advantages: the one call for all advantages, once per iteration over all groups of the batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from arlarena_rllib.objectives.advantages.rows import AdvantageRows
from arlarena_rllib.objectives.advantages.terms import REGISTRY

if TYPE_CHECKING:
    from arlarena_rllib.objectives.spec import ObjectiveSpec


@dataclass(frozen=True)
class AdvantageResult:
    """Advantages and what they were made of.

    Attributes:
        advantages: [B], or [B, T] if `is_per_token`; float in the dtype of the step rewards.
        parts: named terms, [B] or [B, T]; which ones is up to the advantage. Those of a critic are `returns` and
            `value_mask`, see `value_loss`.
        counts: whole numbers to log; with group statistics groups, singleton_groups, uniform_groups (size > 1, all
            scores equal), with anchors anchor_groups, singleton_anchors.
    """

    advantages: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def is_per_token(self) -> bool:
        """Whether each token has an advantage of its own."""
        return self.advantages.dim() == 2

    @property
    def advantages_B(self) -> Tensor:
        """The advantages as a row vector.

        Raises:
            ValueError: they are per token.
        """
        if self.is_per_token:
            raise ValueError(f"advantages are per token, {tuple(self.advantages.shape)}; read `advantages`.")
        return self.advantages


def compute_advantages(rows: AdvantageRows, spec: ObjectiveSpec) -> AdvantageResult:
    """Return the advantages of all rows by the estimator that the spec names, costs included.

    Args:
        rows: the whole batch (every group complete; no split by micro-batch or learner).
        spec: reads advantage and its parameters, the format penalty, the overlong punishment, the KL in the reward.
    Returns:
        advantages in the dtype of the step rewards, no gradient; empty for an empty batch.
    Raises:
        UnknownChoiceError: the advantage is not registered.
        ValueError: the rows lack something that the advantage needs.
    """
    terms = REGISTRY.get(spec.advantage)(rows, spec)
    advantages = terms.advantages.to(rows.step_reward_B.dtype).detach()
    return AdvantageResult(advantages, terms.parts, terms.counts)
