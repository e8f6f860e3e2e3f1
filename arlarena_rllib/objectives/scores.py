"""Scores of rows before any baseline: episode returns, the format penalty, discounted step returns."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from arlarena_rllib.objectives.grouping import dense_index, sum_by_index
from arlarena_rllib.objectives.registry import unknown_choice

PENALISED_FLAGS: tuple[str, ...] = ("action", "format")
"""Flags a penalty can look at."""


def episode_returns(step_reward_B: Tensor, trajectory_id_B: Tensor) -> Tensor:
    """Return the undiscounted return of each row's trajectory, ``R = sum_k r_k``.

    Args:
        step_reward_B: [B] float, reward of the row's turn.
        trajectory_id_B: [B] int64.
    Returns:
        [B] float, same dtype, equal for all rows of a trajectory.
    """
    index_B, n = dense_index(trajectory_id_B)
    return sum_by_index(step_reward_B.to(torch.float64), index_B, n)[index_B].to(step_reward_B.dtype)


def _turn(invalid_B: Tensor, index_B: Tensor, n: int) -> Tensor:
    return invalid_B


def _episode_sum(invalid_B: Tensor, index_B: Tensor, n: int) -> Tensor:
    return sum_by_index(invalid_B, index_B, n)[index_B]


def _episode_any(invalid_B: Tensor, index_B: Tensor, n: int) -> Tensor:
    return (_episode_sum(invalid_B, index_B, n) > 0).to(invalid_B.dtype)


_SCHEMES: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "turn": _turn,
    "episode_sum": _episode_sum,
    "episode_any": _episode_any,
}
PENALTY_SCHEMES: tuple[str, ...] = tuple(_SCHEMES)
"""Where a format penalty can land."""


def penalised_scores(
    episode_return_B: Tensor, valid_B: Tensor, trajectory_id_B: Tensor, *, penalty: float, scheme: str
) -> Tensor:
    """Return ``score_i = R(trajectory of i) - penalty * count_i``.

    count_i is, by scheme: "turn" 1 if row i is invalid (released ARLArena code); "episode_sum" the number of invalid
    rows of the trajectory; "episode_any" 1 if any row of the trajectory is invalid.
    Source: ARLArena 2602.21534 ("fixed penalty 0.1 added to the final reward") and its code.

    Args:
        episode_return_B: [B] float, return of the row's trajectory, before any penalty.
        valid_B: [B] bool.
        trajectory_id_B: [B] int64.
        penalty: >= 0, in units of reward.
        scheme: "turn", "episode_sum" or "episode_any".
    Returns:
        [B] float64.
    Raises:
        UnknownChoiceError: the scheme is none of the three.
    """
    if scheme not in _SCHEMES:
        raise unknown_choice("penalty_scheme", scheme, _SCHEMES)
    index_B, n = dense_index(trajectory_id_B)
    invalid_B = (~valid_B.bool()).to(torch.float64)
    return episode_return_B.to(torch.float64) - penalty * _SCHEMES[scheme](invalid_B, index_B, n)


def discounted_step_returns(
    step_reward_B: Tensor, trajectory_id_B: Tensor, turn_index_B: Tensor, *, gamma: float
) -> Tensor:
    """Return ``R_k = sum_{j >= k} gamma^(j-k) r_j`` over the later turns of the same trajectory.

    Source: GiGPO 2505.10978 eq. 5. Differs from the released code in: rows may come in any order, the turn index
    decides. A missing turn discounts by its gap. Loops over turn numbers (at most turns per episode), not over rows.

    Args:
        step_reward_B: [B] float.
        trajectory_id_B: [B] int64.
        turn_index_B: [B] int64, >= 0.
        gamma: discount per turn, in [0, 1].
    Returns:
        [B] float64.
    Raises:
        ValueError: a turn index is negative.
    """
    if turn_index_B.numel() == 0:
        return step_reward_B.to(torch.float64)
    if int(turn_index_B.min()) < 0:
        raise ValueError(f"turn_index_B holds {int(turn_index_B.min())}; turn numbers start at 0.")
    index_B, n = dense_index(trajectory_id_B)
    width = int(turn_index_B.max()) + 1
    flat_B = index_B * width + turn_index_B
    returns_N_K = sum_by_index(step_reward_B.to(torch.float64), flat_B, n * width).view(n, width)
    for turn in range(width - 2, -1, -1):
        returns_N_K[:, turn] += gamma * returns_N_K[:, turn + 1]
    return returns_N_K.view(-1)[flat_B]
