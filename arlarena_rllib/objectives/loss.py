"""The policy objective: clipped surrogate + KL to the reference - entropy bonus, aggregated with global weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from arlarena_rllib.objectives import clipping
from arlarena_rllib.objectives.kl import reference_kl
from arlarena_rllib.objectives.metrics import importance_metrics
from arlarena_rllib.objectives.spec import ObjectiveSpec


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
) -> ObjectiveResult:
    """Return the loss of some rows of a batch, and its raw metrics.

    ``loss = sum_i w_i sum_t m_it (clip loss_it + kl_coef KL_it - entropy_coef H_it)``, with w_i from
    `global_denominators` of the whole batch. Source: the clipping and KL functions that the spec names; SAMPO
    2602.21534 eq. 8. Differs from the released code in: denominators are global, so splitting a batch changes nothing.

    Args:
        logp_B_T: [B, T] float with graph, log-prob of each sampled token under the current policy. Half precision is
            computed in float32.
        old_logp_B_T: [B, T] float, under the policy of the rollout; no gradient flows into it.
        advantages: [B] or [B, T] float; no gradient flows into it.
        mask_B_T: [B, T] bool or 0/1, 1 = sampled by the policy.
        weight_B: [B] float, these rows' slice of `Denominators.weight_B`.
        spec: the point of the method grid.
        ref_logp_B_T: [B, T] float, under the reference policy; needed if kl_coef > 0. With kl_coef = 0 the KL is only
            measured.
        entropy_B_T: [B, T] float with graph, entropy of the policy at each token; needed if entropy_coef > 0.
    Returns:
        the loss and raw metrics. If every position is masked: exactly 0 with gradient exactly 0.
    Raises:
        ValueError: shapes do not fit, or a tensor that the spec needs is missing.
    Notes:
        Add the losses of micro-batches, do not average them; where learners average their gradients, multiply by their
        number. Anything, also inf and nan, may stand at masked positions of every tensor: values and gradients are as
        if it were 0. A nan at a policy token gives a nan loss.
    """
    _check_shapes(logp_B_T, old_logp_B_T, advantages, mask_B_T, weight_B, ref_logp_B_T, entropy_B_T)
    _check_needs(spec, ref_logp_B_T, entropy_B_T)
    mask_B_T = mask_B_T.bool()
    logp_B_T = _clean(logp_B_T, mask_B_T)
    log_ratio_B_T = logp_B_T - _clean(old_logp_B_T.detach(), mask_B_T, like=logp_B_T)
    adv_B_T = _clean(_per_token(advantages, mask_B_T).detach(), mask_B_T, like=logp_B_T)
    weight_B = weight_B.detach().to(device=logp_B_T.device, dtype=logp_B_T.dtype)

    clip = clipping.REGISTRY.get(spec.clipping)(log_ratio_B_T, adv_B_T, mask_B_T, logp_B_T, spec)
    policy_loss = _aggregate(clip.loss_B_T, mask_B_T, weight_B)
    metrics = importance_metrics(log_ratio_B_T.detach(), adv_B_T, mask_B_T, clip)
    metrics["sum/policy_loss"] = policy_loss.detach()
    loss = policy_loss
    if ref_logp_B_T is not None:
        ref_B_T = _clean(ref_logp_B_T.detach(), mask_B_T, like=logp_B_T)
        kl_B_T = reference_kl(spec.kl_estimator, ref_B_T - logp_B_T, log_ratio_B_T)
        kl_loss = _aggregate(kl_B_T, mask_B_T, weight_B)
        loss = loss + spec.kl_coef * kl_loss if spec.kl_coef != 0.0 else loss
        metrics["sum/kl_loss"] = kl_loss.detach()
        metrics["sum/ref_kl"] = torch.where(mask_B_T, kl_B_T.detach(), 0.0).sum()
    if entropy_B_T is not None:
        clean_B_T = _clean(entropy_B_T, mask_B_T)
        entropy_loss = -_aggregate(clean_B_T, mask_B_T, weight_B)
        loss = loss + spec.entropy_coef * entropy_loss if spec.entropy_coef != 0.0 else loss
        metrics["sum/entropy_loss"] = entropy_loss.detach()
        metrics["sum/entropy"] = clean_B_T.detach().sum()
    metrics["sum/total_loss"] = loss.detach()
    return ObjectiveResult(loss, metrics)


def _aggregate(value_B_T: Tensor, mask_B_T: Tensor, weight_B: Tensor) -> Tensor:
    """Return ``sum_i w_i sum_t m v``; the weights are 0 for rows without policy tokens."""
    return (torch.where(mask_B_T, value_B_T, 0.0).sum(-1) * weight_B).sum()


def _clean(value_B_T: Tensor, mask_B_T: Tensor, *, like: Tensor | None = None) -> Tensor:
    """Return values with exact 0 at masked positions, in at least float32; gradients there are exactly 0."""
    dtype = like.dtype if like is not None else torch.promote_types(value_B_T.dtype, torch.float32)
    device = like.device if like is not None else value_B_T.device
    return torch.where(mask_B_T, value_B_T.to(device=device, dtype=dtype), 0.0)


def _per_token(advantages: Tensor, mask_B_T: Tensor) -> Tensor:
    return advantages.unsqueeze(-1).expand(mask_B_T.shape) if advantages.dim() == 1 else advantages


def _check_shapes(
    logp_B_T: Tensor,
    old_logp_B_T: Tensor,
    advantages: Tensor,
    mask_B_T: Tensor,
    weight_B: Tensor,
    ref_logp_B_T: Tensor | None,
    entropy_B_T: Tensor | None,
) -> None:
    if logp_B_T.dim() != 2:
        raise ValueError(f"logp_B_T has shape {tuple(logp_B_T.shape)}; it must be [rows, tokens].")
    full = {
        "old_logp_B_T": old_logp_B_T,
        "mask_B_T": mask_B_T,
        "ref_logp_B_T": ref_logp_B_T,
        "entropy_B_T": entropy_B_T,
    }
    wrong = [
        f"{name} {tuple(value.shape)}"
        for name, value in full.items()
        if value is not None and value.shape != logp_B_T.shape
    ]
    if advantages.shape not in (logp_B_T.shape, logp_B_T.shape[:1]):
        wrong.append(f"advantages {tuple(advantages.shape)} (also [rows])")
    if wrong:
        raise ValueError(f"these must have the shape of logp_B_T {tuple(logp_B_T.shape)}: {', '.join(wrong)}.")
    if weight_B.shape != logp_B_T.shape[:1]:
        raise ValueError(
            f"weight_B has shape {tuple(weight_B.shape)} for {logp_B_T.shape[0]} rows; pass these rows' slice of "
            "global_denominators(...).weight_B."
        )


def _check_needs(spec: ObjectiveSpec, ref_logp_B_T: Tensor | None, entropy_B_T: Tensor | None) -> None:
    if spec.kl_coef != 0.0 and ref_logp_B_T is None:
        raise ValueError(f"kl_coef={spec.kl_coef} needs ref_logp_B_T; pass it, or set kl_coef=0.")
    if spec.entropy_coef != 0.0 and entropy_B_T is None:
        raise ValueError(f"entropy_coef={spec.entropy_coef} needs entropy_B_T; pass it, or set entropy_coef=0.")
