"""Remote EnvRunners against the served engine, and what happens when one of them dies."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path

import pytest
from integration_cases import small_config


@pytest.fixture(scope="module")
def algorithm(ray_cluster: None, tiny_model_dir: Path):
    config = small_config(tiny_model_dir).serving(num_replicas=1, num_cpus_per_replica=0.5)
    config.env_runners(num_env_runners=2, num_cpus_per_env_runner=0.25)
    algorithm = config.build_algo()
    yield algorithm
    algorithm.stop()


def test_two_runners_give_what_one_process_gives(algorithm, tiny_model_dir: Path) -> None:
    """Tasks and seeds come from the driver, so the number of runners changes nothing."""
    alone = small_config(tiny_model_dir).build_algo()
    expected, found = alone.train(), algorithm.train()
    alone.stop()
    for key in ("episode_return_mean", "episode_len_mean", "num_response_tokens"):
        assert found["env_runners"][key] == expected["env_runners"][key], key
    assert found["serving"]["handle_calls"] < found["serving"]["requests"]
    assert math.isfinite(found["learners"]["default_policy"]["policy_loss"])


def test_killed_runner_loses_no_episode(algorithm) -> None:
    pids = algorithm.env_runner_group.foreach_env_runner(lambda _: os.getpid(), local_env_runner=False)
    os.kill(pids[0], signal.SIGKILL)
    result = algorithm.train()
    assert result["groups"]["trained"] == 3
    assert result["env_runners"]["num_episodes"] == 9
