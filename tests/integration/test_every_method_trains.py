"""Every row of the preset table through the real loop, and the settings that change what an iteration does."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from draw_env import DRAW
from integration_cases import small_config
from ray import tune
from ray.tune.utils import flatten_dict

from arlarena_rllib import ARLArena, ARLArenaConfig
from arlarena_rllib.errors import ConfigError
from arlarena_rllib.presets import METHODS

ITERATIONS, MIN_METHODS = 3, 25
MEASURED = ("env_runners", "groups", "batch", "learners", "serving", "sync", "alarm", "timers")
"""Parts of a result that this project fills."""


def draw_config(model_dir: Path, **training: Any) -> ARLArenaConfig:
    """Return the smallest configuration with a signal: 2 groups of 3 episodes of at most 3 short turns."""
    config = small_config(model_dir, **training).environment(DRAW).serving(sync_check_sequences=1)
    config.env_config = {"max_turns": 3}
    return config.env_runners(groups_per_iteration=2, group_size=3, max_response_tokens=4)


def train(config: ARLArenaConfig, iterations: int) -> list[dict[str, Any]]:
    """Return the results of a few iterations."""
    algorithm = config.build_algo()
    try:
        return [algorithm.train() for _ in range(iterations)]
    finally:
        algorithm.stop()


def numbers_of(result: dict[str, Any]) -> dict[str, float]:
    """Return what was measured in an iteration, without the counts of parameters, which RLlib logs once."""
    flat = flatten_dict({part: result[part] for part in MEASURED}, delimiter="/")
    return {name: value for name, value in flat.items() if not name.endswith("_parameters")}


def test_method_table_is_as_long_as_known() -> None:
    assert len(METHODS) >= MIN_METHODS


@pytest.mark.parametrize("method", METHODS)
def test_method_trains_three_iterations_with_finite_metrics_and_full_accounts(
    ray_cluster: None, tiny_model_dir: Path, method: str
) -> None:
    results = train(draw_config(tiny_model_dir, method=method), ITERATIONS)
    for number, result in enumerate(results, start=1):
        numbers = numbers_of(result)
        assert {name: value for name, value in numbers.items() if not math.isfinite(value)} == {}
        groups = result["groups"]
        assert groups["trained"] == 2
        assert groups["started"] == groups["trained"] + groups["filtered"] + groups["failed"]
        assert result["learners"]["default_policy"]["nonfinite_steps"] == 0
        assert result["alarm"] == {"signals": 0.0, "first_iteration": -1.0}
        assert result["weight_version"] == number
    assert any(result["batch"]["advantage_abs_mean"] > 0 for result in results)
    assert any(result["learners"]["default_policy"]["grad_norm"] > 0 for result in results)


@pytest.mark.parametrize(
    "method",
    ["sampo_token", "gigpo", "empg", "turn_ppo"],
)
def test_method_of_turns_trains_on_growing_conversations(ray_cluster: None, tiny_model_dir: Path, method: str) -> None:
    config = draw_config(tiny_model_dir, method=method).env_runners(trajectory_mode="append")
    results = train(config, ITERATIONS)
    for result in results:
        assert {k: v for k, v in numbers_of(result).items() if not math.isfinite(v)} == {}
        assert result["batch"]["num_rows"] <= result["groups"]["trained"] * 3  # conversations, not turns
    assert any(result["learners"]["default_policy"]["grad_norm"] > 0 for result in results)


ALARMING = {"grad_norm_factor": 0.0, "grad_norm_iterations": 1, "median_min": 1}
"""Any gradient fires the alarm as soon as there is one before it."""


@pytest.mark.parametrize("stops", [True, False])
def test_stop_on_collapse_ends_the_trial_in_the_iteration_of_the_alarm(
    ray_cluster: None, tiny_model_dir: Path, stops: bool
) -> None:
    config = draw_config(tiny_model_dir).reporting(alarm_thresholds=ALARMING, stop_on_collapse=stops)
    with pytest.warns(UserWarning, match=r"collapse alarm: grad_norm at iteration 2: .* is above the limit 0"):
        first, second = train(config, 2)
    assert (first["alarm"]["signals"], second["alarm"]["signals"]) == (0.0, 1.0)
    assert second["alarm"]["first_iteration"] == 2.0
    assert not first["done"]
    assert second["done"] == stops


def test_stop_on_collapse_ends_a_trial_of_tune(ray_cluster: None, tiny_model_dir: Path, tmp_path: Path) -> None:
    config = small_config(tiny_model_dir, method="gigpo")
    config.reporting(alarm_thresholds=ALARMING, stop_on_collapse=True)
    run = tune.RunConfig(stop={"training_iteration": 5}, storage_path=str(tmp_path), verbose=0)
    (result,) = tune.Tuner(ARLArena, param_space=config, run_config=run).fit()
    assert result.error is None
    assert result.metrics["training_iteration"] == 2


def test_prompt_dependence_is_measured_every_so_many_iterations(ray_cluster: None, tiny_model_dir: Path) -> None:
    first, second = train(draw_config(tiny_model_dir).reporting(prompt_dependence_interval=2), 2)
    assert "prompts" not in first
    prompts = second["prompts"]
    assert prompts["retrieval_chance"] == 0.5
    assert prompts["mutual_information_seq"] <= math.log(2)
    assert prompts["conditional_entropy_token"] > 0
    assert all(math.isfinite(value) for value in prompts.values())


def test_task_values_act_in_the_loop(ray_cluster: None, tiny_model_dir: Path) -> None:
    """Filtering waits for the cold start of the task; a value of one's own goes before the task's."""
    (plain,) = train(draw_config(tiny_model_dir, method="sampo"), 1)
    (cold,) = train(draw_config(tiny_model_dir, method="sampo", task="alfworld"), 1)
    own = draw_config(tiny_model_dir, method="sampo", task="webshop", cold_start_iterations=0)
    assert (plain["groups"]["active"], cold["groups"]["active"]) == (1.0, 0.0)
    spec = own.objective_spec()
    assert (spec.clip_low, spec.clip_high, spec.cold_start_iterations) == (3e-2, 4e-2, 0)


@pytest.mark.parametrize(
    ("section", "keys", "words"),
    [
        (
            "env_runners",
            {"top_p": 0.9},
            r"env_runners\.top_p=0\.9 is not allowed: must be 1; ratios of log-probs assume",
        ),
        ("env_runners", {"top_k": 20}, r"env_runners\.top_k=20 is not allowed: must be 0; ratios of log-probs assume"),
        ("training", {"task": "alfwrld"}, r"training\.task='alfwrld' is not allowed: must be one of 'alfworld'"),
        ("reporting", {"alarm_thresholds": {"success_dorp": 1}}, "'success_dorp' is no threshold. Nearest: 'success_d"),
    ],
)
def test_setting_that_would_be_wrong_is_refused_with_the_reason(
    tiny_model_dir: Path, section: str, keys: dict[str, Any], words: str
) -> None:
    config = draw_config(tiny_model_dir)
    with pytest.raises(ConfigError, match=words):
        getattr(config, section)(**keys).build_algo()


def test_one_ratio_for_turns_of_different_advantages_is_refused_with_reason_and_remedy(tiny_model_dir: Path) -> None:
    config = draw_config(tiny_model_dir, method="sampo").env_runners(trajectory_mode="append")
    with pytest.raises(ConfigError) as caught:
        config.build_algo()
    assert (
        "clipping='gspo' needs row_advantages (one advantage for all tokens of a row), which trajectory_mode='append' "
        "with advantage='gigpo' does not give. Choose another clipping (gspo_token, "
    ) in str(caught.value)
