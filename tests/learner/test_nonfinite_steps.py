"""A step with a non-finite loss or gradient never reaches the weights, and its rows are named."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learner_cases import build_group, metrics_of, training_batch
from ray.rllib.core.learner.learner_group import LearnerGroup
from torch import Tensor

from arlarena_rllib.errors import LearnerError
from arlarena_rllib.learner.link import LearnerLink
from arlarena_rllib.trajectory import TokenBatch


def start(model_dir: Path, **training: Any) -> tuple[LearnerGroup, TokenBatch]:
    """Return one learner in this process, and a batch of 4 minibatches for it."""
    group, config = build_group(model_dir, **{"method": "grpo", "lr": 1e-3, **training})
    return group, training_batch(config, LearnerLink(group, 0))


def weights(group: LearnerGroup) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in group._learner.policy.named_parameters()}


def are_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def update(group: LearnerGroup, batch: TokenBatch) -> tuple[list[str], dict[str, float]]:
    """Return the warnings about skipped steps, and the metrics."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        metrics = metrics_of(LearnerLink(group, 0).update(batch, {}))
    return [str(w.message) for w in caught if "step skipped" in str(w.message)], metrics


def named(batch: TokenBatch, row: int, what: str) -> str:
    return f"trajectory_id={batch['trajectory_id'][row]} turn_index={batch['turn_index'][row]} ({what})"


def test_nonfinite_gradients_skip_the_step_and_stop_the_run_after_a_few(tiny_model_dir: Path) -> None:
    group, batch = start(tiny_model_dir, max_nonfinite_steps=3)
    before = weights(group)
    batch["advantages"][:] = float("inf")
    with pytest.raises(LearnerError, match=r"3 optimiser steps in a row.*max_nonfinite_steps=3.*Lower training\.lr"):
        LearnerLink(group, 0).update(batch, {})
    assert are_equal(before, weights(group))


def test_one_bad_row_skips_its_own_minibatch_and_is_named(tiny_model_dir: Path) -> None:
    group, batch = start(tiny_model_dir)
    before = weights(group)
    row = int(np.flatnonzero(batch["minibatch"] == 1)[2])
    batch["advantages"][row] = float("nan")
    messages, metrics = update(group, batch)
    assert len(messages) == 1
    assert messages[0].endswith(f"non-finite rows: {named(batch, row, 'loss')}.")
    assert metrics["nonfinite_steps"] == 1.0
    assert math.isfinite(metrics["grad_norm"])
    after = weights(group)
    assert not are_equal(before, after)
    assert all(torch.isfinite(value).all() for value in after.values())


def test_skipped_steps_with_a_good_one_between_do_not_stop_the_run(tiny_model_dir: Path) -> None:
    group, batch = start(tiny_model_dir, max_nonfinite_steps=2)
    batch["advantages"][np.isin(batch["minibatch"], [0, 2])] = float("nan")
    messages, metrics = update(group, batch)
    assert len(messages) == 2
    assert metrics["nonfinite_steps"] == 2.0


def test_weights_gone_bad_make_every_log_prob_bad_and_eight_rows_are_named(tiny_model_dir: Path) -> None:
    group, batch = start(tiny_model_dir, num_minibatches=1)
    with torch.no_grad():
        next(group._learner.policy.parameters()).fill_(float("nan"))
    (message,), metrics = update(group, batch)
    assert metrics["nonfinite_steps"] == 1.0
    rows = len(batch["minibatch"])
    assert rows > 8
    assert message.count("(log-prob)") == 8
    assert message.endswith(f"; and {rows - 8} more.")


def test_infinite_loss_with_a_finite_gradient_is_skipped_too(
    tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradient of -A log pi is -A, also where log pi is -inf."""
    group, batch = start(tiny_model_dir, method="rloo", kl_coef=0.0, num_minibatches=1)
    batch |= LearnerLink(group, 0).scores(batch)
    row = int(np.abs(batch["advantages"]).argmax())
    ids = (int(batch["trajectory_id"][row]), int(batch["turn_index"][row]))
    policy = group._learner.policy
    forward = policy._forward_train

    def with_an_impossible_token(micro: dict[str, Tensor], **kwargs: Any) -> dict[str, Any]:
        out = forward(micro, **kwargs)
        is_row = (micro["trajectory_id"] == ids[0]) & (micro["turn_index"] == ids[1])
        shift = torch.zeros_like(out["logp"])
        shift[is_row, -1] = -torch.inf
        return {**out, "logp": out["logp"] + shift}

    monkeypatch.setattr(policy, "_forward_train", with_an_impossible_token)
    before = weights(group)
    (message,), metrics = update(group, batch)
    assert named(batch, row, "log-prob") in message
    assert "gradient norm inf" not in message and "gradient norm nan" not in message
    assert metrics["nonfinite_steps"] == 1.0
    assert are_equal(before, weights(group))
