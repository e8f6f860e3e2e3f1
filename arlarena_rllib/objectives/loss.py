"""The policy objective: clipped surrogate + KL to the reference - entropy bonus, aggregated with global weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from arlarena_rllib.objectives import clipping
from arlarena_rllib.objectives.clipping import ClipInput, RowIds
from arlarena_rllib.objectives.context import context_of, needs_context
from arlarena_rllib.objectives.inputs import PolicyTensors, check_shapes, clean, policy_tensors
from arlarena_rllib.objectives.kl import reference_kl
from arlarena_rllib.objectives.metrics import importance_metrics
from arlarena_rllib.objectives.spec import ObjectiveSpec
from arlarena_rllib.objectives.weighting import policy_weights


@dataclass(frozen=True)
class ObjectiveResult:
    """Loss of some rows, and their raw metrics.

    Attributes:
        loss: 0-dim tensor with graph, to be minimised; parts of a batch add up.
        metrics: raw metrics, detached 0-dim tensors; see `merge_metrics` and `finish_metrics`.
    """

    loss: Tensor
    metrics: dict[str, Tensor]


def policy_objective(
    logp_B_T: Tensor,
    old_logp_B_T: Tensor,
    advantages: Tensor,
    mask_B_T: Tensor,
    weight_B: Tensor,
    spec: ObjectiveSpec,
    *,
    ref_logp_B_T: Tensor | None = None,
    entropy_B_T: Tensor | None = None,
    rollout_logp_B_T: Tensor | None = None,
    context: Mapping[str, Tensor] | None = None,
    ids: RowIds | None = None,
) -> ObjectiveResult:
    """Return the loss of some rows of a batch, and its raw metrics.

    ``loss = sum_i w_i sum_t m_it (M_i omega_it clip loss_it + kl_coef KL_it - entropy_coef H_it)``, with w_i from
    `global_denominators` of the whole batch, M the sequence mask and omega the mismatch weight (`policy_weights`; both 1
    by default). Source: the clipping and KL functions that the spec names; SAMPO 2602.21534 eq. 8. Differs from the
    released code in: denominators are global, so splitting a batch changes nothing.

    Args:
        logp_B_T: [B, T] float with graph, log-prob of each sampled token under the current policy. Half precision is
            computed in float32.
        old_logp_B_T: [B, T] float, under the policy of the rollout; no gradient flows into it.
        advantages: [B] or [B, T] float; no gradient flows into it.
        mask_B_T: [B, T] bool or 0/1, 1 = sampled by the policy.
        weight_B: [B] float, these rows' slice of `Denominators.weight_B`.
        spec: the point of the method grid.
        ref_logp_B_T: [B, T] float, under the reference policy; needed if kl_coef > 0. With kl_coef = 0 or
            kl_in = "reward" the KL is only measured.
        entropy_B_T: [B, T] float with graph, entropy of the policy at each token; needed if entropy_coef > 0.
        rollout_logp_B_T: [B, T] float, log-probs that the engine reported; needed unless mismatch = "off".
        context: these rows' slice of `batch_context`; read if `needs_context(spec)`.
        ids: instead of a context, if these rows are the whole minibatch.
    Returns:
        the loss and raw metrics. If every position is masked: exactly 0 with gradient exactly 0.
    Raises:
        ValueError: shapes do not fit, or a tensor that the spec needs is missing.
    Notes:
        Add the losses of micro-batches, do not average them; where learners average their gradients, multiply by their
        number. Anything, also inf and nan, may stand at masked positions of every tensor: values and gradients are as
        if it were 0. A nan at a policy token gives a nan loss.
    """
    rows = policy_tensors(logp_B_T, old_logp_B_T, advantages, mask_B_T, weight_B, rollout_logp_B_T)
    check_shapes(logp_B_T, {"ref_logp_B_T": ref_logp_B_T, "entropy_B_T": entropy_B_T})
    _check_needs(spec, ref_logp_B_T, entropy_B_T)
    context = _context(rows, spec, context, ids)

    clip = clipping.REGISTRY.get(spec.clipping)(
        ClipInput(rows.log_ratio_B_T, rows.adv_B_T, rows.mask_B_T, rows.logp_B_T, context), spec
    )
    weights = policy_weights(rows, spec, context)
    loss = _weighted_sum(clip.loss_B_T, weights.weight_B_T)
    metrics = importance_metrics(rows.log_ratio_B_T.detach(), rows.adv_B_T, rows.mask_B_T, clip) | weights.metrics
    metrics["sum/policy_loss"] = loss.detach()
    plain_B_T = torch.where(rows.mask_B_T, rows.weight_B.unsqueeze(-1), 0.0)
    if ref_logp_B_T is not None:
        ref_B_T = clean(ref_logp_B_T.detach(), rows.mask_B_T, like=rows.logp_B_T)
        kl_B_T = reference_kl(spec.kl_estimator, ref_B_T - rows.logp_B_T, rows.log_ratio_B_T)
        metrics["sum/ref_kl"] = torch.where(rows.mask_B_T, kl_B_T.detach(), 0.0).sum()
        if spec.kl_in == "loss":
            kl_loss = _weighted_sum(kl_B_T, plain_B_T)
            loss = loss + spec.kl_coef * kl_loss if spec.kl_coef != 0.0 else loss
            metrics["sum/kl_loss"] = kl_loss.detach()
    if entropy_B_T is not None:
        clean_B_T = clean(entropy_B_T, rows.mask_B_T)
        entropy_loss = -_weighted_sum(clean_B_T, plain_B_T)
        loss = loss + spec.entropy_coef * entropy_loss if spec.entropy_coef != 0.0 else loss
        metrics["sum/entropy_loss"] = entropy_loss.detach()
        metrics["sum/entropy"] = clean_B_T.detach().sum()
    metrics["sum/total_loss"] = loss.detach()
    return ObjectiveResult(loss, metrics)


def _weighted_sum(value_B_T: Tensor, weight_B_T: Tensor) -> Tensor:
    """Return ``sum w v`` over the tokens that have a weight; what stands elsewhere does not matter."""
    return (torch.where(weight_B_T != 0, value_B_T, 0.0) * weight_B_T).sum()


def _context(
    rows: PolicyTensors, spec: ObjectiveSpec, context: Mapping[str, Tensor] | None, ids: RowIds | None
) -> Mapping[str, Tensor]:
    if not needs_context(spec):
        return {}
    if context is None and ids is not None:
        return context_of(rows, spec, ids)
    if context is None:
        raise ValueError(
            f"clipping={spec.clipping!r} with seq_mask_norm={spec.seq_mask_norm!r} looks at the whole minibatch: pass "
            "context (these rows' slice of batch_context), or ids if these rows are all of it."
        )
    shapes = (rows.mask_B_T.shape, rows.mask_B_T.shape[:1])
    wrong = [f"{name} {tuple(value.shape)}" for name, value in context.items() if value.shape not in shapes]
    if wrong:
        raise ValueError(f"context must be sliced as logp_B_T {tuple(rows.mask_B_T.shape)}, not {', '.join(wrong)}.")
    return context


def _check_needs(spec: ObjectiveSpec, ref_logp_B_T: Tensor | None, entropy_B_T: Tensor | None) -> None:
    if spec.kl_coef != 0.0 and ref_logp_B_T is None:
        raise ValueError(f"kl_coef={spec.kl_coef} needs ref_logp_B_T; pass it, or set kl_coef=0.")
    if spec.entropy_coef != 0.0 and entropy_B_T is None:
        raise ValueError(f"entropy_coef={spec.entropy_coef} needs entropy_B_T; pass it, or set entropy_coef=0.")
