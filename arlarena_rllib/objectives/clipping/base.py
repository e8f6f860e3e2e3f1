"""Registry of the clipping axis, its data classes, and the building blocks that the choices share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
class ClipInput:
    """What a clipping function may look at: clean tensors of some rows, 0 at masked positions.

    Masked positions of the result are ignored, so a function need not treat them.

    Attributes:
        log_ratio_B_T: [B, T] float with graph, d = log pi - log pi_old, not clamped.
        adv_B_T: [B, T] float.
        mask_B_T: [B, T] bool.
        logp_B_T: [B, T] float with graph, log pi.
        context: these rows' slice of what the choice's context function returned; empty if it has none.
    """

    log_ratio_B_T: Tensor
    adv_B_T: Tensor
    mask_B_T: Tensor
    logp_B_T: Tensor
    context: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class ClipResult:
    """Loss and activity of the bounds, token by token.

    Attributes:
        loss_B_T: [B, T] float with graph, to be minimised.
        clipped_low_B_T: [B, T] bool, the lower bound acted: no (or a bounded) gradient because the ratio is too small.
        clipped_high_B_T: [B, T] bool, the upper bound acted.
        selected_B_T: [B, T] bool, picked by its covariance; None for choices that pick nothing.
    """

    loss_B_T: Tensor
    clipped_low_B_T: Tensor
    clipped_high_B_T: Tensor
    selected_B_T: Tensor | None = None


@dataclass(frozen=True)
class RowIds:
    """Which row is which, so that a result for the whole minibatch does not depend on the order of its rows.

    Attributes:
        trajectory_id_B: [B] int64, equal = same trajectory.
        turn_index_B: [B] int64; no two rows share both ids.
        seed: of random picks; another one for every optimiser step.
    """

    trajectory_id_B: Tensor
    turn_index_B: Tensor
    seed: int = 0


@dataclass(frozen=True)
class WholeBatch:
    """What a context function may look at: detached clean tensors of all rows of the minibatch, as in `ClipInput`.

    Attributes:
        share_B: [B] float, summed weight of the row's tokens in the policy loss, masks and corrections included.
    """

    log_ratio_B_T: Tensor
    adv_B_T: Tensor
    mask_B_T: Tensor
    logp_B_T: Tensor
    share_B: Tensor
    ids: RowIds


ClipFn = Callable[[ClipInput, "ObjectiveSpec"], ClipResult]
ContextFn = Callable[[WholeBatch, "ObjectiveSpec"], dict[str, Tensor]]
REGISTRY: Registry[ClipFn] = Registry("clipping")
register = REGISTRY.register
CONTEXTS: dict[str, tuple[Callable[[ObjectiveSpec], bool], ContextFn]] = {}
"""Choice -> (whether this spec needs the whole minibatch, function that computes the context of all its rows)."""


def register_context(
    name: str, *, when: Callable[[ObjectiveSpec], bool] = lambda spec: True
) -> Callable[[ContextFn], ContextFn]:
    """Return a decorator that stores the context function of a choice; its tensors are [B] or [B, T], one row each."""

    def store(function: ContextFn) -> ContextFn:
        CONTEXTS[name] = (when, function)
        return function

    return store


def token_ratio(log_ratio_B_T: Tensor) -> Tensor:
    """Return ``r = exp(clamp(d, -20, 20))``, same shape; gradient r inside the clamp, 0 outside."""
    return log_ratio_B_T.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def row_log_ratio(log_ratio_B_T: Tensor, mask_B_T: Tensor) -> Tensor:
    """Return ``sum_t m clamp(d, -20, 20)``, [B, 1]: the log of the product of a row's token ratios.

    Args:
        log_ratio_B_T: [B, T] float; masked positions are left out, whatever they hold.
        mask_B_T: [B, T] bool.
    Returns:
        [B, 1] float, the sum itself not clamped; 0 for a row without policy tokens.
    """
    bounded_B_T = log_ratio_B_T.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return torch.where(mask_B_T, bounded_B_T, 0.0).sum(-1, keepdim=True)


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


def clipped_surrogate(ratio_B_T: Tensor, adv_B_T: Tensor, low: float, high: float) -> ClipResult:
    """Return ``-min(r A, clip(r, low, high) A)`` and where the bounds stop the gradient.

    Args:
        ratio_B_T: [B, T] float with graph.
        adv_B_T: [B, T] float.
        low, high: bounds on the ratio itself.
    Returns:
        token losses; clipped_low where A < 0 and r < low, clipped_high where A > 0 and r > high.
    """
    loss_B_T = -torch.minimum(ratio_B_T * adv_B_T, ratio_B_T.clamp(low, high) * adv_B_T)
    ratio_B_T = ratio_B_T.detach()
    return ClipResult(loss_B_T, (adv_B_T < 0) & (ratio_B_T < low), (adv_B_T > 0) & (ratio_B_T > high))


def unbounded(loss_B_T: Tensor) -> ClipResult:
    """Return the result of a choice without bounds: no token counts as clipped."""
    nowhere_B_T = torch.zeros_like(loss_B_T, dtype=torch.bool)
    return ClipResult(loss_B_T, nowhere_B_T, nowhere_B_T)
