"""Advantages turn by turn for rows that hold a whole conversation: apart into turns, and back to the rows' tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from arlarena_rllib.objectives import AdvantageResult
from arlarena_rllib.trajectory import APPEND, TokenBatch, TrajectoryGroup

TURN_NUMBER = "turn_number"
_OF_TRAJECTORY = ("group_id", "trajectory_id", "episode_return", "truncated", "bootstrap_value")


def turns_of_rows(groups: Sequence[TrajectoryGroup], rows: TokenBatch) -> TokenBatch:
    """Return what the turns of growing conversations are worth to an advantage, one entry per turn.

    Args:
        groups: Groups whose trajectories are one row each.
        rows: Their rows, from `build_token_batch`, in the order of the groups.

    Returns:
        ``row`` int64 [K] (number of the turn's row), ``turn_index``, ``anchor_id`` int64, ``step_reward`` float32,
        ``format_valid``, ``action_valid`` bool [K], all in order of rows and turns, and ``turn_number`` int32 [B, T]: to
        which turn a sampled token belongs, -1 elsewhere.
    """
    trajectories = [t for group in groups for t in group.trained]
    assert all(t.mode == APPEND for t in trajectories)
    turns = [(n, k, turn) for n, t in enumerate(trajectories) for k, turn in enumerate(t.turns)]
    anchors: dict[tuple[int, str], int] = {}
    group_of_row = rows["group_id"].tolist()
    (num_rows, width), first = rows["input_ids"].shape, 0
    number_B_T = np.full((num_rows, width), -1, dtype=np.int32)
    for n, trajectory in enumerate(trajectories):
        numbers = [
            number
            for k, turn in enumerate(trajectory.turns, start=first)
            for number in [*[-1] * len(turn.context_ids), *[k] * len(turn.response_ids)]
        ]
        number_B_T[n, width - len(numbers) :] = numbers
        first += len(trajectory.turns)
    return {
        "row": np.array([n for n, _, _ in turns], dtype=np.int64),
        "turn_index": np.array([k for _, k, _ in turns], dtype=np.int64),
        "anchor_id": np.array(
            [anchors.setdefault((group_of_row[n], turn.anchor), len(anchors)) for n, _, turn in turns], dtype=np.int64
        ),
        "step_reward": np.array([turn.reward for _, _, turn in turns], dtype=np.float32),
        "format_valid": np.array([turn.format_valid for _, _, turn in turns], dtype=bool),
        "action_valid": np.array([turn.action_valid for _, _, turn in turns], dtype=bool),
        TURN_NUMBER: number_B_T,
    }


def split_by_turn(rows: TokenBatch, turns: TokenBatch) -> TokenBatch:
    """Return the rows as if every turn were one of its own: columns [K] and [K, T], 0 at the tokens of other turns."""
    of_row_K = turns["row"]
    split = {name: rows[name][of_row_K] for name in _OF_TRAJECTORY if name in rows}
    split |= {name: column for name, column in turns.items() if name not in ("row", TURN_NUMBER)}
    row_U, token_U, turn_U = _places(turns)
    for name, column in rows.items():
        if column.ndim == 2 and np.issubdtype(column.dtype, np.floating):
            split[name] = np.zeros((len(of_row_K), column.shape[1]), dtype=column.dtype)
            split[name][turn_U, token_U] = column[row_U, token_U]
    return split


def joined(result: AdvantageResult, turns: TokenBatch) -> AdvantageResult:
    """Return the advantages of turns, and the critic's columns, as [B, T] at the tokens of the rows, 0 elsewhere."""
    row_U, token_U, turn_U = (torch.from_numpy(index) for index in _places(turns))
    shape = turns[TURN_NUMBER].shape

    def spread(value: Tensor) -> Tensor:
        out_B_T = torch.zeros(shape, dtype=value.dtype)
        out_B_T[row_U, token_U] = value[turn_U] if value.dim() == 1 else value[turn_U, token_U]
        return out_B_T

    parts = {name: spread(value) for name, value in result.parts.items()}
    return dataclasses.replace(result, advantages=spread(result.advantages), parts=parts)


def _places(turns: TokenBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return row, column and turn of every sampled token, int64 [U] each."""
    row_U, token_U = np.nonzero(turns[TURN_NUMBER] >= 0)
    return row_U, token_U, turns[TURN_NUMBER][row_U, token_U].astype(np.int64)
