"""LOOP: the PPO clip on a token's ratio, or on the product of the ratios of a turn or of a whole trajectory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from arlarena_rllib.objectives.clipping.base import (
    ClipInput,
    ClipResult,
    WholeBatch,
    clipped_surrogate,
    register,
    register_context,
    row_log_ratio,
    token_ratio,
)
from arlarena_rllib.objectives.grouping import dense_index, sum_by_index

if TYPE_CHECKING:
    from arlarena_rllib.objectives.spec import ObjectiveSpec

RATIO_LEVELS: tuple[str, ...] = ("token", "turn", "trajectory")
RATIO_BOUNDS: tuple[str, ...] = ("symmetric", "reciprocal")


@register("loop", reads=("ratio_level", "ratio_bounds", "clip_low", "clip_high"))
def loop(rows: ClipInput, spec: ObjectiveSpec) -> ClipResult:
    """Return ``l = -min(R A, clip(R, low, high) A)``, R = product of the token ratios of a token, turn or trajectory.

    Source: LOOP 2502.01600. Bounds: "symmetric" [1 - clip_low, 1 + clip_high] as in the paper, "reciprocal"
    [1 / (1 + clip_high), 1 + clip_high] as in its code. No length root (that is GSPO). A turn is a row.

    Args:
        rows: reads log_ratio_B_T, adv_B_T, mask_B_T; for trajectories the context of `trajectory_context`.
        spec: reads ratio_level, ratio_bounds, clip_high, and clip_low if symmetric.
    Returns:
        the loss of the product on each of its tokens, so that a mean over those tokens counts it once.
    Notes:
        The log of the product is clamped to +-20. Trajectory level: a token's gradient is that of its own row's loss,
        scaled to the weight of the whole trajectory; this is the exact gradient for advantages that are constant in a
        trajectory, and credits each turn by its own advantage where they are not.
    """
    high = 1.0 + spec.clip_high
    low = 1.0 - spec.clip_low if spec.ratio_bounds == "symmetric" else 1.0 / high
    ratio_B_T = token_ratio(_log_product(rows, spec.ratio_level)).expand_as(rows.adv_B_T)
    return clipped_surrogate(ratio_B_T, rows.adv_B_T, low, high)


@register_context("loop", when=lambda spec: spec.ratio_level == "trajectory")
def trajectory_context(batch: WholeBatch, spec: ObjectiveSpec) -> dict[str, Tensor]:
    """Return what a row must know of its trajectory, whose other rows may be in other micro-batches.

    ``trajectory_log_ratio_B = sum of d over the trajectory``; ``trajectory_scale_B = weight of the trajectory / weight
    of the row`` in the policy loss (0 for a row without weight): the gradient of all copies of the loss reaches every
    token of the trajectory, but a row carries only its own copies.

    Args:
        batch: reads log_ratio_B_T, mask_B_T, share_B, trajectory ids.
        spec: not read.
    Returns:
        two [B] float64 vectors.
    """
    index_B, n = dense_index(batch.ids.trajectory_id_B)
    share_B = batch.share_B.to(torch.float64)
    row_B = row_log_ratio(batch.log_ratio_B_T.to(torch.float64), batch.mask_B_T).squeeze(-1)
    scale_B = sum_by_index(share_B, index_B, n)[index_B] / torch.where(share_B > 0, share_B, 1.0)
    return {
        "trajectory_log_ratio_B": sum_by_index(row_B, index_B, n)[index_B],
        "trajectory_scale_B": torch.where(share_B > 0, scale_B, 0.0),
    }


def _log_product(rows: ClipInput, level: str) -> Tensor:
    """Return log R, [B, T] or [B, 1]."""
    if level == "token":
        return rows.log_ratio_B_T
    row_B_1 = row_log_ratio(rows.log_ratio_B_T, rows.mask_B_T)
    if level == "turn":
        return row_B_1
    total_B_1 = rows.context["trajectory_log_ratio_B"].unsqueeze(-1).to(row_B_1)
    scale_B_1 = rows.context["trajectory_scale_B"].unsqueeze(-1).to(row_B_1)
    return total_B_1 + scale_B_1 * (row_B_1 - row_B_1.detach())
