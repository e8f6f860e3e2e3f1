"""A checkpoint goes on under other settings, as in population-based training: all is taken over but those."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from integration_cases import same_weights, small_config, weights_of
from ray.rllib.core import DEFAULT_MODULE_ID

from arlarena_rllib import ARLArena


def optimizer_state(algorithm: ARLArena) -> list[np.ndarray]:
    """Return AdamW's moments."""
    optimizer = algorithm.learner_group._learner.get_optimizer(DEFAULT_MODULE_ID)
    return [state["exp_avg"].numpy().copy() for state in optimizer.state.values()]


def test_checkpoint_goes_on_under_other_settings(ray_cluster: None, tiny_model_dir: Path, tmp_path: Path) -> None:
    donor = small_config(tiny_model_dir, method="gspo", lr=1e-3).build_algo()
    donor.train()
    donor.save_to_path(str(tmp_path))
    weights, moments = weights_of(donor), optimizer_state(donor)
    donor.stop()

    taker = small_config(tiny_model_dir, method="gspo", lr=2e-3, clip_low=0.1, kl_coef=0.05).build_algo()
    taker.train()
    taker.restore_from_path(str(tmp_path))
    assert same_weights(weights_of(taker), weights)
    assert all(np.array_equal(one, other) for one, other in zip(optimizer_state(taker), moments, strict=True))
    result = taker.train()
    learner = result["learners"][DEFAULT_MODULE_ID]
    assert learner["default_optimizer_learning_rate"] == pytest.approx(2e-3)
    assert (taker.config.clip_low, taker._spec.clip_low, taker._spec.kl_coef) == (0.1, 0.1, 0.05)
    assert taker.learner_group._learner._spec == taker._spec
    assert result["training_iteration"] == 2
    taker.stop()
