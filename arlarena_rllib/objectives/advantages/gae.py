"""Advantages from a critic: generalised advantage estimation over tokens or over turns.

The points at which the policy decides (its tokens, or its turns) form sequences in the order of time; rewards fall on
the decision before them. A trajectory that was truncated goes on with ``bootstrap_value_B``; one that the environment
ended is worth 0 afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from arlarena_rllib.objectives.advantages.rewards import (
    first_policy_token,
    kl_costs,
    overlong_costs,
    penalised_flag,
    policy_tokens,
    turn_costs,
)
from arlarena_rllib.objectives.advantages.rows import AdvantageRows
from arlarena_rllib.objectives.advantages.terms import AdvantageTerms, register
from arlarena_rllib.objectives.grouping import dense_index, turn_order, whiten

if TYPE_CHECKING:
    from arlarena_rllib.objectives.spec import ObjectiveSpec

_CRITIC_READS = ("gae_lambda", "adv_whiten", "value_coef", "value_clip")


@register(
    "gae_token",
    reads=("token_gamma", "adv_unit", *_CRITIC_READS),
    needs=("mask", "values"),
    rules_out=("row_advantages",),
)
def gae_token(rows: AdvantageRows, spec: ObjectiveSpec) -> AdvantageTerms:
    """Return GAE over policy tokens: ``A_t = delta_t + g l A_{t+1}``, ``delta_t = r_t + g V_{t+1} - V_t``.

    With adv_unit="traj" a sequence is a trajectory: the policy tokens of its rows one after the other, whether a row is
    a turn or the whole conversation; each turn's reward, less its costs, is on its last policy token. With "row" every
    row is a sequence of its own that ends there, with the episode's return on its last policy token (as codes do that
    train turns as separate samples). A KL in the reward is taken from each token.
    Source: GAE 1506.02438 eq. 16; PPO 1707.06347.

    Args:
        rows: ids, rewards, validity, mask_B_T, value_B_T, truncated_B, bootstrap_value_B where one is truncated.
        spec: reads token_gamma (g), gae_lambda (l), adv_unit, adv_whiten, and the costs.
    Returns:
        [B, T] advantages; parts returns (targets of the critic, A + V before whitening) and value_mask (where they
        count), both [B, T].
    Raises:
        ValueError: a tensor that is needed is missing, or a trajectory holds a turn twice.
    Notes:
        Loops over the longest sequence. Whitening is over all policy tokens of the batch.
    """
    rows.require("values", "advantage='gae_token'")
    mask_B_T = policy_tokens(rows, "advantage='gae_token'")
    invalid_B = (~penalised_flag(rows, spec)).to(torch.float64)
    is_row = spec.adv_unit == "row"
    reward_B = (rows.episode_return_B if is_row else rows.step_reward_B).to(torch.float64)
    reward_B = reward_B - spec.format_penalty * invalid_B - overlong_costs(rows, spec)
    at = _decisions(rows, mask_B_T, reward_B, is_row=is_row)
    kl_B_T = kl_costs(rows, spec)
    reward_U = at.reward_U if kl_B_T is None else at.reward_U - kl_B_T[at.row_U, at.token_U]
    advantage_U = _advantages(at, reward_U, gamma=spec.token_gamma, lam=spec.gae_lambda)
    advantage_B_T = _spread(_finished(advantage_U, rows, spec), at, mask_B_T)
    return AdvantageTerms(advantage_B_T, _critic_parts(advantage_U, at, mask_B_T))


@register("gae_turn", reads=("gamma", *_CRITIC_READS), needs=("mask", "values", "turns"))
def gae_turn(rows: AdvantageRows, spec: ObjectiveSpec) -> AdvantageTerms:
    """Return GAE over turns, one advantage for all tokens of a turn: ``delta_k = r_k + gamma V_{k+1} - V_k``.

    V_k is the critic's value before the turn's first policy token, r_k the turn's reward less its costs. A row without
    policy tokens is no decision: its reward falls on the turn before. Source: Turn-PPO 2512.17008.

    Args:
        rows: ids, turn index, rewards, validity, mask_B_T, value_B_T, truncated_B, bootstrap_value_B where one is
            truncated.
        spec: reads gamma, gae_lambda, adv_whiten, and the costs.
    Returns:
        [B] advantages, 0 for rows without policy tokens; parts returns (targets of the critic, A + V before whitening)
        and value_mask (each row's first policy token), both [B, T].
    Raises:
        ValueError: a tensor that is needed is missing, or a trajectory holds a turn twice.
    Notes:
        Loops over the turns of the longest trajectory. Whitening is over turns: a turn is one decision.
    """
    rows.require("values", "advantage='gae_turn'")
    first_B_T = first_policy_token(policy_tokens(rows, "advantage='gae_turn'"))
    reward_B = rows.step_reward_B.to(torch.float64) - turn_costs(rows, spec)
    at = _decisions(rows, first_B_T, reward_B, is_row=False)
    advantage_U = _advantages(at, at.reward_U, gamma=spec.gamma, lam=spec.gae_lambda)
    advantage_B = torch.zeros_like(reward_B)
    advantage_B[at.row_U] = _finished(advantage_U, rows, spec)
    return AdvantageTerms(advantage_B, _critic_parts(advantage_U, at, first_B_T))


def generalised_advantages(
    reward_S_W: Tensor, value_S_W: Tensor, count_S: Tensor, last_value_S: Tensor, *, gamma: float, lam: float
) -> Tensor:
    """Return ``A_j = delta_j + gamma lam A_{j+1}`` with ``delta_j = r_j + gamma V_{j+1} - V_j`` in each sequence.

    Source: GAE 1506.02438 eq. 16. lam = 1: discounted return minus V; lam = 0: delta.

    Args:
        reward_S_W, value_S_W: [S, W] float64, sequences from the left.
        count_S: [S] int64, length of each sequence, 0..W.
        last_value_S: [S] float64, value after the last decision.
        gamma, lam: in [0, 1].
    Returns:
        [S, W] float64, 0 beyond the end of a sequence.
    """
    advantage_S_W = torch.zeros_like(reward_S_W)
    next_advantage_S, next_value_S = torch.zeros_like(last_value_S), last_value_S
    for j in range(reward_S_W.shape[1] - 1, -1, -1):
        inside_S = j < count_S
        delta_S = reward_S_W[:, j] + gamma * next_value_S - value_S_W[:, j]
        next_advantage_S = torch.where(inside_S, delta_S + gamma * lam * next_advantage_S, 0.0)
        next_value_S = torch.where(inside_S, value_S_W[:, j], next_value_S)
        advantage_S_W[:, j] = next_advantage_S
    return advantage_S_W


@dataclass(frozen=True)
class _Decisions:
    """The U decisions of all S sequences, sequence by sequence, in the order of time."""

    row_U: Tensor
    token_U: Tensor
    sequence_U: Tensor
    position_U: Tensor
    reward_U: Tensor
    value_U: Tensor
    count_S: Tensor
    last_value_S: Tensor


def _decisions(rows: AdvantageRows, at_B_T: Tensor, reward_B: Tensor, *, is_row: bool) -> _Decisions:
    """Return the decisions at the given positions; a row's reward falls on its last one, or the last one before it.

    A reward before the first decision of its sequence is lost: nobody earned it.
    """
    sequence_B, n = dense_index(rows.trajectory_id_B)
    if is_row:
        sequence_B, n = torch.arange(len(sequence_B), device=sequence_B.device), len(sequence_B)
    order_B = turn_order(sequence_B, rows.turn_index_B)
    sorted_U, token_U = at_B_T[order_B].nonzero(as_tuple=True)
    row_U = order_B[sorted_U]
    sequence_U = sequence_B[row_U]
    count_S = torch.bincount(sequence_U, minlength=n)
    start_S = count_S.cumsum(0) - count_S
    latest_B = at_B_T[order_B].sum(-1).cumsum(0) - 1
    earned_B = latest_B >= start_S[sequence_B[order_B]]
    reward_U = torch.zeros(len(row_U), dtype=torch.float64, device=reward_B.device)
    reward_U.index_add_(0, latest_B[earned_B], reward_B[order_B][earned_B])
    value_U = rows.value_B_T[row_U, token_U].to(torch.float64).detach()  # type: ignore[index]
    position_U = torch.arange(len(row_U), device=row_U.device) - start_S[sequence_U]
    last_value_S = torch.zeros(n, dtype=torch.float64, device=reward_B.device)
    if not is_row:
        last_value_S.scatter_(0, sequence_B, _bootstrap(rows))
    return _Decisions(row_U, token_U, sequence_U, position_U, reward_U, value_U, count_S, last_value_S)


def _bootstrap(rows: AdvantageRows) -> Tensor:
    truncated_B = rows.truncated_B.bool()  # type: ignore[union-attr]
    if rows.bootstrap_value_B is None:
        if bool(truncated_B.any()):
            raise ValueError(
                f"{int(truncated_B.sum())} rows belong to truncated trajectories, but bootstrap_value_B is missing; pass "
                "the critic's value after their last turn, or mark them as not truncated to end them with 0."
            )
        return torch.zeros_like(rows.step_reward_B, dtype=torch.float64)
    return torch.where(truncated_B, rows.bootstrap_value_B.to(torch.float64).detach(), 0.0)


def _advantages(at: _Decisions, reward_U: Tensor, *, gamma: float, lam: float) -> Tensor:
    n, width = len(at.count_S), int(at.count_S.max()) if len(at.count_S) else 0
    flat_U = at.sequence_U * width + at.position_U
    table_2_S_W = torch.zeros(2, n * width, dtype=torch.float64, device=reward_U.device)
    table_2_S_W[0, flat_U], table_2_S_W[1, flat_U] = reward_U, at.value_U
    reward_S_W, value_S_W = table_2_S_W.view(2, n, width)
    out_S_W = generalised_advantages(reward_S_W, value_S_W, at.count_S, at.last_value_S, gamma=gamma, lam=lam)
    return out_S_W.view(-1)[flat_U]


def _finished(advantage_U: Tensor, rows: AdvantageRows, spec: ObjectiveSpec) -> Tensor:
    return whiten(advantage_U.to(rows.step_reward_B.dtype)) if spec.adv_whiten else advantage_U


def _spread(value_U: Tensor, at: _Decisions, like_B_T: Tensor) -> Tensor:
    out_B_T = torch.zeros(like_B_T.shape, dtype=torch.float64, device=value_U.device)
    out_B_T[at.row_U, at.token_U] = value_U
    return out_B_T


def _critic_parts(advantage_U: Tensor, at: _Decisions, at_B_T: Tensor) -> dict[str, Tensor]:
    return {"returns": _spread(advantage_U + at.value_U, at, at_B_T), "value_mask": at_B_T}
