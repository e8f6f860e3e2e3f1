"""Weights on the policy loss: global denominators x sequence mask x mismatch correction, all in one place.

The KL and the entropy bonus keep the plain denominators: masking a row takes its policy gradient only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from arlarena_rllib.objectives.aggregation import global_denominators_from_counts
from arlarena_rllib.objectives.clipping import sequence_log_ratio
from arlarena_rllib.objectives.mismatch import mismatch_weight_metrics, mismatch_weights

if TYPE_CHECKING:
    from arlarena_rllib.objectives.inputs import PolicyTensors
    from arlarena_rllib.objectives.spec import ObjectiveSpec

SEQ_MASK_NORMS: tuple[str, ...] = ("all_tokens", "kept_tokens")
KEPT_WEIGHT = "kept_weight_B"


class PolicyWeights(NamedTuple):
    """Weight of each token in the policy loss, [B, T] float, 0 where masked; and raw metrics of the modifiers."""

    weight_B_T: Tensor
    metrics: dict[str, Tensor]


@torch.no_grad()
def policy_weights(rows: PolicyTensors, spec: ObjectiveSpec, context: Mapping[str, Tensor]) -> PolicyWeights:
    """Return ``w_i M_i omega_it``: denominators, sequence mask and mismatch weight of every token.

    Args:
        rows: clean tensors of some rows.
        spec: reads seq_mask_delta, seq_mask_norm, mismatch and what it switches on.
        context: holds kept_weight_B if the denominators count kept tokens only.
    Returns:
        weights without gradient, and raw metrics of the modifiers that are on.
    Raises:
        ValueError: the mismatch is on, but the rows carry no log-probs of the engine.
    """
    mask_B_T, metrics = rows.mask_B_T, {}
    weight_B = rows.weight_B
    if spec.seq_mask_delta is not None:
        keep_B = sequence_keep(rows.log_ratio_B_T, rows.adv_B_T, mask_B_T, spec.seq_mask_delta)
        if needs_kept_weight(spec):
            weight_B = context[KEPT_WEIGHT].to(weight_B)
        weight_B = torch.where(keep_B, weight_B, 0.0)
        metrics["sum/masked_rows"] = (~keep_B).sum()
    weight_B_T = torch.where(mask_B_T, weight_B.unsqueeze(-1), 0.0)
    if spec.mismatch != "off":
        if rows.log_rho_B_T is None:
            raise ValueError(f"mismatch={spec.mismatch!r} needs rollout_logp_B_T; pass it, or set mismatch='off'.")
        found = mismatch_weights(rows.log_rho_B_T, mask_B_T, spec)
        metrics |= mismatch_weight_metrics(found, mask_B_T)
        weight_B_T = weight_B_T * found.weight_B_T if spec.mismatch == "active" else weight_B_T
    return PolicyWeights(weight_B_T, metrics)


def sequence_keep(log_ratio_B_T: Tensor, adv_B_T: Tensor, mask_B_T: Tensor, delta: float) -> Tensor:
    """Return which rows sequence masking keeps: all but ``mean A < 0`` with ``(1/n) sum_t m log(pi_old / pi) > delta``.

    Source: DeepSeek-V3.2; ARLArena 2602.21534 table 1. A row is dropped when its advantage is negative and the policy
    has already moved away from it by more than delta.

    Args:
        log_ratio_B_T: [B, T] float, log pi - log pi_old.
        adv_B_T: [B, T] float.
        mask_B_T: [B, T] bool.
        delta: >= 0, nats per token.
    Returns:
        [B] bool; True for a row without policy tokens. A nan is not masked, so that it shows in the loss.
    """
    mean_adv_B = sequence_log_ratio(adv_B_T, mask_B_T).squeeze(-1)
    fallen_B = -sequence_log_ratio(log_ratio_B_T, mask_B_T).squeeze(-1) > delta
    return ~((mean_adv_B < 0) & fallen_B)


def needs_kept_weight(spec: ObjectiveSpec) -> bool:
    """Return whether the denominators depend on which rows the current policy keeps."""
    return spec.seq_mask_delta is not None and spec.seq_mask_norm == "kept_tokens"


def kept_weight(rows: PolicyTensors, trajectory_id_B: Tensor, spec: ObjectiveSpec) -> Tensor:
    """Return the row weights of a minibatch whose masked rows count as empty.

    Args:
        rows: clean tensors of the whole minibatch.
        trajectory_id_B: [B] int64.
        spec: reads seq_mask_delta and the aggregation.
    Returns:
        [B] float64, 0 for masked and empty rows.
    """
    assert spec.seq_mask_delta is not None
    keep_B = sequence_keep(rows.log_ratio_B_T, rows.adv_B_T, rows.mask_B_T, spec.seq_mask_delta)
    tokens_B = torch.where(keep_B, rows.mask_B_T.sum(-1), 0)
    return global_denominators_from_counts(tokens_B, trajectory_id_B, spec).weight_B
