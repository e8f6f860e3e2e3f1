"""Choices that drop no token: a capped weight (CISPO) and a smooth gate (SAPO)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from arlarena_rllib.objectives.clipping.base import ClipInput, ClipResult, register, token_ratio, unbounded

if TYPE_CHECKING:
    from arlarena_rllib.objectives.spec import ObjectiveSpec


@register("cispo", reads=("is_low", "is_high"))
def cispo(rows: ClipInput, spec: ObjectiveSpec) -> ClipResult:
    """Return ``l = -sg(clip(r, is_low, is_high)) A log pi`` with the token ratio r.

    Source: MiniMax-M1 2506.13585. Differs in: the bounds are absolute (its 1 + eps_high is is_high).

    Args:
        rows: reads log_ratio_B_T, adv_B_T, logp_B_T.
        spec: reads is_low, is_high.
    Returns:
        token losses; gradient -clip(r) A, never 0 because of a bound. The value has no meaning, only the gradient.
        The indicators show capped weights, of either sign of A.
    """
    ratio_B_T = token_ratio(rows.log_ratio_B_T.detach())
    loss_B_T = -ratio_B_T.clamp(spec.is_low, spec.is_high) * rows.adv_B_T * rows.logp_B_T
    return ClipResult(loss_B_T, ratio_B_T < spec.is_low, ratio_B_T > spec.is_high)


@register("sapo", reads=("tau_pos", "tau_neg"))
def sapo(rows: ClipInput, spec: ObjectiveSpec) -> ClipResult:
    """Return ``l = -(4 / tau) sigmoid(tau (r - 1)) A``, tau = tau_pos where A > 0, else tau_neg.

    Source: SAPO 2511.20347. The sign is that of the token's advantage (the released ARLArena code takes the
    row's mean).

    Args:
        rows: reads log_ratio_B_T, adv_B_T.
        spec: reads tau_pos, tau_neg.
    Returns:
        token losses; gradient ``-4 p (1 - p) r A``, p = sigmoid(tau (r - 1)): -A at r = 1, fading on both sides. No
        token counts as clipped.
    """
    tau_B_T = torch.where(rows.adv_B_T > 0, torch.full_like(rows.adv_B_T, spec.tau_pos), spec.tau_neg)
    gate_B_T = torch.sigmoid(tau_B_T * (token_ratio(rows.log_ratio_B_T) - 1.0))
    return unbounded(-4.0 / tau_B_T * gate_B_T * rows.adv_B_T)
