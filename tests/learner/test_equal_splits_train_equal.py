"""Runs that must be equal are equal: micro-batching, packing order, number of learners."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from learner_cases import largest_difference, make_groups, train_steps

TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def one_process(tiny_model_dir: Path) -> tuple[dict, list]:
    return train_steps(tiny_model_dir)


def test_update_moves_the_weights(tiny_model_dir: Path, one_process: tuple[dict, list]) -> None:
    untrained, _ = train_steps(tiny_model_dir, updates=0)
    assert largest_difference(untrained, one_process[0]) > 1e-4


@pytest.mark.parametrize("tokens", [1, 60, 100_000])
def test_micro_batch_size_changes_neither_weights_nor_metrics(
    tiny_model_dir: Path, one_process: tuple[dict, list], tokens: int
) -> None:
    weights, metrics = train_steps(tiny_model_dir, micro_batch_tokens=tokens)
    assert largest_difference(weights, one_process[0]) <= TOLERANCE
    for key in ("policy_loss", "kl_loss", "grad_norm", "approx_kl_k3", "entropy", "clip_frac"):
        assert metrics[0][key] == pytest.approx(one_process[1][0][key], rel=1e-3, abs=1e-6), key


def test_padding_token_may_be_one_that_replies_use(tiny_model_dir: Path, one_process: tuple[dict, list]) -> None:
    """As with models whose end token is their padding token."""
    used = make_groups()[0].trajectories[0].turns[0].response_ids[-1]
    weights, _ = train_steps(tiny_model_dir, pad_id=used)
    assert largest_difference(weights, one_process[0]) <= TOLERANCE


@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean", "traj-mean-token-mean"])
def test_global_denominators_hold_for_other_aggregations(tiny_model_dir: Path, aggregation: str) -> None:
    whole, _ = train_steps(tiny_model_dir, aggregation=aggregation)
    split, _ = train_steps(tiny_model_dir, aggregation=aggregation, micro_batch_tokens=50)
    assert largest_difference(whole, split) <= TOLERANCE


@pytest.mark.parametrize("num_learners", [1, 2])
def test_remote_learners_give_the_weights_of_one_process(
    ray_cluster: None, tiny_model_dir: Path, one_process: tuple[dict, list], num_learners: int
) -> None:
    weights, metrics = train_steps(tiny_model_dir, num_learners=num_learners)
    assert largest_difference(weights, one_process[0]) <= TOLERANCE
    for key in ("policy_loss", "kl_loss", "grad_norm", "approx_kl_k3"):
        assert metrics[0][key] == pytest.approx(one_process[1][0][key], rel=1e-3, abs=1e-6), key


def test_learning_rate_warms_up_and_decays(tiny_model_dir: Path) -> None:
    _, metrics = train_steps(
        tiny_model_dir, updates=4, lr=1e-3, lr_warmup_iterations=2, lr_decay_iterations=4, lr_final_fraction=0.1
    )
    rates = [m["default_optimizer_learning_rate"] for m in metrics]
    assert rates == pytest.approx([5e-4, 1e-3, 1e-3, 5.5e-4])


def test_reference_stays_frozen_while_the_policy_moves(tiny_model_dir: Path) -> None:
    _, metrics = train_steps(tiny_model_dir, updates=2, kl_coef=0.1, lr=3e-3)
    assert metrics[0]["ref_kl"] < metrics[1]["ref_kl"]
    assert np.isfinite(metrics[1]["ref_kl"])
