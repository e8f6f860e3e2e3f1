"""Held-back weights: rollouts are so many versions behind, evaluations are not, and a resumed run goes on exactly."""

from __future__ import annotations

from pathlib import Path

import pytest
from integration_cases import same_weights, small_config, train_and_save, weights_of

from arlarena_rllib import ARLArena
from arlarena_rllib.errors import ConfigError


def test_rollouts_lag_and_a_restored_run_goes_on_exactly(
    ray_cluster: None, tiny_model_dir: Path, tmp_path: Path
) -> None:
    config = small_config(tiny_model_dir, method="gspo", lr=1e-3, old_policy="sampler").serving(weight_lag=2)
    config.evaluation(evaluation_interval=3, evaluate_before_training=False, evaluation_num_tasks=4)
    algorithm = config.build_algo()
    results = train_and_save(algorithm, 4, save_after=2, folder=tmp_path)
    weights = weights_of(algorithm)
    algorithm.stop()
    lags = [result["env_runners"]["weight_version_lag_max"] for result in results]
    assert lags == [0, 1, 2, 2]
    assert results[2]["evaluation"]["env_runners"]["n"] == 4
    assert "logp_abs_diff_max" not in results[-1].get("sync", {})
    learner = results[-1]["learners"]["default_policy"]
    assert learner["mismatch_abs_logp_diff_max"] > 1e-4 and learner["approx_kl_k3"] > 0

    restored = ARLArena.from_checkpoint(str(tmp_path))
    again = [restored.train() for _ in range(2)]
    assert same_weights(weights_of(restored), weights)
    restored.stop()
    assert [result["env_runners"]["weight_version_lag_max"] for result in again] == [2, 2]


def test_correction_of_a_ratio_that_starts_from_the_sampler_is_refused(tiny_model_dir: Path) -> None:
    config = small_config(tiny_model_dir, method="gspo", old_policy="sampler", mismatch="active")
    with pytest.raises(ConfigError, match=r"old_policy='sampler' with mismatch='active'"):
        config.validate()
