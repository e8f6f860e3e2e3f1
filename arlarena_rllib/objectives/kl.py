"""KL divergence to the reference policy, token by token, estimated from one sample.

With x = log pi_ref - log pi, on a token that pi sampled. As a loss the estimators differ in their gradient: k1's has
mean 0 (useless as a penalty), k2's is the gradient of KL(pi, ref) in expectation, k3's that of KL(ref, pi).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from arlarena_rllib.objectives.clipping import MAX_LOG_RATIO, token_ratio
from arlarena_rllib.objectives.inputs import clean
from arlarena_rllib.objectives.registry import Registry

KlFn = Callable[[Tensor, Tensor], Tensor]
REGISTRY: Registry[KlFn] = Registry("kl_estimator")
register = REGISTRY.register
PLACES: tuple[str, ...] = ("loss", "reward")
"""Where the KL goes: into the loss with its gradient, or as a number into the reward."""
LOSS_ONLY: dict[str, str] = {
    "k3+": "it differs from k3 in its gradient only, and a reward has none; use k3 or k2",
    "k3_is": "its ratio is 1 when the reward is computed, before the first step; use k3",
}
"""Estimator -> why it makes no sense in the reward."""


@register("k1")
def k1(x_B_T: Tensor, log_ratio_B_T: Tensor) -> Tensor:
    """Return ``-x``; unbiased, may be negative. Source: joschu.net/blog/kl-approx. Gradient 1 per token."""
    return -x_B_T


@register("k2")
def k2(x_B_T: Tensor, log_ratio_B_T: Tensor) -> Tensor:
    """Return ``x^2 / 2``, >= 0. Source: joschu.net/blog/kl-approx. Gradient -x per token."""
    return 0.5 * x_B_T.square()


@register("k3")
def k3(x_B_T: Tensor, log_ratio_B_T: Tensor) -> Tensor:
    """Return ``exp(x) - x - 1``, >= 0. Source: GRPO 2402.03300 eq. 4; verl's low_var_kl without its cap at 10.

    Gradient 1 - exp(x) per token. Computed by expm1, which keeps its digits where x is tiny.
    """
    return x_B_T.expm1() - x_B_T


@register("k3+")
def k3_straight_through(x_B_T: Tensor, log_ratio_B_T: Tensor) -> Tensor:
    """Return the value of k3 with the gradient of k2. Source: verl's description of "k3+"."""
    k2_B_T = k2(x_B_T, log_ratio_B_T)
    return k2_B_T - k2_B_T.detach() + k3(x_B_T, log_ratio_B_T).detach()


@register("abs")
def absolute(x_B_T: Tensor, log_ratio_B_T: Tensor) -> Tensor:
    """Return ``|x|``. Source: verl's "abs". Gradient -sign(x) per token."""
    return x_B_T.abs()


@register("k3_is")
def k3_importance_sampled(x_B_T: Tensor, log_ratio_B_T: Tensor) -> Tensor:
    """Return ``r k3`` with the ratio r = pi / pi_old not detached: unbiased off policy, gradient r (log pi - log ref).

    Source: DeepSeek-V3.2 sec. 3.1.
    """
    return token_ratio(log_ratio_B_T) * k3(x_B_T, log_ratio_B_T)


def reference_kl(estimator: str, ref_minus_logp_B_T: Tensor, log_ratio_B_T: Tensor) -> Tensor:
    """Return the per-token KL to the reference by a named estimator.

    Args:
        estimator: "k1", "k2", "k3", "k3+", "abs" or "k3_is".
        ref_minus_logp_B_T: [B, T] float with graph, x = log pi_ref - log pi, 0 at masked positions; clamped to +-20.
        log_ratio_B_T: [B, T] float with graph, log pi - log pi_old, 0 at masked positions (read by k3_is).
    Returns:
        [B, T] float; 0 at masked positions.
    Raises:
        UnknownChoiceError: the estimator is not registered.
    """
    return REGISTRY.get(estimator)(ref_minus_logp_B_T.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO), log_ratio_B_T)


@torch.no_grad()
def kl_reward_penalty(old_logp_B_T: Tensor, ref_logp_B_T: Tensor, mask_B_T: Tensor, estimator: str) -> Tensor:
    """Return the per-token KL of the sampling policy to the reference, to be subtracted from the reward x kl_coef.

    The estimator with x = log pi_ref - log pi_old. Source: verl's KL in reward; with "k1" the policy gradient of this
    reward is the gradient of KL(pi, ref) in expectation, with the others it is biased.

    Args:
        old_logp_B_T: [B, T] float, under the policy before the update.
        ref_logp_B_T: [B, T] float, under the reference policy.
        mask_B_T: [B, T] bool or 0/1; masked positions may hold anything.
        estimator: any but "k3+" and "k3_is".
    Returns:
        [B, T] float in at least float32, no gradient, 0 at masked positions.
    Raises:
        ValueError: the estimator makes no sense in a reward.
        UnknownChoiceError: the estimator is not registered.
    """
    if estimator in LOSS_ONLY:
        raise ValueError(f"kl_estimator={estimator!r} cannot go into the reward: {LOSS_ONLY[estimator]}.")
    mask_B_T = mask_B_T.bool()
    old_B_T = clean(old_logp_B_T, mask_B_T)
    x_B_T = clean(ref_logp_B_T, mask_B_T, like=old_B_T) - old_B_T
    return torch.where(mask_B_T, reference_kl(estimator, x_B_T, torch.zeros_like(x_B_T)), 0.0)
