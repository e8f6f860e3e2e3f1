"""The data that rollouts produce: turns, trajectories, groups, and the one tensor schema they become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

WINDOWED, APPEND = "windowed", "append"
TRAJECTORY_MODES = (WINDOWED, APPEND)


class StopReason(StrEnum):
    """Why an episode ended. The first three are the environment's, the others the runner's."""

    SUCCESS = "success"
    FAILURE = "failure"
    MAX_TURNS = "max_turns"
    PROMPT_TOO_LONG = "prompt_too_long"
    ENV_ERROR = "env_error"
    ENV_TIMEOUT = "env_timeout"
    ENGINE_ERROR = "engine_error"

    @property
    def is_failed_episode(self) -> bool:
        """True when the episode says nothing about the policy, so it must not be trained on."""
        return self in (StopReason.ENV_ERROR, StopReason.ENV_TIMEOUT, StopReason.ENGINE_ERROR)


@dataclass
class Turn:
    """One reply of the policy and what the environment made of it.

    Attributes:
        context_ids: Tokens that precede the reply and were not sampled: the whole prompt of this turn (windowed), or
            what was added since the previous reply (append).
        response_ids: Sampled tokens, end token included, verbatim from the engine.
        response_logp: Their log-probabilities under the sampling distribution.
        response_mask: 1 where the policy chose the token, 0 where it was forced.
        weight_versions: Version of the weights that sampled each token.
        reply: Decoded reply, for reading and parsing only.
        thought: What the environment's reply form reads as the thought in it.
        anchor: State in which the turn was taken; equal strings mean equal states.
        reward: Reward of the environment for this turn.
        info: Numbers, flags and short texts of the environment's own info after the turn; empty unless asked for.
    """

    context_ids: list[int]
    response_ids: list[int]
    response_logp: list[float]
    response_mask: list[int]
    weight_versions: list[int]
    reply: str
    action: str
    format_valid: bool
    action_valid: bool
    anchor: str
    reward: float
    observation: str = ""
    finish_reason: str = "stop"
    cached_tokens: int = 0
    generate_s: float = 0.0
    env_s: float = 0.0
    thought: str = ""
    info: dict[str, Any] = field(default_factory=dict)


@dataclass
class Trajectory:
    """One episode of one task."""

    task_id: str
    group_id: int
    member: int
    mode: str = WINDOWED
    turns: list[Turn] = field(default_factory=list)
    stop_reason: StopReason = StopReason.MAX_TURNS
    success: bool = False
    error: str = ""
    retries: int = 0
    task_type: str = ""
    """Kind of task, if the environment tells one; success is also reported by kind."""
    env_metrics: dict[str, float] = field(default_factory=dict)
    """What the environment's info counts of the episode (`episode_metrics` of the last turn); reported as means."""
    final_context_ids: list[int] = field(default_factory=list)
    """Whole prompt of the turn that a limit prevented; a critic values the cut-off state by it. Empty otherwise."""

    @property
    def is_truncated(self) -> bool:
        """True when a limit ended the episode, not the task."""
        return self.stop_reason in (StopReason.MAX_TURNS, StopReason.PROMPT_TOO_LONG)

    @property
    def episode_return(self) -> float:
        """Sum of the environment's rewards, without any penalty."""
        return float(sum(turn.reward for turn in self.turns))

    @property
    def prompts(self) -> list[list[int]]:
        """What the engine was given for each turn; in append mode all of the conversation so far."""
        prompts: list[list[int]] = []
        conversation: list[int] = []
        for turn in self.turns:
            prompts.append(conversation + turn.context_ids)
            if self.mode == APPEND:
                conversation = prompts[-1] + turn.response_ids
        return prompts

    @property
    def prompt_lengths(self) -> list[int]:
        """Number of tokens of each of `prompts`."""
        given, lengths = 0, []
        for turn in self.turns:
            lengths.append(given + len(turn.context_ids))
            if self.mode == APPEND:
                given = lengths[-1] + len(turn.response_ids)
        return lengths

    @property
    def num_response_tokens(self) -> int:
        return sum(len(turn.response_ids) for turn in self.turns)


@dataclass
class TrajectoryGroup:
    """The episodes of one task that are compared with each other."""

    group_id: int
    task_id: str
    trajectories: list[Trajectory]

    @property
    def trained(self) -> list[Trajectory]:
        """Members that carry a learning signal: not failed for reasons outside the policy, and with a turn."""
        return [t for t in self.trajectories if not t.stop_reason.is_failed_episode and t.turns]


TokenBatch = dict[str, np.ndarray]
"""B rows of T tokens, left-padded so that the replies of one micro-batch end together.

``input_ids`` int64 [B, T], ``attention_mask`` int64 [B, T], ``loss_mask`` float32 [B, T] (1 = chosen by the policy),
``rollout_logp`` float32 [B, T] (engine's, 0 elsewhere), ``weight_version`` int64 [B, T] (-1 elsewhere) and per row
int64 ``group_id, trajectory_id, turn_index, anchor_id``, float32 ``step_reward, episode_return``,
bool ``success, format_valid, action_valid, truncated`` (a limit ended the episode), ``length_cut`` (a reply ran into
``max_response_tokens``). Numbers of groups, trajectories and anchors are dense from 0.
"""


def build_token_batch(groups: Sequence[TrajectoryGroup], *, pad_id: int) -> TokenBatch:
    """Return the rows of all trained trajectories: one per turn (windowed) or one per trajectory (append).

    Args:
        groups: Groups in the order in which they shall be numbered.
        pad_id: Token id for padding; its positions carry attention mask and loss mask 0, also if it equals the end id.

    Raises:
        ValueError: there is no row at all.
    """
    rows: list[dict[str, Any]] = []
    anchors: dict[tuple[int, str], int] = {}
    trajectory_id = 0
    for group_index, group in enumerate(groups):
        for trajectory in group.trained:
            for row in _rows_of(trajectory):
                key = (group_index, row.pop("anchor"))
                row["anchor_id"] = anchors.setdefault(key, len(anchors))
                row["group_id"], row["trajectory_id"] = group_index, trajectory_id
                rows.append(row)
            trajectory_id += 1
    if not rows:
        raise ValueError("build_token_batch: no trajectory has a turn to train on")
    width = max(len(row["input_ids"]) for row in rows)
    batch = {
        "input_ids": _left_padded(rows, "input_ids", width, pad_id, np.int64),
        "attention_mask": _left_padded(rows, "attention_mask", width, 0, np.int64),
        "loss_mask": _left_padded(rows, "loss_mask", width, 0.0, np.float32),
        "rollout_logp": _left_padded(rows, "rollout_logp", width, 0.0, np.float32),
        "weight_version": _left_padded(rows, "weight_version", width, -1, np.int64),
    }
    for name in ("group_id", "trajectory_id", "turn_index", "anchor_id"):
        batch[name] = np.array([row[name] for row in rows], dtype=np.int64)
    for name in ("step_reward", "episode_return"):
        batch[name] = np.array([row[name] for row in rows], dtype=np.float32)
    for name in ("success", "format_valid", "action_valid", "truncated", "length_cut"):
        batch[name] = np.array([row[name] for row in rows], dtype=bool)
    return batch


def turn_anchors(groups: Sequence[TrajectoryGroup]) -> list[str]:
    """Return the state of each turn that is trained on, as text, in the order of the rows and of their turns."""
    return [turn.anchor for group in groups for t in group.trained for turn in t.turns]


def final_state_batch(groups: Sequence[TrajectoryGroup], *, pad_id: int) -> tuple[TokenBatch, np.ndarray]:
    """Return one row per cut-off state, and the trajectory of each, numbered as in :func:`build_token_batch`.

    A row is the prompt of the turn that a limit prevented and one more token, so that the value at that last token is the
    value of the state. Episodes that the task ended, or whose next prompt did not fit, have no row.
    """
    trained = [t for group in groups for t in group.trained]
    numbers = [n for n, t in enumerate(trained) if t.is_truncated and t.final_context_ids]
    rows = [{"input_ids": [*trained[n].final_context_ids, pad_id]} for n in numbers]
    for row in rows:
        row["attention_mask"] = [1] * len(row["input_ids"])
    width = max((len(row["input_ids"]) for row in rows), default=1)
    batch = {
        "input_ids": _left_padded(rows, "input_ids", width, pad_id, np.int64),
        "attention_mask": _left_padded(rows, "attention_mask", width, 0, np.int64),
        "loss_mask": np.zeros((len(rows), width), dtype=np.float32),
    }
    batch["loss_mask"][:, -1:] = 1.0
    return batch, np.array(numbers, dtype=np.int64)


def _rows_of(trajectory: Trajectory) -> list[dict[str, Any]]:
    parts = [[turn] for turn in trajectory.turns] if trajectory.mode == WINDOWED else [trajectory.turns]
    return [_row(trajectory, turns, index) for index, turns in enumerate(parts)]


def _row(trajectory: Trajectory, turns: Sequence[Turn], turn_index: int) -> dict[str, Any]:
    ids: list[int] = []
    mask: list[float] = []
    logp: list[float] = []
    version: list[int] = []
    for turn in turns:
        gap = len(turn.context_ids)
        ids += turn.context_ids + turn.response_ids
        mask += [0.0] * gap + [float(m) for m in turn.response_mask]
        logp += [0.0] * gap + turn.response_logp
        version += [-1] * gap + turn.weight_versions
    return {
        "input_ids": ids,
        "attention_mask": [1] * len(ids),
        "loss_mask": mask,
        "rollout_logp": logp,
        "weight_version": version,
        "turn_index": turn_index,
        "anchor": turns[0].anchor,
        "step_reward": sum(turn.reward for turn in turns),
        "episode_return": trajectory.episode_return,
        "success": trajectory.success,
        "format_valid": all(turn.format_valid for turn in turns),
        "action_valid": all(turn.action_valid for turn in turns),
        "truncated": trajectory.is_truncated,
        "length_cut": any(turn.finish_reason == "length" for turn in turns),
    }


def _left_padded(rows: Sequence[dict[str, Any]], name: str, width: int, fill: float, dtype: Any) -> np.ndarray:
    out = np.full((len(rows), width), fill, dtype=dtype)
    for index, row in enumerate(rows):
        values = row[name]
        out[index, width - len(values) :] = values
    return out
