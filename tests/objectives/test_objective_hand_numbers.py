"""Losses, aggregations, KL and metrics on numbers small enough to compute by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from arlarena_rllib.objectives import (
    AXES,
    ObjectiveSpec,
    finish_metrics,
    global_denominators,
    global_denominators_from_counts,
    merge_metrics,
    mismatch_metrics,
    out_of_band_table,
    policy_objective,
    reference_kl,
    sequence_table,
)

NO_KL = {"kl_coef": 0.0}


def log(values: list[list[float]]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).log()


def objective_of_ratios(
    ratios: list[list[float]], advantages: list[float], mask: list[list[int]], spec: ObjectiveSpec
) -> tuple[float, list[list[float]], dict[str, float]]:
    """Loss, gradient and metrics for given token ratios (old log-prob 0), one trajectory per row."""
    logp_B_T = log(ratios).requires_grad_()
    mask_B_T = torch.tensor(mask)
    weight_B = global_denominators(mask_B_T, torch.arange(len(ratios)), spec).weight_B
    adv_B = torch.tensor(advantages, dtype=torch.float64)
    result = policy_objective(logp_B_T, torch.zeros_like(logp_B_T), adv_B, mask_B_T, weight_B, spec)
    (grad,) = torch.autograd.grad(result.loss, logp_B_T)
    return result.loss.item(), grad.tolist(), finish_metrics(result.metrics)


# Row 1: A = 2, ratios 1.1 (inside) and 1.5 (above 1.2: loss -1.2*2, no gradient).
# Row 2: A = -1, ratios 0.9 (inside) and 0.5 (below 0.8: loss 0.8, no gradient); third token masked.
RATIOS = [[1.1, 1.5, 1.0], [0.9, 0.5, 7.0]]
ADVANTAGES = [2.0, -1.0]
MASK = [[1, 1, 0], [1, 1, 0]]


def test_ppo_token_mean_gives_hand_computed_loss_and_gradient() -> None:
    loss, grad, metrics = objective_of_ratios(RATIOS, ADVANTAGES, MASK, ObjectiveSpec(**NO_KL))
    assert loss == pytest.approx((-2.2 - 2.4 + 0.9 + 0.8) / 4)
    assert grad[0] == pytest.approx([-2.2 / 4, 0.0, 0.0])
    assert grad[1] == pytest.approx([0.9 / 4, 0.0, 0.0])
    assert metrics["clip_frac"] == 0.5
    assert metrics["clip_low_frac"] == metrics["clip_high_frac"] == 0.25
    assert metrics["clip_rows_frac"] == 1.0
    assert metrics["ratio_mean"] == pytest.approx((1.1 + 1.5 + 0.9 + 0.5) / 4)
    assert metrics["ratio_min"] == pytest.approx(0.5)
    assert metrics["ratio_max"] == pytest.approx(1.5)
    assert metrics["num_tokens"] == 4
    assert metrics["advantages_mean"] == 0.5


def test_ppo_unequal_bounds_move_only_the_upper_one() -> None:
    loss, _, _ = objective_of_ratios(RATIOS, ADVANTAGES, MASK, ObjectiveSpec(clip_high=0.28, **NO_KL))
    assert loss == pytest.approx((-2.2 - 2.56 + 0.9 + 0.8) / 4)


def test_ppo_dual_clip_caps_the_loss_of_negative_advantages() -> None:
    spec = ObjectiveSpec(dual_clip=3.0, **NO_KL)
    loss, grad, _ = objective_of_ratios([[5.0], [5.0]], [-1.0, 1.0], [[1], [1]], spec)
    assert loss == pytest.approx((3.0 - 1.2) / 2)
    assert grad == [[0.0], [0.0]]
    plain, _, _ = objective_of_ratios([[5.0], [5.0]], [-1.0, 1.0], [[1], [1]], ObjectiveSpec(**NO_KL))
    assert plain == pytest.approx((5.0 - 1.2) / 2)


@pytest.mark.parametrize("clipping", ["gspo", "gspo_token"])
def test_gspo_uses_the_geometric_mean_of_the_row(clipping: str) -> None:
    """Row 1: s = sqrt(1.21 * 1) = 1.1; row 2: s = sqrt(4 * 1) = 2, clipped to 1.2 for A > 0."""
    spec = ObjectiveSpec(clipping=clipping, aggregation="seq-mean-token-mean", **NO_KL)
    ratios, mask = [[1.21, 1.0, 9.0], [4.0, 1.0, 9.0]], [[1, 1, 0], [1, 1, 0]]
    loss, grad, metrics = objective_of_ratios(ratios, [1.0, 1.0], mask, spec)
    assert loss == pytest.approx((-1.1 - 1.2) / 2)
    assert grad[0] == pytest.approx([-1.1 / 4, -1.1 / 4, 0.0])
    assert grad[1] == [0.0, 0.0, 0.0]
    assert metrics["clip_rows_frac"] == 0.5
    assert metrics["clip_frac"] == 0.5


def test_gspo_token_with_token_advantages_weighs_each_token_by_its_own() -> None:
    spec = ObjectiveSpec(clipping="gspo_token", **NO_KL)
    logp = log([[1.21, 1.0]]).requires_grad_()
    adv = torch.tensor([[1.0, 3.0]], dtype=torch.float64)
    weight = torch.tensor([0.5], dtype=torch.float64)
    result = policy_objective(logp, torch.zeros(1, 2), adv, torch.ones(1, 2), weight, spec)
    (grad,) = torch.autograd.grad(result.loss, logp)
    assert result.loss.item() == pytest.approx(-1.1 * (1 + 3) / 2)
    assert grad[0].tolist() == pytest.approx([-1.1 / 2, -3.3 / 2])


# Trajectory 7: rows of 2 and 4 tokens; trajectory 9: one row of 1 token; one empty row of trajectory 9, one of 11.
TOKENS = torch.tensor([2, 4, 1, 0, 0])
TRAJECTORY = torch.tensor([7, 7, 9, 9, 11])


@pytest.mark.parametrize(
    ("aggregation", "more", "weights"),
    [
        ("token-mean", {}, [1 / 7, 1 / 7, 1 / 7]),
        ("seq-mean-token-mean", {}, [1 / 6, 1 / 12, 1 / 3]),
        ("seq-mean-token-sum", {}, [1 / 3, 1 / 3, 1 / 3]),
        ("seq-mean-token-sum-norm", {"length_norm": 10}, [1 / 30, 1 / 30, 1 / 30]),
        ("seq-mean-token-sum-norm", {"length_norm": 10, "norm_by_rows": False}, [1 / 10, 1 / 10, 1 / 10]),
        ("traj-mean-token-mean", {}, [1 / 12, 1 / 12, 1 / 2]),
        ("traj-mean-turn-mean-token-mean", {}, [1 / 8, 1 / 16, 1 / 2]),
    ],
)
def test_aggregation_weights_are_the_hand_computed_ones(
    aggregation: str, more: dict[str, int], weights: list[float]
) -> None:
    spec = ObjectiveSpec(aggregation=aggregation, **more)
    den = global_denominators_from_counts(TOKENS, TRAJECTORY, spec)
    assert den.weight_B.tolist() == pytest.approx([*weights, 0.0, 0.0])
    assert (den.n_tokens, den.n_rows, den.n_trajectories) == (7, 3, 2)


def test_aggregation_every_mode_is_covered_and_means_of_a_constant_are_that_constant() -> None:
    means = [name for name in AXES["aggregation"].names() if "sum" not in name]
    assert len(AXES["aggregation"].names()) >= 6
    for name in means:
        weight_B = global_denominators_from_counts(TOKENS, TRAJECTORY, ObjectiveSpec(aggregation=name)).weight_B
        assert float((weight_B * TOKENS).sum()) == pytest.approx(1.0)


# x = log 2: k1 = -log 2, k2 = log(2)^2 / 2, k3 = 2 - log 2 - 1; gradients with respect to log pi = -d/dx.
LOG2 = math.log(2.0)


@pytest.mark.parametrize(
    ("estimator", "value", "gradient"),
    [
        ("k1", -LOG2, 1.0),
        ("k2", LOG2**2 / 2, -LOG2),
        ("k3", 1 - LOG2, 1 - 2.0),
        ("k3+", 1 - LOG2, -LOG2),
        ("abs", LOG2, -1.0),
        ("k3_is", 3 * (1 - LOG2), -3 * LOG2),
    ],
)
def test_kl_estimator_gives_hand_computed_value_and_gradient(estimator: str, value: float, gradient: float) -> None:
    logp = torch.tensor([[math.log(0.3)]], dtype=torch.float64, requires_grad=True)
    kl = reference_kl(estimator, math.log(0.6) - logp, logp - math.log(0.1))
    (grad,) = torch.autograd.grad(kl.sum(), logp)
    assert kl.item() == pytest.approx(value)
    assert grad.item() == pytest.approx(gradient)


def test_total_loss_is_policy_plus_kl_minus_entropy() -> None:
    spec = ObjectiveSpec(kl_coef=0.5, kl_estimator="k1", entropy_coef=0.25)
    one, mask = torch.ones(1, 2, dtype=torch.float64), torch.ones(1, 2)
    weight, adv = torch.tensor([0.5]), torch.tensor([1.0])
    result = policy_objective(-one, -one, adv, mask, weight, spec, ref_logp_B_T=-3 * one, entropy_B_T=4 * one)
    metrics = finish_metrics(result.metrics)
    assert (metrics["policy_loss"], metrics["kl_loss"], metrics["entropy_loss"]) == (-1.0, 2.0, -4.0)
    assert result.loss.item() == metrics["total_loss"] == -1.0 + 0.5 * 2.0 - 0.25 * 4.0
    assert metrics["ref_kl"] == 2.0
    assert metrics["entropy"] == 4.0


def test_kl_and_entropy_with_coefficient_zero_are_measured_but_not_in_the_loss() -> None:
    spec = ObjectiveSpec(kl_coef=0.0)
    one = torch.ones(1, 2, dtype=torch.float64)
    weight, adv = torch.tensor([0.5]), torch.tensor([1.0])
    result = policy_objective(-one, -one, adv, one, weight, spec, ref_logp_B_T=-2 * one, entropy_B_T=one)
    assert result.loss.item() == -1.0
    assert finish_metrics(result.metrics)["ref_kl"] > 0.0


def test_effective_sample_size_of_hand_computed_weights() -> None:
    """Token weights 1, 3: (1+3)^2 / (2 * 10) = 0.8; row products 3 and 1: the same."""
    _, _, metrics = objective_of_ratios([[1.0, 3.0], [1.0, 1.0]], [1.0, 1.0], [[1, 1], [0, 0]], ObjectiveSpec(**NO_KL))
    assert metrics["ess_token_frac"] == pytest.approx(16 / 20)
    assert metrics["ess_seq_frac"] == pytest.approx(1.0)
    _, _, metrics = objective_of_ratios([[1.0, 3.0], [1.0, 1.0]], [1.0, 1.0], [[1, 1], [1, 1]], ObjectiveSpec(**NO_KL))
    assert metrics["ess_seq_frac"] == pytest.approx(16 / 20)
    assert metrics["approx_kl_k1"] == pytest.approx(-math.log(3.0) / 4)
    assert metrics["approx_kl_k3"] == pytest.approx((3.0 - 1.0 - math.log(3.0)) / 4)


def test_mismatch_metrics_of_hand_computed_probabilities() -> None:
    train, rollout = log([[0.4, 0.5]]), log([[0.2, 0.5]])
    done = finish_metrics(merge_metrics([mismatch_metrics(train, rollout, torch.ones(1, 2))]))
    assert done["mismatch_kl_k1"] == pytest.approx(-LOG2 / 2)
    assert done["mismatch_prob_diff_mean"] == pytest.approx(0.1)
    assert done["mismatch_abs_logp_diff_max"] == pytest.approx(LOG2)
    assert done["mismatch_chi2_token"] == pytest.approx((4 + 1) / 2 - 1)
    assert done["mismatch_chi2_seq"] == pytest.approx(4 - 1)


def test_mismatch_metrics_merged_with_those_of_the_objective_keep_both_right(batch_of: Callable[..., Any]) -> None:
    """Each has token counts of its own; one merge of both must not halve the means."""
    batch = batch_of(0)
    objective, _ = batch.objective(ObjectiveSpec())
    mismatch = mismatch_metrics(batch.old_logp, batch.ref_logp, batch.mask)
    apart = finish_metrics(objective.metrics) | finish_metrics(mismatch)
    assert finish_metrics(merge_metrics([objective.metrics, mismatch])) == apart
    assert "num_tokens" not in finish_metrics(mismatch)


def test_tables_put_each_token_and_row_into_its_cell() -> None:
    ratio = log([[0.5, 2.0, 1.0], [0.5, 2.0, 1.0], [0.5, 1.0, 1.0]])
    mask = torch.ones(3, 3)
    adv_B = torch.tensor([-1.0, 1.0, 0.0])
    cells = out_of_band_table(ratio, adv_B.unsqueeze(-1).expand(3, 3), mask)
    assert cells.pop("total") == pytest.approx(5 / 9)
    assert cells == dict.fromkeys(cells, pytest.approx(1 / 9))
    assert len(cells) == 4
    kl = torch.tensor([[1.0, 0.0, 0.0], [2.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    entropy = torch.tensor([[1.0] * 3, [2.0] * 3, [3.0] * 3])
    table = sequence_table(ratio, adv_B, mask, kl, entropy)
    assert table.entropy_threshold == 2.0
    assert table.counts == {"adv_neg_is_lt1": 0, "adv_neg_is_ge1": 1, "adv_pos_is_lt1": 0, "adv_pos_is_ge1": 1}
    shares = {"adv_neg|is_ge1|lowH": 0.25, "adv_nonneg|is_ge1|lowH": 0.5, "adv_nonneg|is_lt1|highH": 0.25}
    assert {name: share for name, share in table.kl_share.items() if share} == shares
