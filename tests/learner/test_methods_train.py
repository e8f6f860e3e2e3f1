"""Every method takes a real optimiser step, and those that look at the whole minibatch do not mind how it is split."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from learner_cases import largest_difference, train_steps

from arlarena_rllib.presets import METHODS

TOLERANCE = 1e-5
WHOLE_MINIBATCH: dict[str, dict[str, Any]] = {
    "ratio of a trajectory": {"method": "loop", "ratio_level": "trajectory", "min_abs_advantage": 0.0},
    "picks by covariance": {"method": "clip_cov", "cov_frac": 0.2, "cov_low": 0.01},
    "picks of the KL": {"method": "kl_cov", "cov_frac": 0.2},
    "denominators of kept tokens": {"method": "grpo_sm", "seq_mask_norm": "kept_tokens", "seq_mask_delta": 1e-4},
    "critic": {"method": "ppo", "lr": 2e-5},
    "critic of turns": {"method": "turn_ppo", "lr": 2e-5},
}
"""What needs more than its own rows -> settings.

A value head starts at 0, where AdamW turns rounding noise into whole steps, so its steps are small.
"""


@pytest.mark.parametrize("method", METHODS)
def test_method_changes_the_weights_and_its_metrics_are_finite(tiny_model_dir: Path, method: str) -> None:
    before, _ = train_steps(tiny_model_dir, method=method, updates=0)
    after, metrics = train_steps(tiny_model_dir, method=method)
    assert largest_difference(before, after) > 1e-5
    assert {k: v for k, v in metrics[0].items() if not math.isfinite(v)} == {}
    assert metrics[0]["grad_norm"] > 0
    assert metrics[0]["nonfinite_steps"] == 0


@pytest.mark.parametrize("case", WHOLE_MINIBATCH)
def test_micro_batches_do_not_change_a_choice_that_looks_at_the_whole_minibatch(
    tiny_model_dir: Path, case: str
) -> None:
    settings = {"num_epochs": 2, **WHOLE_MINIBATCH[case]}
    whole, one = train_steps(tiny_model_dir, micro_batch_tokens=100_000, **settings)
    split, other = train_steps(tiny_model_dir, micro_batch_tokens=60, **settings)
    assert largest_difference(whole, split) <= TOLERANCE
    assert one[0]["policy_loss"] == pytest.approx(other[0]["policy_loss"], rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("case", WHOLE_MINIBATCH)
def test_two_learners_do_not_change_a_choice_that_looks_at_the_whole_minibatch(
    ray_cluster: None, tiny_model_dir: Path, case: str
) -> None:
    settings = {"num_epochs": 2, **WHOLE_MINIBATCH[case]}
    whole, _ = train_steps(tiny_model_dir, **settings)
    shared, _ = train_steps(tiny_model_dir, num_learners=2, **settings)
    assert largest_difference(whole, shared) <= TOLERANCE


def test_critic_learns_its_targets(tiny_model_dir: Path) -> None:
    _, metrics = train_steps(tiny_model_dir, method="turn_ppo", updates=1, num_epochs=1, lr=3e-3, value_coef=5.0)
    _, later = train_steps(tiny_model_dir, method="turn_ppo", updates=1, num_epochs=8, lr=3e-3, value_coef=5.0)
    assert later[0]["value_loss"] < metrics[0]["value_loss"]
