"""Shaping of rewards and rows: the overlong punishment, and which rows stay out of the loss though they are sampled.

A row that is left out of the loss still counts in the statistics of its group: advantages come first, then
`rows_in_loss`, then the denominators from the mask that remains.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from arlarena_rllib.objectives.grouping import dense_index, sum_by_index

if TYPE_CHECKING:
    from arlarena_rllib.objectives.spec import ObjectiveSpec

VOID_TURNS: tuple[str, ...] = ("keep", "mask_turn", "drop_trajectory")
"""What happens to a turn without a valid action."""


def overlong_punishment(length_B: Tensor, *, max_len: int, buffer: int, factor: float) -> Tensor:
    """Return ``factor * clamp(((max_len - buffer) - length) / buffer, -1, 0)``, to be added to the reward.

    Source: DAPO 2503.14476 sec. 3.4 with factor 1. Differs from verl in: not below -factor (matters beyond max_len only).

    Args:
        length_B: [B] integer, response tokens of each row.
        max_len: longest allowed response [tokens], buffer included.
        buffer: length [tokens] over which the punishment grows, in 1..max_len.
        factor: >= 0, in units of reward.
    Returns:
        [B] float64 in [-factor, 0].
    Raises:
        ValueError: the buffer is not in 1..max_len.
    """
    if not 1 <= buffer <= max_len:
        raise ValueError(f"buffer={buffer} must be in 1..max_len={max_len}.")
    excess_B = length_B.to(torch.float64) - (max_len - buffer)
    return -factor * (excess_B / buffer).clamp(0.0, 1.0)


def void_rows(action_valid_B: Tensor, trajectory_id_B: Tensor, *, rule: str) -> Tensor:
    """Return the rows that a rule for turns without a valid action leaves out of the loss.

    Source: SimpleTIR 2509.02479 ("drop_trajectory": one void turn takes the whole trajectory out).

    Args:
        action_valid_B: [B] bool.
        trajectory_id_B: [B] int64.
        rule: "keep" (none), "mask_turn" (the row itself), "drop_trajectory" (all rows of its trajectory).
    Returns:
        [B] bool.
    """
    void_B = ~action_valid_B.bool()
    if rule == "keep":
        return torch.zeros_like(void_B)
    if rule == "mask_turn":
        return void_B
    index_B, n = dense_index(trajectory_id_B)
    return sum_by_index(void_B.to(torch.float64), index_B, n)[index_B] > 0


def small_advantage_rows(advantages: Tensor, mask_B_T: Tensor, *, min_abs: float) -> Tensor:
    """Return the rows on which no policy token has ``|A| >= min_abs``.

    Source: LOOP 2502.01600 (rollouts with |A| < 0.01 are dropped). With one advantage per trajectory all its rows
    go together.

    Args:
        advantages: [B] or [B, T] float; masked positions may hold anything.
        mask_B_T: [B, T] bool or 0/1.
        min_abs: >= 0; 0 drops nothing.
    Returns:
        [B] bool; rows without policy tokens are dropped if min_abs > 0.
    """
    if advantages.dim() == 1:
        advantages = advantages.unsqueeze(-1).expand(mask_B_T.shape)
    return ~((advantages.abs() >= min_abs) & mask_B_T.bool()).any(-1) & (min_abs > 0)


@dataclass(frozen=True)
class RowSelection:
    """Which rows are trained on.

    Attributes:
        keep_B: [B] bool.
        counts: rows with policy tokens by what happened to them, each in one place: masked_overlong, masked_void,
            masked_small_advantage (in this order of precedence), trained.
    """

    keep_B: Tensor
    counts: dict[str, int] = field(default_factory=dict)

    def masked(self, mask_B_T: Tensor) -> Tensor:
        """Return the loss mask of the rows that are kept, [B, T], 0 on the others; dtype as given."""
        return torch.where(self.keep_B.unsqueeze(-1), mask_B_T, torch.zeros_like(mask_B_T))


def rows_in_loss(
    spec: ObjectiveSpec,
    *,
    advantages: Tensor,
    mask_B_T: Tensor,
    trajectory_id_B: Tensor,
    action_valid_B: Tensor,
    cut_B: Tensor | None = None,
) -> RowSelection:
    """Return which rows stay in the loss.

    Source: overlong masking DAPO 2503.14476 sec. 3.4 (filtering); void turns SimpleTIR 2509.02479; small advantages
    LOOP 2502.01600.

    Args:
        spec: reads overlong_mask, void_turn, min_abs_advantage.
        advantages: [B] or [B, T] float, of the whole batch.
        mask_B_T: [B, T] bool or 0/1, 1 = sampled by the policy.
        trajectory_id_B: [B] int64.
        action_valid_B: [B] bool.
        cut_B: [B] bool, the reply was cut by the length limit; needed for overlong_mask.
    Returns:
        the selection; denominators must be computed from its `masked(mask_B_T)`.
    Raises:
        ValueError: overlong_mask without cut_B.
    """
    left_B = mask_B_T.bool().any(-1)
    counts = {}
    dropped = {
        "masked_overlong": _overlong_rows(spec, cut_B, left_B),
        "masked_void": void_rows(action_valid_B, trajectory_id_B, rule=spec.void_turn),
        "masked_small_advantage": small_advantage_rows(advantages, mask_B_T, min_abs=spec.min_abs_advantage),
    }
    for reason, out_B in dropped.items():
        counts[reason] = int((left_B & out_B).sum())
        left_B = left_B & ~out_B
    return RowSelection(left_B, {**counts, "trained": int(left_B.sum())})


def _overlong_rows(spec: ObjectiveSpec, cut_B: Tensor | None, like_B: Tensor) -> Tensor:
    if not spec.overlong_mask:
        return torch.zeros_like(like_B)
    if cut_B is None:
        raise ValueError(
            "overlong_mask=True needs cut_B (which replies the length limit cut); pass it, or set overlong_mask=False."
        )
    return cut_B.bool()
