"""Trajectories become rows without a token lost, added or re-encoded."""

from __future__ import annotations

import numpy as np
import pytest

from arlarena_rllib.trajectory import APPEND, StopReason, Trajectory, TrajectoryGroup, Turn, build_token_batch


def _turn(
    context: list[int], response: list[int], *, reward: float = 0.0, anchor: str = "s", mask: list[int] | None = None
) -> Turn:
    return Turn(
        context_ids=context,
        response_ids=response,
        response_logp=[-0.5 - i for i in range(len(response))],
        response_mask=mask or [1] * len(response),
        weight_versions=[3] * len(response),
        reply="",
        action="up",
        format_valid=True,
        action_valid=True,
        anchor=anchor,
        reward=reward,
    )


def _group(*trajectories: Trajectory, group_id: int = 7) -> TrajectoryGroup:
    return TrajectoryGroup(group_id, "task", list(trajectories))


def test_windowed_rows_are_one_per_turn_and_left_padded() -> None:
    trajectory = Trajectory("t", 7, 0, turns=[_turn([1, 2, 3], [4, 5], reward=1.0), _turn([6], [8, 9], reward=2.0)])
    batch = build_token_batch([_group(trajectory)], pad_id=0)
    assert batch["input_ids"].tolist() == [[1, 2, 3, 4, 5], [0, 0, 6, 8, 9]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]]
    assert batch["loss_mask"].tolist() == [[0, 0, 0, 1, 1], [0, 0, 0, 1, 1]]
    assert batch["rollout_logp"][1].tolist() == [0, 0, 0, -0.5, -1.5]
    assert batch["weight_version"][0].tolist() == [-1, -1, -1, 3, 3]
    assert batch["turn_index"].tolist() == [0, 1]
    assert batch["step_reward"].tolist() == [1.0, 2.0]
    assert batch["episode_return"].tolist() == [3.0, 3.0]


def test_append_row_holds_the_conversation_with_environment_tokens_masked() -> None:
    turns = [_turn([1, 2], [3, 4]), _turn([5, 6, 7], [8], mask=[1]), _turn([9], [10, 11], mask=[1, 0])]
    batch = build_token_batch([_group(Trajectory("t", 0, 0, mode=APPEND, turns=turns))], pad_id=99)
    assert batch["input_ids"].tolist() == [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]]
    assert batch["loss_mask"].tolist() == [[0, 0, 1, 1, 0, 0, 0, 1, 0, 1, 0]]


def test_end_token_equal_to_pad_token_stays_trained_on() -> None:
    batch = build_token_batch(
        [_group(Trajectory("t", 0, 0, turns=[_turn([1], [5, 0]), _turn([1, 1, 1], [5, 0])]))], pad_id=0
    )
    assert batch["loss_mask"][:, -1].tolist() == [1, 1]
    assert batch["attention_mask"][0].tolist() == [0, 0, 1, 1, 1]


def test_duplicated_task_in_one_batch_stays_two_groups_with_anchors_apart() -> None:
    groups = [_group(Trajectory("t", i, 0, turns=[_turn([1], [2])]), group_id=i) for i in (4, 9)]
    batch = build_token_batch(groups, pad_id=0)
    assert batch["group_id"].tolist() == [0, 1]
    assert batch["trajectory_id"].tolist() == [0, 1]
    assert len(set(batch["anchor_id"].tolist())) == 2


def test_failed_episodes_give_no_row() -> None:
    failed = Trajectory("t", 0, 1, turns=[_turn([1], [2])], stop_reason=StopReason.ENV_ERROR)
    kept = Trajectory("t", 0, 0, turns=[_turn([1], [3])])
    batch = build_token_batch([_group(kept, failed)], pad_id=0)
    assert batch["input_ids"].tolist() == [[1, 3]]
    with pytest.raises(ValueError, match="no trajectory"):
        build_token_batch([_group(failed)], pad_id=0)


def test_column_types_are_those_of_the_schema() -> None:
    batch = build_token_batch([_group(Trajectory("t", 0, 0, turns=[_turn([1], [2])]))], pad_id=0)
    assert batch["input_ids"].dtype == np.int64
    assert batch["loss_mask"].dtype == np.float32
    assert batch["success"].dtype == bool
