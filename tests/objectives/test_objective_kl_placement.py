"""The KL to the reference in the loss or in the reward."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from arlarena_rllib.objectives import ObjectiveSpec, UnknownChoiceError, finish_metrics, kl_reward_penalty

LOG2 = math.log(2.0)


@pytest.mark.parametrize(("estimator", "value"), [("k1", -LOG2), ("k2", LOG2**2 / 2), ("k3", 1 - LOG2), ("abs", LOG2)])
def test_kl_penalty_in_the_reward_is_the_hand_computed_number_without_gradient(estimator: str, value: float) -> None:
    old = torch.tensor([[math.log(0.3), math.nan]], dtype=torch.float64, requires_grad=True)
    ref = torch.tensor([[math.log(0.6), math.inf]], dtype=torch.float64)
    penalty = kl_reward_penalty(old, ref, torch.tensor([[1, 0]]), estimator)
    assert penalty[0].tolist() == pytest.approx([value, 0.0])
    assert not penalty.requires_grad


@pytest.mark.parametrize("gap", [21.0, 1e6, math.inf])
def test_kl_penalty_in_the_reward_is_bounded_by_its_clamp(gap: float) -> None:
    zero, one = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1)
    assert kl_reward_penalty(zero, zero + gap, one, "k3").item() == pytest.approx(math.expm1(20.0) - 20.0)
    assert kl_reward_penalty(zero, zero - gap, one, "k1").item() == 20.0


def test_kl_penalty_in_the_reward_refuses_estimators_that_are_about_gradients() -> None:
    zero, one = torch.zeros(1, 1), torch.ones(1, 1)
    with pytest.raises(ValueError, match=r"'k3\+' cannot go into the reward: .*gradient"):
        kl_reward_penalty(zero, zero, one, "k3+")
    with pytest.raises(ValueError, match=r"'k3_is' cannot go into the reward: its ratio is 1"):
        kl_reward_penalty(zero, zero, one, "k3_is")
    with pytest.raises(UnknownChoiceError, match="kl_estimator='k9'"):
        kl_reward_penalty(zero, zero, one, "k9")


def test_kl_in_the_reward_leaves_the_loss_alone_and_stays_a_metric(batch_of: Callable[..., Any]) -> None:
    batch = batch_of(50)
    without, plain_grad = batch.objective(ObjectiveSpec(kl_coef=0.0))
    inside, _ = batch.objective(ObjectiveSpec(kl_coef=0.1))
    reward, grad = batch.objective(ObjectiveSpec(kl_coef=0.1, kl_in="reward"))
    assert torch.equal(reward.loss, without.loss)
    assert torch.equal(grad, plain_grad)
    assert not torch.equal(inside.loss, reward.loss)
    assert finish_metrics(reward.metrics)["ref_kl"] == finish_metrics(inside.metrics)["ref_kl"] > 0.0
    assert "kl_loss" not in finish_metrics(reward.metrics)
