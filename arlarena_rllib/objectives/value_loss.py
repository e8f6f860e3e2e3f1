"""The critic's loss: clipped squared error to the value targets of `gae_token` or `gae_turn`."""

from __future__ import annotations

import torch
from torch import Tensor


def value_loss(
    values_B_T: Tensor,
    old_values_B_T: Tensor,
    returns_B_T: Tensor,
    mask_B_T: Tensor,
    weight_B: Tensor,
    *,
    clip: float,
) -> Tensor:
    """Return ``sum_i w_i sum_t m_it 0.5 max((V - R)^2, (V_clip - R)^2)``, V_clip = V_old + clamp(V - V_old, -clip, clip).

    Source: PPO's released code; verl's ``compute_value_loss``.

    Args:
        values_B_T: [B, T] float with graph. Half precision is computed in float32.
        old_values_B_T: [B, T] float, values at the time of the rollout.
        returns_B_T: [B, T] float, targets (`AdvantageResult.parts["returns"]`).
        mask_B_T: [B, T] bool or 0/1, where a target counts (`parts["value_mask"]`); masked positions may hold anything.
        weight_B: [B] float, these rows' slice of `Denominators.weight_B`, computed from the same mask.
        clip: >= 0, in units of value; math.inf = off.
    Returns:
        0-dim tensor; if everything is masked exactly 0 with gradient exactly 0.
    Raises:
        ValueError: shapes differ.
    Notes:
        Gradient flows into values_B_T only, and not where the clipped branch is larger. Losses of micro-batches add up.
    """
    shapes = {tuple(t.shape) for t in (values_B_T, old_values_B_T, returns_B_T, mask_B_T)}
    if len(shapes) != 1 or weight_B.shape != values_B_T.shape[:1]:
        raise ValueError(f"values, old values, returns and mask must have one shape [B, T], weight [B]; got {shapes}.")
    mask_B_T = mask_B_T.bool()
    dtype = torch.promote_types(values_B_T.dtype, torch.float32)
    value_B_T = torch.where(mask_B_T, values_B_T.to(dtype), 0.0)
    old_B_T = torch.where(mask_B_T, old_values_B_T.detach().to(dtype), 0.0)
    return_B_T = torch.where(mask_B_T, returns_B_T.detach().to(dtype), 0.0)
    clipped_B_T = old_B_T + (value_B_T - old_B_T).clamp(-clip, clip)
    error_B_T = torch.maximum((value_B_T - return_B_T).square(), (clipped_B_T - return_B_T).square())
    per_row_B = torch.where(mask_B_T, 0.5 * error_B_T, 0.0).sum(-1)
    return (per_row_B * weight_B.detach().to(dtype)).sum()
