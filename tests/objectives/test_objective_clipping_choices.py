"""Clipping choices beyond PPO and GSPO on numbers small enough to compute by hand, and identities between choices."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from objective_variants import MODIFIERS, spec_of

from arlarena_rllib.objectives import (
    ObjectiveSpec,
    RowIds,
    finish_metrics,
    global_denominators,
    policy_objective,
)

Numbers = list[list[float]]


def objective(
    logp: Numbers, ratios: Numbers, advantages: list[float], trajectory: list[int], **settings: Any
) -> tuple[float, Numbers, dict[str, float]]:
    """Loss, gradient and metrics of full rows, given log-probs and token ratios."""
    spec = ObjectiveSpec(kl_coef=0.0, **settings)
    logp_B_T = torch.tensor(logp, dtype=torch.float64, requires_grad=True)
    old_B_T = logp_B_T.detach() - torch.tensor(ratios, dtype=torch.float64).log()
    # A ratio of 0 marks a position that is not a policy token.
    mask_B_T = torch.tensor(ratios) > 0
    ids = RowIds(torch.tensor(trajectory), torch.arange(len(trajectory)))
    weight_B = global_denominators(mask_B_T, ids.trajectory_id_B, spec).weight_B
    adv_B = torch.tensor(advantages, dtype=torch.float64)
    result = policy_objective(logp_B_T, old_B_T, adv_B, mask_B_T, weight_B, spec, ids=ids)
    (grad_B_T,) = torch.autograd.grad(result.loss, logp_B_T)
    return result.loss.item(), grad_B_T.tolist(), finish_metrics(result.metrics)


def test_none_is_minus_advantage_times_log_prob_whatever_the_ratio() -> None:
    loss, grad, metrics = objective([[-1.0, -2.0]], [[0.1, 9.0]], [3.0], [0], clipping="none")
    assert loss == pytest.approx((3.0 + 6.0) / 2)
    assert grad == [[-1.5, -1.5]]
    assert metrics["clip_frac"] == 0.0


def test_cispo_caps_the_weight_and_keeps_the_gradient() -> None:
    """Ratios 0.25, 1.1, 3 under [0.5, 2]: weights 0.5, 1.1, 2, for both signs of the advantage."""
    rows = ([[-1.0, -2.0, -3.0]] * 2, [[0.25, 1.1, 3.0]] * 2, [1.0, -1.0], [0, 1])
    loss, grad, metrics = objective(*rows, clipping="cispo", is_low=0.5, is_high=2.0)
    assert loss == pytest.approx(0.0)
    assert grad[0] == pytest.approx([-0.5 / 6, -1.1 / 6, -2.0 / 6])
    assert grad[1] == pytest.approx([0.5 / 6, 1.1 / 6, 2.0 / 6])
    assert metrics["clip_low_frac"] == metrics["clip_high_frac"] == pytest.approx(1 / 3)


def test_sapo_gate_uses_the_temperature_of_the_tokens_sign() -> None:
    """r = 1.5: sigmoid(2 * 0.5) for A > 0, sigmoid(4 * 0.5) for A < 0."""
    plus, minus = 1 / (1 + math.exp(-1.0)), 1 / (1 + math.exp(-2.0))
    rows = ([[-1.0], [-1.0]], [[1.5], [1.5]], [1.0, -1.0], [0, 1])
    loss, grad, _ = objective(*rows, clipping="sapo", tau_pos=2.0, tau_neg=4.0)
    assert loss == pytest.approx((-2.0 * plus + 1.0 * minus) / 2)
    assert grad[0][0] == pytest.approx(-4 * plus * (1 - plus) * 1.5 / 2)
    assert grad[1][0] == pytest.approx(4 * minus * (1 - minus) * 1.5 / 2)


LOOP_ROWS = (
    [[-1.0, -1.0], [-1.0, 0.0], [-1.0, 0.0]],
    [[1.1, 1.0], [0.95, 0.0], [1.5, 0.0]],
    [2.0, 2.0, 1.0],
    [4, 4, 7],
)
"""Trajectory 4 = turns with ratios (1.1, 1.0) and (0.95); trajectory 7 = one turn with ratio 1.5, above 1.2."""


def test_loop_turn_takes_the_product_without_a_root() -> None:
    loss, grad, metrics = objective(
        *LOOP_ROWS, clipping="loop", ratio_level="turn", aggregation="traj-mean-turn-mean-token-mean"
    )
    assert loss == pytest.approx(((-2.2 - 1.9) / 2 - 1.2) / 2)
    assert grad[0] == pytest.approx([-2.2 / 4, -2.2 / 4])
    assert grad[1:] == [pytest.approx([-1.9 / 4, 0.0]), [0.0, 0.0]]
    assert metrics["clip_rows_frac"] == pytest.approx(1 / 3)


def test_loop_trajectory_takes_the_product_over_all_turns() -> None:
    """R = 1.1 * 1.0 * 0.95 = 1.045; every token of the trajectory gets its gradient -A R / N."""
    loss, grad, _ = objective(*LOOP_ROWS, clipping="loop", ratio_level="trajectory", aggregation="traj-mean-token-mean")
    assert loss == pytest.approx((-2.0 * 1.045 - 1.2) / 2)
    assert grad[0] == pytest.approx([-1.045, -1.045])
    assert grad[1:] == [pytest.approx([-1.045, 0.0]), [0.0, 0.0]]


def test_loop_bounds_reciprocal_ends_at_one_over_one_plus_epsilon() -> None:
    """r = 0.82, A < 0: inside [0.8, 1.25], below 1 / 1.25 = 0.8 only for r = 0.79."""
    for ratio, expected in ((0.82, 0.82), (0.79, 0.8)):
        row = ([[-1.0]], [[ratio]], [-1.0], [0])
        loss, _, _ = objective(*row, clipping="loop", ratio_bounds="reciprocal", clip_high=0.25, clip_low=0.5)
        assert loss == pytest.approx(expected)
        loss, _, _ = objective(*row, clipping="loop", clip_high=0.25, clip_low=0.1)
        assert loss == pytest.approx(0.9)


# Mean A = 0, mean log pi = -2: covariances +1, -1 in the first row, 0, 0 in the second.
COV_LOGP, COV_ADV = [[-1.0, -3.0], [-2.0, -2.0]], [1.0, -1.0]
ONES = [[1.0, 1.0], [1.0, 1.0]]


def test_clip_cov_drops_the_token_between_the_bounds() -> None:
    settings = {"clipping": "clip_cov", "cov_low": 0.5, "cov_high": 5.0}
    loss, grad, metrics = objective(COV_LOGP, ONES, COV_ADV, [0, 1], **settings)
    assert loss == pytest.approx((0.0 - 1.0 + 1.0 + 1.0) / 4)
    assert grad == [[0.0, -0.25], [0.25, 0.25]]
    assert metrics["cov_selected_frac"] == 0.25


@pytest.mark.parametrize(
    ("ratio", "bounds"), [(1.5, (0.5, 5.0)), (1.0, (1.0, 5.0)), (1.0, (0.5, 1.0))], ids=["clipped", "low", "high"]
)
def test_clip_cov_leaves_clipped_tokens_and_those_on_the_bounds_alone(
    ratio: float, bounds: tuple[float, float]
) -> None:
    settings = {"clipping": "clip_cov", "cov_low": bounds[0], "cov_high": bounds[1]}
    _, grad, metrics = objective(COV_LOGP, [[ratio, 1.0], [1.0, 1.0]], COV_ADV, [0, 1], **settings)
    assert metrics["cov_selected_frac"] == 0.0
    assert grad[0] == [0.0 if ratio > 1.2 else -0.25, -0.25]


def test_kl_cov_penalises_the_token_with_the_largest_covariance_and_never_clips() -> None:
    ratios = [[1.1, 1.5], [1.0, 1.0]]
    loss, grad, metrics = objective(COV_LOGP, ratios, COV_ADV, [0, 1], clipping="kl_cov", cov_coef=2.0)
    assert loss == pytest.approx((-1.1 + 2.0 * math.log(1.1) - 1.5 + 1.0 + 1.0) / 4)
    assert grad[0] == pytest.approx([(-1.1 + 2.0) / 4, -1.5 / 4])
    assert metrics["cov_selected_frac"] == 0.25
    assert metrics["clip_frac"] == 0.0


@pytest.mark.parametrize(("frac", "picked"), [(2e-4, 1), (0.49, 1), (0.5, 2), (0.99, 3), (1.0, 4)])
def test_kl_cov_picks_the_floor_of_the_share_but_at_least_one(frac: float, picked: int) -> None:
    _, _, metrics = objective(COV_LOGP, ONES, COV_ADV, [0, 1], clipping="kl_cov", cov_frac=frac)
    assert metrics["cov_selected_frac"] == picked / 4


@pytest.mark.parametrize("modifier", MODIFIERS)
def test_on_policy_ppo_gradient_equals_the_gradient_without_a_ratio(
    batch_of: Callable[..., Any], modifier: str
) -> None:
    batch = batch_of(21, spread=0.0, token_advantages=True)
    _, ppo = batch.objective(spec_of("ppo", modifier))
    _, plain = batch.objective(spec_of("none", modifier))
    assert torch.allclose(ppo, plain, rtol=1e-12, atol=1e-15)
    assert torch.count_nonzero(ppo) > 0


def test_wide_open_bounds_make_clip_cov_without_candidates_and_loop_equal_to_ppo(batch_of: Callable[..., Any]) -> None:
    batch = batch_of(22, token_advantages=True)
    loss, grad = batch.objective(spec_of("ppo"))
    for same in (spec_of("loop"), spec_of("clip_cov", cov_low=1e6, cov_high=1e7)):
        other, other_grad = batch.objective(same)
        assert torch.equal(other.loss, loss.loss)
        assert torch.equal(other_grad, grad)


def test_loop_levels_agree_when_every_trajectory_is_one_token(batch_of: Callable[..., Any]) -> None:
    batch = batch_of(23, width=1)
    batch = replace(batch, trajectory_id=torch.arange(6), mask=torch.ones_like(batch.mask))
    token, token_grad = batch.objective(spec_of("loop"))
    for level in ("turn", "trajectory"):
        other, grad = batch.objective(spec_of("loop", ratio_level=level))
        assert other.loss.item() == pytest.approx(token.loss.item(), rel=1e-12)
        assert torch.allclose(grad, token_grad, rtol=1e-12)
