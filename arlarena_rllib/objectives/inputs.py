"""Clean tensors of a policy update: one shape, one dtype, exact 0 at masked positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class PolicyTensors:
    """Tensors of some rows that the clipping, the weights and the context read.

    Attributes:
        logp_B_T: [B, T] float with graph, at least float32.
        log_ratio_B_T: [B, T] float with graph, log pi - log pi_old.
        adv_B_T: [B, T] float.
        mask_B_T: [B, T] bool.
        weight_B: [B] float, global denominators.
        log_rho_B_T: [B, T] float, log pi_old - log mu, or None without the engine's log-probs.
    """

    logp_B_T: Tensor
    log_ratio_B_T: Tensor
    adv_B_T: Tensor
    mask_B_T: Tensor
    weight_B: Tensor
    log_rho_B_T: Tensor | None


def policy_tensors(
    logp_B_T: Tensor,
    old_logp_B_T: Tensor,
    advantages: Tensor,
    mask_B_T: Tensor,
    weight_B: Tensor,
    rollout_logp_B_T: Tensor | None,
) -> PolicyTensors:
    """Return the clean tensors of some rows; only logp_B_T keeps its graph.

    Args:
        logp_B_T, old_logp_B_T, advantages, mask_B_T, weight_B, rollout_logp_B_T: see `policy_objective`.
    Returns:
        tensors on the device of logp_B_T, in its dtype or float32 if that is wider.
    Raises:
        ValueError: shapes do not fit.
    """
    full = {"old_logp_B_T": old_logp_B_T, "mask_B_T": mask_B_T, "rollout_logp_B_T": rollout_logp_B_T}
    check_shapes(logp_B_T, full)
    if advantages.shape not in (logp_B_T.shape, logp_B_T.shape[:1]):
        raise ValueError(
            f"advantages {tuple(advantages.shape)} must have the shape of logp_B_T {tuple(logp_B_T.shape)}, or [rows]."
        )
    if weight_B.shape != logp_B_T.shape[:1]:
        raise ValueError(
            f"weight_B has shape {tuple(weight_B.shape)} for {logp_B_T.shape[0]} rows; pass these rows' slice of "
            "global_denominators(...).weight_B."
        )
    mask_B_T = mask_B_T.bool()
    clean_B_T = clean(logp_B_T, mask_B_T)
    old_B_T = clean(old_logp_B_T.detach(), mask_B_T, like=clean_B_T)
    adv_B_T = advantages.unsqueeze(-1).expand(mask_B_T.shape) if advantages.dim() == 1 else advantages
    rho_B_T = None
    if rollout_logp_B_T is not None:
        rho_B_T = old_B_T - clean(rollout_logp_B_T.detach(), mask_B_T, like=clean_B_T)
    return PolicyTensors(
        logp_B_T=clean_B_T,
        log_ratio_B_T=clean_B_T - old_B_T,
        adv_B_T=clean(adv_B_T.detach(), mask_B_T, like=clean_B_T),
        mask_B_T=mask_B_T,
        weight_B=weight_B.detach().to(device=clean_B_T.device, dtype=clean_B_T.dtype),
        log_rho_B_T=rho_B_T,
    )


def clean(value_B_T: Tensor, mask_B_T: Tensor, *, like: Tensor | None = None) -> Tensor:
    """Return values with exact 0 at masked positions, in at least float32; gradients there are exactly 0."""
    dtype = like.dtype if like is not None else torch.promote_types(value_B_T.dtype, torch.float32)
    device = like.device if like is not None else value_B_T.device
    return torch.where(mask_B_T, value_B_T.to(device=device, dtype=dtype), 0.0)


def check_shapes(logp_B_T: Tensor, tensors: Mapping[str, Tensor | None]) -> None:
    """Check that every given tensor has the shape [rows, tokens] of the log-probs.

    Raises:
        ValueError: names each tensor that has another shape.
    """
    if logp_B_T.dim() != 2:
        raise ValueError(f"logp_B_T has shape {tuple(logp_B_T.shape)}; it must be [rows, tokens].")
    wrong = [
        f"{name} {tuple(value.shape)}"
        for name, value in tensors.items()
        if value is not None and value.shape != logp_B_T.shape
    ]
    if wrong:
        raise ValueError(f"these must have the shape of logp_B_T {tuple(logp_B_T.shape)}: {', '.join(wrong)}.")
