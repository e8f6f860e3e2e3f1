"""Correction of the gap between the trainer's and the engine's policy: a detached weight per token from their ratio.

``rho = pi_old / mu``: pi_old is what the learner recomputed before the update, mu what the engine reported while
sampling. A sequence is a row. Denominators of the aggregation do not change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from arlarena_rllib.objectives.clipping import MAX_LOG_RATIO, row_log_ratio, sequence_log_ratio, token_ratio
from arlarena_rllib.objectives.registry import Registry

if TYPE_CHECKING:
    from arlarena_rllib.objectives.spec import ObjectiveSpec

MODES: tuple[str, ...] = ("off", "observe", "active")


class MismatchWeights(NamedTuple):
    """Weights on the policy loss and what the bounds did, [B, T] each; a row's values are equal for row choices.

    Attributes:
        weight_B_T: float, 0 where a token is masked out.
        truncated_B_T: bool, the weight was lowered to the cap.
    """

    weight_B_T: Tensor
    truncated_B_T: Tensor


MismatchFn = Callable[[Tensor, Tensor, "ObjectiveSpec"], MismatchWeights]
REGISTRY: Registry[MismatchFn] = Registry("mismatch_is")
register = REGISTRY.register


@register("none")
def none(log_rho_B_T: Tensor, mask_B_T: Tensor, spec: ObjectiveSpec) -> MismatchWeights:
    """Return weight 1, so that only the geometric mask acts; a nan stays a nan."""
    return MismatchWeights(torch.where(log_rho_B_T.isnan(), log_rho_B_T, 1.0), torch.zeros_like(mask_B_T))


@register("tis_token", reads=("mismatch_high",))
def tis_token(log_rho_B_T: Tensor, mask_B_T: Tensor, spec: ObjectiveSpec) -> MismatchWeights:
    """Return ``min(rho_t, mismatch_high)``: truncated importance sampling per token. Source: verl rollout correction."""
    return _truncated(token_ratio(log_rho_B_T), spec)


@register("tis_seq", reads=("mismatch_high",))
def tis_seq(log_rho_B_T: Tensor, mask_B_T: Tensor, spec: ObjectiveSpec) -> MismatchWeights:
    """Return ``min(prod_t rho_t, mismatch_high)`` on every token of the row. Source: verl rollout correction."""
    return _truncated(_row_product(log_rho_B_T, mask_B_T), spec)


@register("mis_token", reads=("mismatch_low", "mismatch_high"))
def mis_token(log_rho_B_T: Tensor, mask_B_T: Tensor, spec: ObjectiveSpec) -> MismatchWeights:
    """Return ``rho_t`` where mismatch_low <= rho_t <= mismatch_high, else 0. Source: verl, TRL (masked IS)."""
    return _masked(token_ratio(log_rho_B_T), spec)


@register("mis_seq", reads=("mismatch_low", "mismatch_high"))
def mis_seq(log_rho_B_T: Tensor, mask_B_T: Tensor, spec: ObjectiveSpec) -> MismatchWeights:
    """Return ``P = prod_t rho_t`` where mismatch_low <= P <= mismatch_high, else 0. Source: verl, TRL (masked IS)."""
    return _masked(_row_product(log_rho_B_T, mask_B_T), spec)


@torch.no_grad()
def mismatch_weights(log_rho_B_T: Tensor, mask_B_T: Tensor, spec: ObjectiveSpec) -> MismatchWeights:
    """Return the weight of every token: the choice of `mismatch_is`, times the geometric mask of its row.

    The geometric mask keeps a row if ``geo_low <= exp((1/n) sum_t m log rho) <= geo_high``; a bound of None is not
    tested. Source: verl rollout correction (geo x TIS is its recommended combination). Differs in: bounds are on rho
    itself, and a masked row still counts in the denominators.

    Args:
        log_rho_B_T: [B, T] float, log pi_old - log mu; clamped to +-20. Masked positions may hold anything.
        mask_B_T: [B, T] bool.
        spec: reads mismatch_is, its bounds, geo_low, geo_high.
    Returns:
        weights and activity, no gradient, weight 0 and False at masked positions.
    """
    d_B_T = torch.where(mask_B_T, log_rho_B_T, 0.0).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    found = REGISTRY.get(spec.mismatch_is)(d_B_T, mask_B_T, spec)
    geometric_B_1 = sequence_log_ratio(d_B_T, mask_B_T).exp()
    is_out_B_1 = torch.zeros_like(geometric_B_1, dtype=torch.bool)
    if spec.geo_low is not None:
        is_out_B_1 = is_out_B_1 | (geometric_B_1 < spec.geo_low)
    if spec.geo_high is not None:
        is_out_B_1 = is_out_B_1 | (geometric_B_1 > spec.geo_high)
    kept_B_T = mask_B_T & ~is_out_B_1
    return MismatchWeights(torch.where(kept_B_T, found.weight_B_T, 0.0), found.truncated_B_T & kept_B_T)


def mismatch_weight_metrics(found: MismatchWeights, mask_B_T: Tensor) -> dict[str, Tensor]:
    """Return raw metrics of the correction: weights, masked tokens and rows, truncated tokens.

    Args:
        found: result of `mismatch_weights`.
        mask_B_T: [B, T] bool.
    Returns:
        sums; a row counts as masked if all its policy tokens have weight 0.
    """
    is_masked_B_T = mask_B_T & (found.weight_B_T == 0)
    return {
        "sum/mismatch_weight": found.weight_B_T.sum(),
        "sum/mismatch_masked_tokens": is_masked_B_T.sum(),
        "sum/mismatch_masked_rows": (mask_B_T.any(-1) & (is_masked_B_T == mask_B_T).all(-1)).sum(),
        "sum/mismatch_truncated_tokens": found.truncated_B_T.sum(),
    }


def _row_product(log_rho_B_T: Tensor, mask_B_T: Tensor) -> Tensor:
    return token_ratio(row_log_ratio(log_rho_B_T, mask_B_T)).expand_as(log_rho_B_T)


def _truncated(rho_B_T: Tensor, spec: ObjectiveSpec) -> MismatchWeights:
    return MismatchWeights(rho_B_T.clamp(max=spec.mismatch_high), rho_B_T > spec.mismatch_high)


def _masked(rho_B_T: Tensor, spec: ObjectiveSpec) -> MismatchWeights:
    # "is out" rather than "is in": a nan must not be masked away.
    is_out_B_T = (rho_B_T < spec.mismatch_low) | (rho_B_T > spec.mismatch_high)
    return MismatchWeights(torch.where(is_out_B_T, 0.0, rho_B_T), torch.zeros_like(is_out_B_T))
