"""Clipping: the per-token surrogate loss and its trust region.

A registered function gets clean tensors (0 at masked positions): log-ratios d = log pi - log pi_old, advantages, the
mask, log-probs, and the spec. It returns the loss of every token and which tokens the bounds acted on. Masked positions
are ignored afterwards, so a function need not treat them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from arlarena_rllib.objectives.registry import Registry

if TYPE_CHECKING:
    from arlarena_rllib.objectives.spec import ObjectiveSpec

MAX_LOG_RATIO = 20.0
"""Token log-ratios are clamped to +-20 before exp; the gradient is 0 beyond."""
MAX_SEQUENCE_LOG_RATIO = 10.0
"""Sequence log-ratios are clamped to [-20, 10] (upper bound of the released GSPO code)."""


@dataclass(frozen=True)
class ClipResult:
    """Loss and activity of the bounds, token by token.

    Attributes:
        loss_B_T: [B, T] float with graph, to be minimised.
        clipped_low_B_T: [B, T] bool, A < 0 and ratio < 1 - clip_low: no gradient because the ratio fell far enough.
        clipped_high_B_T: [B, T] bool, A > 0 and ratio > 1 + clip_high.
    """

    loss_B_T: Tensor
    clipped_low_B_T: Tensor
    clipped_high_B_T: Tensor


ClipFn = Callable[[Tensor, Tensor, Tensor, Tensor, "ObjectiveSpec"], ClipResult]
REGISTRY: Registry[ClipFn] = Registry("clipping")
register = REGISTRY.register


@register("ppo", reads=("clip_low", "clip_high", "dual_clip"))
def ppo(log_ratio_B_T: Tensor, adv_B_T: Tensor, mask_B_T: Tensor, logp_B_T: Tensor, spec: ObjectiveSpec) -> ClipResult:
    """Return ``l = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)`` with the token ratio r = exp d.

    Source: PPO 1707.06347 eq. 7; unequal bounds: DAPO 2503.14476 sec. 3.1; dual_clip c (A < 0: l = min(l, -c A)):
    1912.09729 sec. 3, off by default because no paper objective of this field has it.

    Args:
        log_ratio_B_T: [B, T] float with graph, clamped to +-20 here.
        adv_B_T: [B, T] float.
        mask_B_T: [B, T] bool (not used).
        logp_B_T: [B, T] float (not used).
        spec: reads clip_low, clip_high, dual_clip.
    Returns:
        token losses; gradient -A r where the bound is not active, else 0.
    """
    ratio_B_T = token_ratio(log_ratio_B_T)
    loss_B_T = clipped_surrogate(ratio_B_T, adv_B_T, spec)
    if spec.dual_clip is not None:
        loss_B_T = torch.where(adv_B_T < 0, torch.minimum(loss_B_T, -spec.dual_clip * adv_B_T), loss_B_T)
    return _with_indicators(loss_B_T, ratio_B_T, adv_B_T, spec)


@register("gspo", reads=("clip_low", "clip_high"))
def gspo(log_ratio_B_T: Tensor, adv_B_T: Tensor, mask_B_T: Tensor, logp_B_T: Tensor, spec: ObjectiveSpec) -> ClipResult:
    """Return ``l = -min(s A, clip(s) A)`` with the sequence ratio ``s = exp((1/n) sum_t m d)`` on every token.

    Source: GSPO 2507.18071 eq. 5-7. A sequence is a row. The gradient flows through s: ``-A s / n`` times the sum of
    the row's log-prob gradients. The result is per token, so any aggregation applies; with seq-mean-token-mean it is
    the paper's objective.

    Args:
        log_ratio_B_T: [B, T] float with graph; the row mean is clamped to [-20, 10].
        adv_B_T: [B, T] float, meant to be constant in a row.
        mask_B_T: [B, T] bool.
        logp_B_T: [B, T] float (not used).
        spec: reads clip_low, clip_high.
    Returns:
        token losses, equal within a row for a constant advantage; the indicators are equal within a row too.
    """
    log_s_B_1 = sequence_log_ratio(log_ratio_B_T, mask_B_T)
    ratio_B_T = _bounded(log_s_B_1).exp().expand_as(adv_B_T)
    return _with_indicators(clipped_surrogate(ratio_B_T, adv_B_T, spec), ratio_B_T, adv_B_T, spec)


@register("gspo_token", reads=("clip_low", "clip_high"))
def gspo_token(
    log_ratio_B_T: Tensor, adv_B_T: Tensor, mask_B_T: Tensor, logp_B_T: Tensor, spec: ObjectiveSpec
) -> ClipResult:
    """Return ``l = -min(s_t A, clip(s_t) A)`` with ``log s_t = sg(log s) + log pi - sg(log pi)``.

    Source: GSPO 2507.18071 eq. 13-14. Value of the sequence ratio, gradient of the token: -A_t s per token. Equal to
    "gspo" in value and gradient when the advantage is constant in a row; meant for token-wise advantages.

    Args:
        log_ratio_B_T: [B, T] float with graph.
        adv_B_T: [B, T] float, may differ inside a row.
        mask_B_T: [B, T] bool.
        logp_B_T: [B, T] float (not used).
        spec: reads clip_low, clip_high.
    Returns:
        token losses.
    """
    d_B_T = log_ratio_B_T.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    log_s_B_T = sequence_log_ratio(log_ratio_B_T, mask_B_T).detach() + (d_B_T - d_B_T.detach())
    ratio_B_T = _bounded(log_s_B_T).exp()
    return _with_indicators(clipped_surrogate(ratio_B_T, adv_B_T, spec), ratio_B_T, adv_B_T, spec)


def token_ratio(log_ratio_B_T: Tensor) -> Tensor:
    """Return ``r = exp(clamp(d, -20, 20))``, [B, T]; gradient r inside the clamp, 0 outside."""
    return log_ratio_B_T.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def sequence_log_ratio(log_ratio_B_T: Tensor, mask_B_T: Tensor) -> Tensor:
    """Return the mean log-ratio over the policy tokens of each row, ``(1/n) sum_t m d``.

    Args:
        log_ratio_B_T: [B, T] float; masked positions are left out, whatever they hold.
        mask_B_T: [B, T] bool.
    Returns:
        [B, 1] float, not clamped; 0 for a row without policy tokens.
    """
    kept_B_T = torch.where(mask_B_T, log_ratio_B_T, 0.0)
    return kept_B_T.sum(-1, keepdim=True) / mask_B_T.sum(-1, keepdim=True).clamp(min=1)


def clipped_surrogate(ratio_B_T: Tensor, adv_B_T: Tensor, spec: ObjectiveSpec) -> Tensor:
    """Return ``-min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)``, [B, T]; building block of clipped methods."""
    clipped_B_T = ratio_B_T.clamp(1.0 - spec.clip_low, 1.0 + spec.clip_high)
    return -torch.minimum(ratio_B_T * adv_B_T, clipped_B_T * adv_B_T)


def _bounded(log_s: Tensor) -> Tensor:
    return log_s.clamp(-MAX_LOG_RATIO, MAX_SEQUENCE_LOG_RATIO)


def _with_indicators(loss_B_T: Tensor, ratio_B_T: Tensor, adv_B_T: Tensor, spec: ObjectiveSpec) -> ClipResult:
    ratio_B_T = ratio_B_T.detach()
    low_B_T = (adv_B_T < 0) & (ratio_B_T < 1.0 - spec.clip_low)
    high_B_T = (adv_B_T > 0) & (ratio_B_T > 1.0 + spec.clip_high)
    return ClipResult(loss_B_T, low_B_T, high_B_T)
