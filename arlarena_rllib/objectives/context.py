"""Context: what rows must know of the whole minibatch when they are split into micro-batches.

Most choices need none. Others look at rows that a micro-batch does not hold: products over a trajectory, picks by
covariance, denominators that count kept tokens only. Their context is computed once per optimiser step from all rows
of the minibatch, under the current policy and without gradient, and then travels with the rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from arlarena_rllib.objectives.clipping import CONTEXTS, RowIds, WholeBatch
from arlarena_rllib.objectives.inputs import PolicyTensors, policy_tensors
from arlarena_rllib.objectives.spec import ObjectiveSpec
from arlarena_rllib.objectives.weighting import KEPT_WEIGHT, kept_weight, needs_kept_weight, policy_weights


def needs_context(spec: ObjectiveSpec) -> bool:
    """Return whether `policy_objective` on a part of a minibatch needs the context of the whole one."""
    return needs_kept_weight(spec) or _clipping_needs_context(spec)


def batch_context(
    logp_B_T: Tensor,
    old_logp_B_T: Tensor,
    advantages: Tensor,
    mask_B_T: Tensor,
    weight_B: Tensor,
    spec: ObjectiveSpec,
    ids: RowIds,
    *,
    rollout_logp_B_T: Tensor | None = None,
) -> dict[str, Tensor]:
    """Return the context of a minibatch: named [B] or [B, T] tensors, to be sliced along with the rows.

    Args:
        logp_B_T: [B, T] float, under the policy that the step starts from.
        old_logp_B_T, advantages, mask_B_T, weight_B, rollout_logp_B_T: as for `policy_objective`, but of all rows of
            the minibatch; where several learners share it, of all of them.
        spec: the point of the method grid.
        ids: which row is which, and the seed of random picks.
    Returns:
        tensors without gradient; empty if the spec needs no context. The values do not depend on the order of the
        rows, up to rounding.
    Raises:
        ValueError: shapes do not fit.
    """
    with torch.no_grad():
        rows = policy_tensors(logp_B_T.detach(), old_logp_B_T, advantages, mask_B_T, weight_B, rollout_logp_B_T)
        return context_of(rows, spec, ids)


@torch.no_grad()
def context_of(rows: PolicyTensors, spec: ObjectiveSpec, ids: RowIds) -> dict[str, Tensor]:
    """Return the context of a minibatch from its clean tensors; see `batch_context`.

    Raises:
        ValueError: the ids are not one per row.
    """
    n_rows = rows.mask_B_T.shape[0]
    if ids.trajectory_id_B.shape != (n_rows,) or ids.turn_index_B.shape != (n_rows,):
        raise ValueError(
            f"trajectory_id_B {tuple(ids.trajectory_id_B.shape)} and turn_index_B {tuple(ids.turn_index_B.shape)} "
            f"must hold one id for each of the {n_rows} rows."
        )
    context: dict[str, Tensor] = {}
    if needs_kept_weight(spec):
        context[KEPT_WEIGHT] = kept_weight(rows, ids.trajectory_id_B, spec)
    if _clipping_needs_context(spec):
        share_B = policy_weights(rows, spec, context).weight_B_T.sum(-1)
        batch = WholeBatch(rows.log_ratio_B_T, rows.adv_B_T, rows.mask_B_T, rows.logp_B_T, share_B, ids)
        context |= CONTEXTS[spec.clipping][1](batch, spec)
    return context


def _clipping_needs_context(spec: ObjectiveSpec) -> bool:
    return spec.clipping in CONTEXTS and CONTEXTS[spec.clipping][0](spec)
