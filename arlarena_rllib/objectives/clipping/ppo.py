"""Token-level choices: no ratio at all, and the PPO clip."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from arlarena_rllib.objectives.clipping.base import (
    ClipInput,
    ClipResult,
    clipped_surrogate,
    register,
    token_ratio,
    unbounded,
)

if TYPE_CHECKING:
    from arlarena_rllib.objectives.spec import ObjectiveSpec


@register("none")
def none(rows: ClipInput, spec: ObjectiveSpec) -> ClipResult:
    """Return ``l = -A log pi``: REINFORCE, without an importance ratio.

    Source: Williams 1992. Exact only for one step per batch: later steps see samples of an older policy uncorrected.

    Args:
        rows: reads adv_B_T, logp_B_T.
        spec: not read.
    Returns:
        token losses; gradient -A everywhere. The value has no meaning, only the gradient.
    """
    return unbounded(-rows.adv_B_T * rows.logp_B_T)


@register("ppo", reads=("clip_low", "clip_high", "dual_clip"))
def ppo(rows: ClipInput, spec: ObjectiveSpec) -> ClipResult:
    """Return ``l = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)`` with the token ratio r = exp d.

    Source: PPO 1707.06347 eq. 7; unequal bounds: DAPO 2503.14476 sec. 3.1; dual_clip c (A < 0: l = min(l, -c A)):
    1912.09729 sec. 3, off by default because no paper objective of this field has it.

    Args:
        rows: reads log_ratio_B_T, adv_B_T.
        spec: reads clip_low, clip_high, dual_clip.
    Returns:
        token losses; gradient -A r where the bound is not active, else 0.
    """
    adv_B_T = rows.adv_B_T
    clip = clipped_surrogate(token_ratio(rows.log_ratio_B_T), adv_B_T, 1.0 - spec.clip_low, 1.0 + spec.clip_high)
    if spec.dual_clip is None:
        return clip
    capped_B_T = torch.minimum(clip.loss_B_T, -spec.dual_clip * adv_B_T)
    return replace(clip, loss_B_T=torch.where(adv_B_T < 0, capped_B_T, clip.loss_B_T))
