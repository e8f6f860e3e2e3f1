"""The loop in one process: what an iteration reports, adds up, and refuses."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from integration_cases import GUESS, same_weights, small_config, weights_of

from arlarena_rllib.errors import RolloutError
from arlarena_rllib.evaluation import panel_episodes


@pytest.mark.parametrize("method", ["grpo", "sampo"])
def test_iteration_reports_finite_metrics_and_accounts_for_every_group(
    ray_cluster: None, tiny_model_dir: Path, method: str
) -> None:
    algorithm = small_config(tiny_model_dir, method=method).build_algo()
    result = algorithm.train()
    assert repr(algorithm) == f"ARLArena: {method} on {algorithm.config.env}, seed {algorithm.config.seed}"
    algorithm.stop()
    groups = result["groups"]
    assert groups["started"] == groups["trained"] + groups["filtered"] + groups["failed"]
    learned = result["learners"]["default_policy"]
    for key in ("policy_loss", "kl_loss", "entropy", "grad_norm", "approx_kl_k3", "mismatch_abs_logp_diff_max"):
        assert math.isfinite(learned[key]), key
    assert result["sync"]["logp_abs_diff_max"] <= 1e-5
    assert learned["mismatch_abs_logp_diff_max"] <= 1e-5
    assert result["env_runners"]["weight_version_lag_max"] == 0
    assert result["weight_version"] == 1


def test_append_mode_trains_one_row_per_trajectory(ray_cluster: None, tiny_model_dir: Path) -> None:
    config = small_config(tiny_model_dir).environment(GUESS).env_runners(trajectory_mode="append")
    config.env_config = {}
    algorithm = config.build_algo()
    result = algorithm.train()
    algorithm.stop()
    assert result["batch"]["num_rows"] == 9
    assert result["learners"]["default_policy"]["mismatch_abs_logp_diff_max"] <= 1e-5


def test_evaluation_uses_the_same_tasks_and_gives_the_same_result_twice(
    ray_cluster: None, tiny_model_dir: Path
) -> None:
    algorithm = small_config(tiny_model_dir).build_algo()
    first = algorithm.evaluate_panel("validation", 5, draws=2)
    second = algorithm.evaluate_panel("validation", 5, draws=2)
    algorithm.stop()
    assert first == second
    assert first.n == 5 and first.draws == 2 and first.failed == 0


def test_evaluation_runs_before_training_and_every_interval(ray_cluster: None, tiny_model_dir: Path) -> None:
    algorithm = small_config(tiny_model_dir).evaluation(evaluation_interval=2).build_algo()
    first, second = algorithm.train(), algorithm.train()
    algorithm.stop()
    assert first["evaluation_before"]["env_runners"]["n"] == 4
    assert "evaluation" not in first or math.isnan(first["evaluation"]["env_runners"]["greedy"])
    assert second["evaluation"]["env_runners"]["n"] == 4


def test_panel_episodes_do_not_depend_on_how_many_tasks_follow() -> None:
    assert panel_episodes(["a", "b", "c"], draws=2, seed=1)[:6] == panel_episodes(["a", "b"], draws=2, seed=1)


def test_iteration_in_which_every_episode_fails_stops_with_the_reason(ray_cluster: None, tiny_model_dir: Path) -> None:
    config = small_config(tiny_model_dir).env_runners(episode_retries=0)
    algorithm = config.build_algo()
    algorithm.env_runner_group.local_env_runner._pool = _HangingPool()
    with pytest.raises(RolloutError, match=r"all 9 episodes of iteration 0 failed; the first: env_timeout"):
        algorithm.training_step()
    algorithm.stop()


def test_iteration_in_which_no_first_prompt_fits_stops_with_the_lengths(
    ray_cluster: None, tiny_model_dir: Path
) -> None:
    algorithm = small_config(tiny_model_dir).serving(max_model_len=14).build_algo()
    with pytest.raises(RolloutError, match=r"none of the 9 episodes .*max_model_len=14 .*max_response_tokens=8[.] Rem"):
        algorithm.training_step()
    algorithm.stop()


class _HangingPool:
    """A pool whose every call is late."""

    async def acquire(self, timeout_s: float) -> None:
        from arlarena_rllib.rollout.env_pool import EnvCallTimeout

        raise EnvCallTimeout("the environment did not answer")

    def close(self) -> None:
        pass


def test_critic_trains_on_single_episodes(ray_cluster: None, tiny_model_dir: Path) -> None:
    config = small_config(tiny_model_dir, method="ppo").env_runners(group_size=1, groups_per_iteration=6)
    algorithm = config.build_algo()
    result = algorithm.train()
    algorithm.stop()
    assert result["groups"]["trained"] == result["groups"]["started"] == 6
    assert result["learners"]["default_policy"]["num_tokens"] > 0


def test_recorded_episodes_say_what_training_made_of_them(ray_cluster: None, tiny_model_dir: Path) -> None:
    config = small_config(tiny_model_dir).training(num_epochs=2).reporting(record_trajectories=5)
    algorithm = config.build_algo()
    folder = Path(algorithm.logdir) / "trajectories"
    results = [algorithm.train(), algorithm.train()]
    algorithm.stop()
    assert [result["notices"] for result in results] == [[], []]
    for iteration in (1, 2):
        lines = (folder / f"iteration_{iteration:06d}.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        # Of 3 groups the first episodes, then the second ones.
        first = min(r["group"] for r in records)
        assert [(r["group"] - first, r["member"]) for r in records] == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1)]
        assert {(r["iteration"], r["method"], r["use"]) for r in records} == {(iteration, "grpo", "trained")}
        turns = [turn for record in records for turn in record["turns"]]
        assert {tuple(turn["weight_version"]) for turn in turns} == {(iteration - 1, iteration - 1)}
        assert all(turn["loss_tokens"] == turn["response_tokens"] > 0 for turn in turns)
        assert all(turn["ratio_min"] <= turn["ratio_mean"] <= turn["ratio_max"] for turn in turns)
        assert any(abs(turn["ratio_mean"] - 1.0) > 1e-4 for turn in turns)  # seen again after the first steps
        assert all("boxes_left" in turn["info"] and "now" in turn["prompt"] for turn in turns)


def test_recording_of_a_growing_conversation_with_a_critic_adds_up(ray_cluster: None, tiny_model_dir: Path) -> None:
    """Advantages are per token, and a row holds all turns of an episode."""
    config = small_config(tiny_model_dir, method="ppo").environment(GUESS).env_runners(trajectory_mode="append")
    config.env_config = {}
    algorithm = config.reporting(record_trajectories=9).build_algo()
    folder, result = Path(algorithm.logdir) / "trajectories", algorithm.train()
    algorithm.stop()
    records = [json.loads(line) for line in (folder / "iteration_000001.jsonl").read_text().splitlines()]
    turns = [turn for record in records for turn in record["turns"]]
    assert len(records) == 9 and len(turns) > 9
    assert sum(turn["loss_tokens"] for turn in turns) == result["batch"]["num_loss_tokens"]
    assert all(turn["advantage"] is not None and turn["ratio_mean"] is not None for turn in turns)


def test_recording_changes_no_weight(ray_cluster: None, tiny_model_dir: Path) -> None:
    weights = []
    for count in (0, 4):
        algorithm = small_config(tiny_model_dir).reporting(record_trajectories=count).build_algo()
        algorithm.train()
        weights.append(weights_of(algorithm))
        algorithm.stop()
    assert same_weights(*weights)
