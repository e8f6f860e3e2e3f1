"""What is written down of a trajectory: texts, rewards, advantages, ratios and flags, turn by turn, as plain JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from arlarena_rllib.objectives import ObjectiveSpec
from arlarena_rllib.objectives.shaping import overlong_punishment
from arlarena_rllib.trajectory import WINDOWED, TokenBatch, Trajectory, Turn

TEXT_CHARS, TRAJECTORY_CHARS = 16_000, 500_000
"""A longer text is cut; so are all texts after so many characters of a trajectory."""

Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class TurnTraining:
    """What training made of a turn (K policy tokens of it in the loss).

    Attributes:
        num_loss_tokens: K; 0 when the turn's row stayed out of the loss.
        advantage: mean over these tokens, None without any.
        log_ratio_K: log(π / π_old) when the row was last trained on, before that step; None when nothing was trained.
    """

    num_loss_tokens: int = 0
    advantage: float | None = None
    log_ratio_K: np.ndarray | None = None


def trajectory_record(
    trajectory: Trajectory, training: Sequence[TurnTraining], *, use: str, spec: ObjectiveSpec, decode: Decode
) -> dict[str, Any]:
    """Return a trajectory as plain JSON; not-finite numbers are None, long texts are cut and say so.

    Args:
        trajectory: What the rollout made.
        training: One per turn.
        use: What became of the trajectory, e.g. "trained".
        spec: Says which costs a turn pays.
        decode: Text of token ids, special tokens included.
    """
    texts = _Texts(TRAJECTORY_CHARS)
    is_windowed = trajectory.mode == WINDOWED
    turns = [
        _turn_record(turn, trained, texts, decode, _costs([turn], spec) if is_windowed else {})
        for turn, trained in zip(trajectory.turns, training, strict=True)
    ]
    return {
        "task_id": trajectory.task_id,
        "task_type": trajectory.task_type,
        "group": trajectory.group_id,
        "member": trajectory.member,
        "mode": trajectory.mode,
        "use": use,
        "success": trajectory.success,
        "stop_reason": trajectory.stop_reason.value,
        "error": texts.cut(trajectory.error),
        "retries": trajectory.retries,
        "return": _number(trajectory.episode_return),
        "env_metrics": {name: _number(value) for name, value in trajectory.env_metrics.items()},
        "costs": {} if is_windowed else _costs(trajectory.turns, spec),
        "turns": turns,
    }


def turns_training(
    trajectory: Trajectory, rows: TokenBatch, log_ratios: Mapping[tuple[int, int], np.ndarray], number: int
) -> list[TurnTraining]:
    """Return what training made of each turn of a trajectory.

    Args:
        trajectory: The trajectory.
        rows: ``turn_index``, ``loss_mask`` and ``advantages`` of its rows that are in the loss, in any order.
        log_ratios: `RowLogRatios` of the update.
        number: ``trajectory_id`` of the trajectory in the batch.
    """
    is_windowed = trajectory.mode == WINDOWED
    found = [TurnTraining() for _ in trajectory.turns]
    for row, index in enumerate(rows["turn_index"].tolist()):
        turns = [index] if is_windowed else range(len(trajectory.turns))
        mask_T, advantage = rows["loss_mask"][row] > 0, rows["advantages"][row]
        advantage_K = np.broadcast_to(advantage, mask_T.shape)[mask_T]
        log_ratio_K = log_ratios.get((number, index))
        ends = np.cumsum([0, *(sum(map(bool, trajectory.turns[turn].response_mask)) for turn in turns)])
        for turn, (begin, end) in zip(turns, pairwise(ends.tolist()), strict=True):
            own_K = advantage_K[begin:end]
            found[turn] = TurnTraining(
                num_loss_tokens=len(own_K),
                advantage=float(own_K.mean()) if len(own_K) else None,
                log_ratio_K=None if log_ratio_K is None else log_ratio_K[begin:end],
            )
    return found


@dataclass
class _Texts:
    """Cuts texts to what a trajectory may take."""

    left: int

    def cut(self, text: str) -> str:
        room = max(0, min(TEXT_CHARS, self.left))
        self.left -= min(len(text), room)
        if len(text) <= room:
            return text
        return f"{text[:room]}\n[cut: {len(text) - room} of {len(text)} characters are left out]"


def _turn_record(
    turn: Turn, trained: TurnTraining, texts: _Texts, decode: Decode, costs: dict[str, float]
) -> dict[str, Any]:
    return {
        "observation": texts.cut(turn.observation),
        "thought": texts.cut(turn.thought),
        "action": texts.cut(turn.action),
        "reply": texts.cut(decode(turn.response_ids)),
        "prompt": texts.cut(decode(turn.context_ids)),
        "format_valid": turn.format_valid,
        "action_valid": turn.action_valid,
        "reward": _number(turn.reward),
        "costs": costs,
        "info": {name: _plain(value, texts) for name, value in turn.info.items()},
        "finish_reason": turn.finish_reason,
        "prompt_tokens": len(turn.context_ids),
        "response_tokens": len(turn.response_ids),
        "forced_tokens": sum(not chosen for chosen in turn.response_mask),
        "loss_tokens": trained.num_loss_tokens,
        "weight_version": [min(turn.weight_versions), max(turn.weight_versions)] if turn.weight_versions else None,
        "advantage": _number(trained.advantage),
        **_ratios(trained.log_ratio_K),
        "generate_s": round(turn.generate_s, 4),
        "env_s": round(turn.env_s, 4),
    }


def _ratios(log_ratio_K: np.ndarray | None) -> dict[str, float | None]:
    """Return mean, smallest and largest ratio of a turn's tokens."""
    if log_ratio_K is None or not len(log_ratio_K):
        return {"ratio_mean": None, "ratio_min": None, "ratio_max": None}
    with np.errstate(over="ignore"):
        ratio_K = np.exp(log_ratio_K.astype(np.float64))
    return {
        "ratio_mean": _number(ratio_K.mean()),
        "ratio_min": _number(ratio_K.min()),
        "ratio_max": _number(ratio_K.max()),
    }


def _costs(turns: Sequence[Turn], spec: ObjectiveSpec) -> dict[str, float]:
    """Return the costs that the row of these turns pays beside the environment's rewards, without a KL."""
    costs = {}
    is_valid = all(turn.action_valid if spec.penalise == "action" else turn.format_valid for turn in turns)
    if spec.format_penalty and not is_valid:
        costs["format_penalty"] = float(spec.format_penalty)
    if spec.overlong_buffer and spec.overlong_max_len is not None:
        length = sum(sum(map(bool, turn.response_mask)) for turn in turns)
        cost = -overlong_punishment(
            torch.tensor([length]),
            max_len=spec.overlong_max_len,
            buffer=spec.overlong_buffer,
            factor=spec.overlong_factor,
        )
        if float(cost):
            costs["overlong"] = float(cost)
    return costs


def _plain(value: Any, texts: _Texts) -> Any:
    if isinstance(value, str):
        return texts.cut(value)
    return value if isinstance(value, (bool, int)) else _number(value)


def _number(value: Any) -> float | None:
    """Return a number that JSON has."""
    return float(f"{value:.6g}") if value is not None and math.isfinite(value) else None
