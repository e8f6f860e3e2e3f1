"""Sequence-level choices: the geometric mean of a row's token ratios."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from arlarena_rllib.objectives.clipping.base import (
    MAX_LOG_RATIO,
    MAX_SEQUENCE_LOG_RATIO,
    ClipInput,
    ClipResult,
    clipped_surrogate,
    register,
    sequence_log_ratio,
)

if TYPE_CHECKING:
    from arlarena_rllib.objectives.spec import ObjectiveSpec


@register("gspo", reads=("clip_low", "clip_high"), needs=("row_advantages",))
def gspo(rows: ClipInput, spec: ObjectiveSpec) -> ClipResult:
    """Return ``l = -min(s A, clip(s) A)`` with the sequence ratio ``s = exp((1/n) sum_t m d)`` on every token.

    Source: GSPO 2507.18071 eq. 5-7. A sequence is a row. The gradient flows through s: ``-A s / n`` times the sum of
    the row's log-prob gradients. The result is per token, so any aggregation applies; with seq-mean-token-mean it is
    the paper's objective.

    Args:
        rows: reads log_ratio_B_T (row mean clamped to [-20, 10]), adv_B_T (constant in a row), mask_B_T.
        spec: reads clip_low, clip_high.
    Returns:
        token losses, equal within a row for a constant advantage; the indicators are equal within a row too.
    """
    log_s_B_1 = sequence_log_ratio(rows.log_ratio_B_T, rows.mask_B_T)
    return _surrogate(log_s_B_1.expand_as(rows.adv_B_T), rows.adv_B_T, spec)


@register("gspo_token", reads=("clip_low", "clip_high"))
def gspo_token(rows: ClipInput, spec: ObjectiveSpec) -> ClipResult:
    """Return ``l = -min(s_t A, clip(s_t) A)`` with ``log s_t = sg(log s) + log pi - sg(log pi)``.

    Source: GSPO 2507.18071 eq. 13-14. Value of the sequence ratio, gradient of the token: -A_t s per token. Equal to
    "gspo" in value and gradient when the advantage is constant in a row; meant for token-wise advantages.

    Args:
        rows: reads log_ratio_B_T, adv_B_T (may differ inside a row), mask_B_T.
        spec: reads clip_low, clip_high.
    Returns:
        token losses.
    """
    d_B_T = rows.log_ratio_B_T.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    log_s_B_1 = sequence_log_ratio(rows.log_ratio_B_T, rows.mask_B_T).detach()
    return _surrogate(log_s_B_1 + (d_B_T - d_B_T.detach()), rows.adv_B_T, spec)


def _surrogate(log_s_B_T: Tensor, adv_B_T: Tensor, spec: ObjectiveSpec) -> ClipResult:
    ratio_B_T = log_s_B_T.clamp(-MAX_LOG_RATIO, MAX_SEQUENCE_LOG_RATIO).exp()
    return clipped_surrogate(ratio_B_T, adv_B_T, 1.0 - spec.clip_low, 1.0 + spec.clip_high)
