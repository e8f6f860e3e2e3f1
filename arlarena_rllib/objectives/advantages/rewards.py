"""What is rewarded: scores of episodes, rewards of turns and of tokens, with every cost that the spec switches on.

Costs are the format penalty, the overlong punishment and, with ``kl_in="reward"``, the KL to the reference. A sample of
the group statistics pays for itself: with ``adv_unit="row"`` a row pays its own overlong and KL costs, with ``"traj"``
the trajectory pays those of all its rows; where the format penalty lands is `penalty_scheme`'s business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from arlarena_rllib.objectives.advantages.rows import AdvantageRows
from arlarena_rllib.objectives.grouping import dense_index, sum_by_index
from arlarena_rllib.objectives.kl import kl_reward_penalty
from arlarena_rllib.objectives.scores import discounted_step_returns, penalised_scores
from arlarena_rllib.objectives.shaping import overlong_punishment

if TYPE_CHECKING:
    from arlarena_rllib.objectives.spec import ObjectiveSpec


@dataclass(frozen=True)
class Samples:
    """Samples of the group statistics (U = trajectories or rows).

    Attributes:
        value_U: [U] float, score of the sample, in the dtype of the episode returns.
        group_U: [U] int64.
        unit_of_row_B: [B] int64, the sample of each row.
    """

    value_U: Tensor
    group_U: Tensor
    unit_of_row_B: Tensor


def penalised_flag(rows: AdvantageRows, spec: ObjectiveSpec) -> Tensor:
    """Return the validity flag that the penalty looks at, [B] bool: action_valid or format_valid, by `penalise`."""
    return (rows.action_valid_B if spec.penalise == "action" else rows.format_valid_B).bool()


def format_scores(rows: AdvantageRows, spec: ObjectiveSpec) -> Tensor:
    """Return each row's episode return after the format penalty, [B] float64; see `penalised_scores`."""
    valid_B = penalised_flag(rows, spec)
    return penalised_scores(
        rows.episode_return_B,
        valid_B,
        rows.trajectory_id_B,
        penalty=spec.format_penalty,
        scheme=spec.penalty_scheme,
    )


def kl_costs(rows: AdvantageRows, spec: ObjectiveSpec) -> Tensor | None:
    """Return ``kl_coef * KL(old, ref)`` of each policy token, or None if the KL is not part of the reward.

    Source: InstructGPT 2203.02155 eq. 2; see `kl_reward_penalty`.

    Args:
        rows: reads mask_B_T, old_logp_B_T, ref_logp_B_T.
        spec: reads kl_in, kl_coef, kl_estimator.
    Returns:
        [B, T] float64, 0 at masked positions, no gradient.
    Raises:
        ValueError: the rows lack one of the three tensors.
    """
    if spec.kl_in != "reward" or spec.kl_coef == 0.0:
        return None
    for need in ("old_logp", "ref_logp"):
        rows.require(need, "kl_in='reward'")
    mask_B_T = policy_tokens(rows, "kl_in='reward'")
    old_B_T, ref_B_T = rows.old_logp_B_T.double(), rows.ref_logp_B_T.double()  # type: ignore[union-attr]
    return spec.kl_coef * kl_reward_penalty(old_B_T, ref_B_T, mask_B_T, spec.kl_estimator)


def overlong_costs(rows: AdvantageRows, spec: ObjectiveSpec) -> Tensor:
    """Return the overlong punishment of each row's reply as a cost, [B] float64 >= 0; 0 if it is switched off."""
    if spec.overlong_buffer == 0:
        return torch.zeros_like(rows.step_reward_B, dtype=torch.float64)
    if spec.overlong_max_len is None:
        raise ValueError("overlong_buffer needs overlong_max_len [tokens]; set it, or take spec.within(limit).")
    return -overlong_punishment(
        policy_tokens(rows, "overlong_buffer").sum(-1),
        max_len=spec.overlong_max_len,
        buffer=spec.overlong_buffer,
        factor=spec.overlong_factor,
    )


def episode_samples(rows: AdvantageRows, spec: ObjectiveSpec) -> Samples:
    """Return the samples of the group statistics: one per trajectory (mean of its rows' scores), or one per row.

    Args:
        rows: reads ids, episode returns, the penalised flag; token tensors if a cost needs them.
        spec: reads adv_unit, the format penalty, the overlong punishment, the KL in the reward.
    Returns:
        values in the dtype of the episode returns, so that "equal up to rounding" means rounding of the input.
    """
    score_B = format_scores(rows, spec)
    cost_B = overlong_costs(rows, spec) + _kl_of_rows(rows, spec)
    dtype = rows.episode_return_B.dtype
    if spec.adv_unit == "row":
        own_B = torch.arange(score_B.shape[0], device=score_B.device)
        return Samples((score_B - cost_B).to(dtype), rows.group_id_B, own_B)
    index_B, n = dense_index(rows.trajectory_id_B)
    size_N = sum_by_index(torch.ones_like(score_B), index_B, n)
    # Rounded before averaging: a trajectory's mean of equal scores must be that score.
    mean_N = sum_by_index(score_B.to(dtype).to(torch.float64), index_B, n) / size_N
    value_N = mean_N - sum_by_index(cost_B, index_B, n)
    group_N = torch.zeros(n, dtype=torch.int64, device=score_B.device)
    group_N.scatter_(0, index_B, rows.group_id_B.to(torch.int64))
    return Samples(value_N.to(dtype), group_N, index_B)


def turn_costs(rows: AdvantageRows, spec: ObjectiveSpec) -> Tensor:
    """Return all costs of each turn, [B] float64: format penalty if it is invalid, overlong punishment, KL."""
    invalid_B = (~penalised_flag(rows, spec)).to(torch.float64)
    return spec.format_penalty * invalid_B + overlong_costs(rows, spec) + _kl_of_rows(rows, spec)


def step_returns(rows: AdvantageRows, spec: ObjectiveSpec) -> Tensor:
    """Return the discounted return of each turn minus the turn's own costs, [B] float64.

    Costs are taken off after discounting, as in the released GiGPO code: a turn does not pay for later replies.

    Args:
        rows: reads ids, turn index, step rewards, what the costs need.
        spec: reads gamma and the costs.
    """
    returns_B = discounted_step_returns(rows.step_reward_B, rows.trajectory_id_B, rows.turn_index_B, gamma=spec.gamma)
    return returns_B - turn_costs(rows, spec)


def token_rewards(rows: AdvantageRows, spec: ObjectiveSpec) -> Tensor:
    """Return the reward of each token: the row's score at its last policy token, minus the KL cost of every token.

    Source: REINFORCE++ 2501.03262; InstructGPT 2203.02155.

    Args:
        rows: reads mask_B_T, episode returns, the penalised flag, what the costs need.
        spec: reads the format penalty, the overlong punishment, the KL in the reward.
    Returns:
        [B, T] float64; 0 at masked positions, and everywhere in a row without policy tokens.
    """
    mask_B_T = policy_tokens(rows, "token rewards")
    score_B = format_scores(rows, spec) - overlong_costs(rows, spec)
    reward_B_T = torch.where(last_policy_token(mask_B_T), score_B.unsqueeze(-1), 0.0)
    kl_B_T = kl_costs(rows, spec)
    return reward_B_T if kl_B_T is None else reward_B_T - kl_B_T


def policy_tokens(rows: AdvantageRows, who: str) -> Tensor:
    """Return mask_B_T as bool.

    Raises:
        ValueError: the rows have none.
    """
    rows.require("mask", who)
    return rows.mask_B_T.bool()  # type: ignore[union-attr]


def first_policy_token(mask_B_T: Tensor) -> Tensor:
    """Return where each row's first policy token stands, [B, T] bool, at most one per row."""
    return mask_B_T & (mask_B_T.cumsum(-1) == 1)


def last_policy_token(mask_B_T: Tensor) -> Tensor:
    """Return where each row's last policy token stands, [B, T] bool, at most one per row."""
    return mask_B_T & (mask_B_T.cumsum(-1) == mask_B_T.sum(-1, keepdim=True))


def _kl_of_rows(rows: AdvantageRows, spec: ObjectiveSpec) -> Tensor:
    kl_B_T = kl_costs(rows, spec)
    return torch.zeros_like(rows.step_reward_B, dtype=torch.float64) if kl_B_T is None else kl_B_T.sum(-1)
