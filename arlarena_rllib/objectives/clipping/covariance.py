"""Clip-Cov and KL-Cov: hold back the few tokens where advantage and log-prob vary together most.

Those tokens drive the fall of the entropy. They are picked over the whole minibatch, so the picks are context.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from arlarena_rllib.objectives.clipping.base import (
    MAX_LOG_RATIO,
    ClipInput,
    ClipResult,
    RowIds,
    WholeBatch,
    clipped_surrogate,
    register,
    register_context,
    token_ratio,
    unbounded,
)

if TYPE_CHECKING:
    from arlarena_rllib.objectives.spec import ObjectiveSpec

_NOISE = 1e-5
SELECTED = "selected_B_T"


@register("clip_cov", reads=("clip_low", "clip_high", "cov_low", "cov_high", "cov_frac"))
def clip_cov(rows: ClipInput, spec: ObjectiveSpec) -> ClipResult:
    """Return the loss of "ppo" without the tokens that `clip_cov_context` picked (their loss and gradient are 0).

    Source: 2505.22617 (Clip-Cov); the PPO clip of the other tokens: verl's clip_cov. The denominators of the
    aggregation do not change.

    Args:
        rows: reads log_ratio_B_T, adv_B_T and the context.
        spec: reads clip_low, clip_high; the context reads cov_low, cov_high, cov_frac.
    Returns:
        token losses, and the picked tokens.
    """
    selected_B_T = rows.context[SELECTED].bool()
    clip = _ppo(rows, spec)
    return replace(clip, loss_B_T=torch.where(selected_B_T, 0.0, clip.loss_B_T), selected_B_T=selected_B_T)


@register_context("clip_cov")
def clip_cov_context(batch: WholeBatch, spec: ObjectiveSpec) -> dict[str, Tensor]:
    """Return a random ``max(1, floor(cov_frac n_tokens))`` of the tokens with cov_low < cov < cov_high.

    Tokens that the PPO bounds clip already are no candidates.

    Args:
        batch: all rows; the pick follows from the seed and does not depend on the order of the rows or on padding.
        spec: reads clip_low, clip_high, cov_low, cov_high, cov_frac.
    Returns:
        selected_B_T [B, T] bool; all False without a candidate.
    """
    cov_B_T = policy_covariance(batch.adv_B_T, batch.logp_B_T, batch.mask_B_T)
    clip = _ppo(batch, spec)
    is_free_B_T = batch.mask_B_T & ~clip.clipped_low_B_T & ~clip.clipped_high_B_T
    place_C_2 = _ordered_places(is_free_B_T & (spec.cov_low < cov_B_T) & (cov_B_T < spec.cov_high), batch.ids)
    generator = torch.Generator().manual_seed(batch.ids.seed)
    order_C = torch.randperm(place_C_2.shape[0], generator=generator).to(place_C_2.device)
    return {SELECTED: _marked(place_C_2[order_C[: _how_many(batch.mask_B_T, spec)]], batch.mask_B_T)}


@register("kl_cov", reads=("cov_frac", "cov_coef"))
def kl_cov(rows: ClipInput, spec: ObjectiveSpec) -> ClipResult:
    """Return ``l = -r A``, plus ``cov_coef |d|`` on the tokens that `kl_cov_context` picked; no clip.

    Source: 2505.22617 (KL-Cov); |d| (k1 of the step, absolute) as in verl's kl_cov. Differs in: |d| up to 1e-5 has no
    gradient. On-policy d is rounding noise, and its sign would push every picked token one way or the other.

    Args:
        rows: reads log_ratio_B_T, adv_B_T and the context.
        spec: reads cov_coef; the context reads cov_frac.
    Returns:
        token losses, and the picked tokens; no token counts as clipped.
    """
    selected_B_T = rows.context[SELECTED].bool()
    d_B_T = rows.log_ratio_B_T.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    moved_B_T = selected_B_T & (d_B_T.detach().abs() > _NOISE)
    loss_B_T = -d_B_T.exp() * rows.adv_B_T + torch.where(moved_B_T, spec.cov_coef * d_B_T.abs(), 0.0)
    return replace(unbounded(loss_B_T), selected_B_T=selected_B_T)


@register_context("kl_cov")
def kl_cov_context(batch: WholeBatch, spec: ObjectiveSpec) -> dict[str, Tensor]:
    """Return the ``max(1, floor(cov_frac n_tokens))`` tokens with the largest covariance.

    Args:
        batch: all rows; ties are broken by trajectory, turn and position.
        spec: reads cov_frac.
    Returns:
        selected_B_T [B, T] bool; all False without a policy token.
    """
    cov_B_T = policy_covariance(batch.adv_B_T, batch.logp_B_T, batch.mask_B_T)
    place_C_2 = _ordered_places(batch.mask_B_T, batch.ids)
    order_C = cov_B_T[place_C_2[:, 0], place_C_2[:, 1]].argsort(descending=True, stable=True)
    return {SELECTED: _marked(place_C_2[order_C[: _how_many(batch.mask_B_T, spec)]], batch.mask_B_T)}


def policy_covariance(adv_B_T: Tensor, logp_B_T: Tensor, mask_B_T: Tensor) -> Tensor:
    """Return ``(A - mean A)(log pi - mean log pi)`` of each policy token, means over all policy tokens.

    Source: 2505.22617.

    Args:
        adv_B_T: [B, T] float, whole minibatch.
        logp_B_T: [B, T] float, detached.
        mask_B_T: [B, T] bool; masked positions may hold anything.
    Returns:
        [B, T] float64, 0 at masked positions.
    """
    n_tokens = mask_B_T.sum().clamp(min=1)
    centred = []
    for value_B_T in (adv_B_T, logp_B_T):
        exact_B_T = torch.where(mask_B_T, value_B_T.to(torch.float64), 0.0)
        centred.append(torch.where(mask_B_T, exact_B_T - exact_B_T.sum() / n_tokens, 0.0))
    return centred[0] * centred[1]


def _ppo(rows: ClipInput | WholeBatch, spec: ObjectiveSpec) -> ClipResult:
    return clipped_surrogate(token_ratio(rows.log_ratio_B_T), rows.adv_B_T, 1.0 - spec.clip_low, 1.0 + spec.clip_high)


def _how_many(mask_B_T: Tensor, spec: ObjectiveSpec) -> int:
    return max(1, int(spec.cov_frac * int(mask_B_T.sum())))


def _ordered_places(candidate_B_T: Tensor, ids: RowIds) -> Tensor:
    """Return (row, column) of the candidates, [C, 2], ordered by trajectory, turn and column."""
    by_turn_B = ids.turn_index_B.argsort(stable=True)
    order_B = by_turn_B[ids.trajectory_id_B[by_turn_B].argsort(stable=True)]
    place_C_2 = candidate_B_T[order_B].nonzero()
    return torch.stack([order_B[place_C_2[:, 0]], place_C_2[:, 1]], dim=1)


def _marked(place_K_2: Tensor, mask_B_T: Tensor) -> Tensor:
    selected_B_T = torch.zeros_like(mask_B_T)
    selected_B_T[place_K_2[:, 0], place_K_2[:, 1]] = True
    return selected_B_T
