"""A failure is an episode with a reason; its siblings go on; infrastructure gets one more try."""

from __future__ import annotations

from pathlib import Path

import pytest
from rollout_cases import BrokenEnv, ScriptedClient, engine_error, ids_of, play

from arlarena_rllib.trajectory import StopReason


@pytest.fixture
def reply(tiny_model_dir: Path) -> list[int]:
    return ids_of(tiny_model_dir, "<think>a</think><action>up</action>")


def test_environment_that_raises_once_is_retried(tiny_model_dir: Path, reply: list[int]) -> None:
    BrokenEnv.failures = [RuntimeError("disk full")]
    trajectory = play(tiny_model_dir, ScriptedClient([reply]), wrap=BrokenEnv)
    assert trajectory.stop_reason is StopReason.MAX_TURNS
    assert trajectory.retries == 1


def test_environment_that_keeps_raising_is_a_failed_episode_with_its_message(
    tiny_model_dir: Path, reply: list[int]
) -> None:
    BrokenEnv.failures = [RuntimeError("disk full")] * 5
    trajectory = play(tiny_model_dir, ScriptedClient([reply]), wrap=BrokenEnv)
    assert trajectory.stop_reason is StopReason.ENV_ERROR
    assert trajectory.error == "RuntimeError: disk full"
    assert trajectory.stop_reason.is_failed_episode


def test_environment_that_hangs_is_given_up_after_the_time_limit(tiny_model_dir: Path, reply: list[int]) -> None:
    BrokenEnv.failures = [30.0, 30.0]
    trajectory = play(tiny_model_dir, ScriptedClient([reply]), wrap=BrokenEnv, env_step_timeout_s=0.3)
    assert trajectory.stop_reason is StopReason.ENV_TIMEOUT
    assert "0.3 s" in trajectory.error


def test_engine_that_does_not_answer_is_retried_then_failed(tiny_model_dir: Path, reply: list[int]) -> None:
    once = play(tiny_model_dir, ScriptedClient([engine_error(), reply]))
    assert once.stop_reason is StopReason.MAX_TURNS and once.retries == 1
    never = play(tiny_model_dir, ScriptedClient([engine_error()]))
    assert never.stop_reason is StopReason.ENGINE_ERROR
    assert never.error == "no replica answered"


def test_unknown_task_is_a_failed_episode_that_names_it(tiny_model_dir: Path, reply: list[int]) -> None:
    trajectory = play(tiny_model_dir, ScriptedClient([reply]), task="6x6-1/nonsense")
    assert trajectory.stop_reason is StopReason.ENV_ERROR
    assert "6x6-1/nonsense" in trajectory.error
