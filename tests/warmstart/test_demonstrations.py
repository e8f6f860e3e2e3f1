"""Demonstrations are won episodes in the policy's own prompt format, the same for the same seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from arlarena_rllib import ARLArenaConfig
from arlarena_rllib.errors import RolloutError
from arlarena_rllib.rollout.codec import TextCodec
from arlarena_rllib.trajectory import StopReason, Trajectory, Turn
from arlarena_rllib.warmstart import demonstrations, keep_successes
from env_connectors import make_text_env

SOKOBAN = "arlarena/Sokoban-6x6-1-v0"


@pytest.fixture
def config(tiny_model_dir: Path) -> ARLArenaConfig:
    return (
        ARLArenaConfig()
        .environment(SOKOBAN)
        .policy(model_path=str(tiny_model_dir))
        .env_runners(prompt_style="compact", memory_window=2, max_response_tokens=32)
    )


def test_gold_demonstrations_follow_the_gold_actions(config: ARLArenaConfig, tiny_model_dir: Path) -> None:
    env = make_text_env(SOKOBAN)
    tasks = list(env.tasks().train[:5])
    groups = demonstrations(config, tasks, TextCodec(str(tiny_model_dir)))
    assert [g.task_id for g in groups] == tasks
    for group in groups:
        trajectory = group.trajectories[0]
        assert trajectory.success
        assert [turn.action for turn in trajectory.turns] == env.gold_actions(group.task_id)
        assert all(turn.format_valid for turn in trajectory.turns)


def test_clumsy_demonstrations_win_with_detours_and_repeat_with_the_seed(
    config: ARLArenaConfig, tiny_model_dir: Path
) -> None:
    env = make_text_env(SOKOBAN)
    tasks = list(env.tasks().train[:20])
    codec = TextCodec(str(tiny_model_dir))
    one = demonstrations(config, tasks, codec, slip=0.5, seed=3)
    again = demonstrations(config, tasks, codec, slip=0.5, seed=3)
    actions = [[turn.action for turn in g.trajectories[0].turns] for g in one]
    assert actions == [[turn.action for turn in g.trajectories[0].turns] for g in again]
    assert all(g.trajectories[0].success for g in one)
    longer = sum(len(a) > len(env.gold_actions(g.task_id)) for a, g in zip(actions, one, strict=True))
    assert longer >= len(one) // 2


@pytest.mark.parametrize("slip", [0.0, 0.5])
def test_prompt_without_room_is_told_as_a_matter_of_length(
    config: ARLArenaConfig, tiny_model_dir: Path, slip: float
) -> None:
    config.serving(max_model_len=40)
    tasks = list(make_text_env(SOKOBAN).tasks().train[:2])
    with pytest.raises(RolloutError, match=r"prompt_too_long.* serving\.max_model_len=40 .*max_response_tokens=32"):
        demonstrations(config, tasks, TextCodec(str(tiny_model_dir)), slip=slip, tries=2)


def _episode(task: str, *, success: bool, format_valid: bool = True) -> Trajectory:
    turn = Turn([1], [2], [-0.1], [1], [0], "", "up", format_valid, True, "s", 1.0)
    return Trajectory(task, 0, 0, turns=[turn], success=success, stop_reason=StopReason.SUCCESS)


def test_rejection_sampling_keeps_well_formed_successes_up_to_the_limit() -> None:
    episodes = [
        _episode("a", success=True),
        _episode("a", success=True),
        _episode("b", success=False),
        _episode("c", success=True, format_valid=False),
    ]
    groups = keep_successes(episodes, most_per_task=1)
    assert [(g.task_id, len(g.trajectories)) for g in groups] == [("a", 1)]
