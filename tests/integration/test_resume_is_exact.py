"""Four iterations equal two, a restore, and two more, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from integration_cases import same_weights, small_config, train_and_save, weights_of

from arlarena_rllib import ARLArena


@pytest.fixture(scope="module")
def uninterrupted(ray_cluster: None, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple:
    """Weights after 4 iterations and a checkpoint after 2 of them."""
    algorithm = small_config(tiny_model_dir, method="sampo").build_algo()
    checkpoint = tmp_path_factory.mktemp("checkpoint")
    results = train_and_save(algorithm, 4, save_after=2, folder=checkpoint)
    weights = weights_of(algorithm)
    algorithm.stop()
    return weights, results, checkpoint


def test_from_checkpoint_continues_bit_for_bit(uninterrupted: tuple) -> None:
    weights, results, checkpoint = uninterrupted
    algorithm = ARLArena.from_checkpoint(str(checkpoint))
    again = [algorithm.train() for _ in range(2)]
    assert same_weights(weights_of(algorithm), weights)
    algorithm.stop()
    for one, other in zip(results[2:], again, strict=True):
        assert one["env_runners"]["episode_return_mean"] == other["env_runners"]["episode_return_mean"]
        assert one["learners"]["default_policy"]["policy_loss"] == other["learners"]["default_policy"]["policy_loss"]
        assert one["task_cursor"] == other["task_cursor"]
        assert one["weight_version"] == other["weight_version"]
        assert one["training_iteration"] == other["training_iteration"]


def test_restore_in_place_goes_back_and_repeats(uninterrupted: tuple, tiny_model_dir: Path) -> None:
    weights, _, checkpoint = uninterrupted
    algorithm = small_config(tiny_model_dir, method="sampo").build_algo()
    for _ in range(3):
        algorithm.train()
    algorithm.restore_from_path(str(checkpoint))
    for _ in range(2):
        algorithm.train()
    assert same_weights(weights_of(algorithm), weights)
    algorithm.stop()
