"""Advantages per token, whitened over the batch: REINFORCE++ and its variant with a group baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from arlarena_rllib.objectives.advantages.group_relative import BASELINE_READS
from arlarena_rllib.objectives.advantages.rewards import episode_samples, policy_tokens, token_rewards
from arlarena_rllib.objectives.advantages.rows import AdvantageRows
from arlarena_rllib.objectives.advantages.terms import AdvantageTerms, group_counts, register
from arlarena_rllib.objectives.grouping import group_normalise, whiten

if TYPE_CHECKING:
    from arlarena_rllib.objectives.spec import ObjectiveSpec


@register("reinforce_pp", reads=("token_gamma", "penalty_scheme"), needs=("mask",), rules_out=("row_advantages",))
def reinforce_pp(rows: AdvantageRows, spec: ObjectiveSpec) -> AdvantageTerms:
    """Return the discounted token returns of each row, whitened over all policy tokens of the batch.

    ``G_t = r_t + token_gamma G_{t+1}`` over the row's policy tokens; the reward is the row's score at its last one, and
    minus the KL cost at each with ``kl_in="reward"``. Source: REINFORCE++ 2501.03262. Differs from verl in: the return
    is carried across masked tokens inside a reply, and a batch of one token gives 0.

    Args:
        rows: ids, returns, validity, mask_B_T; old_logp_B_T and ref_logp_B_T for the KL.
        spec: reads token_gamma, penalty_scheme, and the costs.
    Returns:
        [B, T] advantages, exactly 0 if all returns are equal; parts token_reward, token_return.
    Raises:
        ValueError: a tensor that is needed is missing.
    """
    mask_B_T = policy_tokens(rows, "advantage='reinforce_pp'")
    reward_B_T = token_rewards(rows, spec)
    return_B_T = token_returns(reward_B_T, mask_B_T, gamma=spec.token_gamma)
    advantage_B_T = whiten_tokens(return_B_T.to(rows.episode_return_B.dtype), mask_B_T)
    return AdvantageTerms(advantage_B_T, {"token_reward": reward_B_T, "token_return": return_B_T})


@register("reinforce_pp_baseline", reads=BASELINE_READS, needs=("groups", "mask"))
def reinforce_pp_baseline(rows: AdvantageRows, spec: ObjectiveSpec) -> AdvantageTerms:
    """Return ``score - mean_group`` on each policy token, whitened over all policy tokens of the batch.

    Source: REINFORCE++-baseline 2501.03262. Differs from verl in: a group of one has the difference 0 unless
    adv_singleton is "raw". Whitening shifts by the mean over tokens, so a group of equal scores is not exactly 0 in a
    batch with others.

    Args:
        rows: ids, returns, validity, mask_B_T.
        spec: reads adv_unit, adv_singleton, and what scores read.
    Returns:
        [B, T] advantages, exactly 0 if no group has a difference; parts score, baseline_adv ([B], before whitening).
    Raises:
        ValueError: a tensor that is needed is missing.
    """
    mask_B_T = policy_tokens(rows, "advantage='reinforce_pp_baseline'")
    samples = episode_samples(rows, spec)
    centred_U = group_normalise(samples.value_U, samples.group_U, divide_by_std=False, singleton=spec.adv_singleton)
    centred_B = centred_U[samples.unit_of_row_B]
    tiled_B_T = centred_B.to(samples.value_U.dtype).unsqueeze(-1).expand(mask_B_T.shape)
    parts = {"score": samples.value_U[samples.unit_of_row_B], "baseline_adv": centred_B}
    return AdvantageTerms(whiten_tokens(tiled_B_T, mask_B_T), parts, group_counts(samples.value_U, samples.group_U))


def token_returns(reward_B_T: Tensor, mask_B_T: Tensor, *, gamma: float) -> Tensor:
    """Return ``G_t = r_t + gamma G_{t'}``, t' = the row's next policy token.

    Args:
        reward_B_T: [B, T] float64; read at policy tokens.
        mask_B_T: [B, T] bool.
        gamma: discount per policy token, in [0, 1].
    Returns:
        [B, T] float64, 0 at masked positions. Loops over the width T.
    """
    return_B_T = torch.zeros_like(reward_B_T)
    running_B = reward_B_T.new_zeros(reward_B_T.shape[0])
    for t in range(reward_B_T.shape[1] - 1, -1, -1):
        running_B = torch.where(mask_B_T[:, t], reward_B_T[:, t] + gamma * running_B, running_B)
        return_B_T[:, t] = torch.where(mask_B_T[:, t], running_B, 0.0)
    return return_B_T


def whiten_tokens(value_B_T: Tensor, mask_B_T: Tensor) -> Tensor:
    """Return `whiten` over the policy tokens of the batch, [B, T] float64, 0 at masked positions."""
    out_B_T = torch.zeros(value_B_T.shape, dtype=torch.float64, device=value_B_T.device)
    out_B_T[mask_B_T] = whiten(value_B_T[mask_B_T])
    return out_B_T
