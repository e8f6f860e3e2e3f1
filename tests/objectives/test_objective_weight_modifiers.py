"""Sequence masking and the mismatch correction: which rows and tokens lose weight, and what stays as it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from objective_variants import CLIPPING_VARIANTS, MISMATCHES, spec_of
from torch import Tensor

from arlarena_rllib.objectives import (
    ObjectiveSpec,
    RowIds,
    batch_context,
    finish_metrics,
    global_denominators,
    mismatch_weights,
    policy_objective,
)


def log(values: list[list[float]]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).log()


# Row 0: A < 0, log(old / new) = log 2 per token. Row 1: A < 0, nearly unmoved. Row 2: as row 0, but A > 0.
RATIOS = log([[0.5, 0.5], [0.9, 1.0], [0.5, 0.5]])
ADVANTAGES = torch.tensor([-1.0, -1.0, 1.0], dtype=torch.float64)


def masked_objective(delta: float | None, norm: str, **more: Any) -> tuple[float, list[list[float]], dict[str, float]]:
    """PPO without a lower bound on the rows above, old log-probs 0, reference log-probs -1."""
    spec = ObjectiveSpec(clip_low=1.0, seq_mask_delta=delta, seq_mask_norm=norm, **{"kl_coef": 0.0, **more})
    logp_B_T, zero_B_T, mask_B_T = RATIOS.clone().requires_grad_(), torch.zeros_like(RATIOS), torch.ones(3, 2)
    ids = RowIds(torch.arange(3), torch.zeros(3, dtype=torch.int64))
    weight_B = global_denominators(mask_B_T, ids.trajectory_id_B, spec).weight_B
    arguments = (logp_B_T, zero_B_T, ADVANTAGES, mask_B_T, weight_B, spec)
    result = policy_objective(*arguments, ref_logp_B_T=zero_B_T - 1.0, ids=ids)
    (grad_B_T,) = torch.autograd.grad(result.loss, logp_B_T)
    return result.loss.item(), grad_B_T.tolist(), finish_metrics(result.metrics)


def test_sequence_mask_drops_the_fallen_row_with_negative_advantage_only() -> None:
    loss, grad, metrics = masked_objective(0.5, "all_tokens")
    assert loss == pytest.approx((0.9 + 1.0 - 0.5 - 0.5) / 6)
    assert grad[0] == [0.0, 0.0]
    assert grad[1:] == [pytest.approx([0.9 / 6, 1.0 / 6]), pytest.approx([-0.5 / 6, -0.5 / 6])]
    assert metrics["masked_rows_frac"] == pytest.approx(1 / 3)


def test_sequence_mask_off_keeps_every_row_and_logs_nothing() -> None:
    loss, _, metrics = masked_objective(None, "all_tokens")
    assert loss == pytest.approx((0.5 + 0.5 + 0.9 + 1.0 - 0.5 - 0.5) / 6)
    assert "masked_rows_frac" not in metrics


def test_sequence_mask_kept_tokens_shrinks_the_denominator_of_the_policy_term_only() -> None:
    loss, grad, metrics = masked_objective(0.5, "kept_tokens", kl_coef=0.5, kl_estimator="k1")
    kl = (2 * math.log(0.5) + math.log(0.9) + 2 * math.log(0.5)) / 6 + 1.0
    assert metrics["policy_loss"] == pytest.approx((0.9 + 1.0 - 0.5 - 0.5) / 4)
    assert metrics["kl_loss"] == pytest.approx(kl)
    assert loss == pytest.approx(0.225 + 0.5 * kl)
    assert grad[0] == pytest.approx([0.5 / 6, 0.5 / 6])


def test_sequence_mask_tests_strictly_more_than_delta(batch_of: Callable[..., Any]) -> None:
    spec = spec_of("ppo", seq_mask_delta=0.0)
    batch = batch_of(30, spread=0.0)
    assert finish_metrics(batch.objective(spec)[0].metrics)["masked_rows_frac"] == 0.0
    fallen = replace(batch, logp=batch.logp - 1e-9)
    live = batch.mask.any(-1)
    expected = ((batch.advantages < 0) & live).sum() / live.sum()
    assert finish_metrics(fallen.objective(spec)[0].metrics)["masked_rows_frac"] == pytest.approx(float(expected))
    no_signal = replace(fallen, advantages=0.0 * batch.advantages)
    assert finish_metrics(no_signal.objective(spec)[0].metrics)["masked_rows_frac"] == 0.0


@pytest.mark.parametrize("factor", [1.0, 1.1])
@pytest.mark.parametrize("clip_low", [3e-3, 0.2])
def test_sequence_mask_is_redundant_for_gspo_from_its_own_bound_on(
    batch_of: Callable[..., Any], clip_low: float, factor: float
) -> None:
    """s < exp(-delta) <= 1 - clip_low: GSPO has clipped the row already. A smaller delta masks more."""
    batch = batch_of(31, n_rows=30, spread=2 * clip_low)
    settings = {"clip_low": clip_low, "clip_high": 2 * clip_low}
    _, plain = batch.objective(spec_of("gspo", **settings))
    masked, grad = batch.objective(spec_of("gspo", seq_mask_delta=-factor * math.log1p(-clip_low), **settings))
    assert finish_metrics(masked.metrics)["masked_rows_frac"] > 0.0
    assert torch.equal(grad, plain)
    _, more = batch.objective(spec_of("gspo", seq_mask_delta=clip_low / 10, **settings))
    assert not torch.allclose(more, plain)


@pytest.mark.parametrize("clipping", CLIPPING_VARIANTS)
def test_sequence_mask_of_every_row_leaves_no_policy_loss(batch_of: Callable[..., Any], clipping: str) -> None:
    batch = batch_of(32)
    batch = replace(batch, logp=batch.old_logp - 1.0, advantages=-batch.advantages.abs() - 0.1)
    for norm in ("all_tokens", "kept_tokens"):
        spec = spec_of(clipping, seq_mask_delta=0.5, seq_mask_norm=norm, kl_coef=0.0)
        result, grad = batch.objective(spec)
        metrics = finish_metrics(result.metrics)
        assert (metrics["policy_loss"], metrics["masked_rows_frac"]) == (0.0, 1.0)
        assert torch.count_nonzero(grad) == 0


RHO, MASK = log([[3.0, 0.25, 1.0], [1.0, 1.1, 1.0]]), torch.tensor([[1, 1, 0], [1, 1, 0]]).bool()
"""Products 0.75 and 1.1; geometric means 0.866 and 1.0488; the third column is not the policy's."""
Q = 0.75


@pytest.mark.parametrize(
    ("settings", "weights", "masked_tokens", "masked_rows", "truncated"),
    [
        ({"mismatch_is": "tis_token"}, [[2.0, 0.25], [1.0, 1.1]], 0.0, 0.0, 0.25),
        ({"mismatch_is": "tis_seq", "mismatch_high": 1.0}, [[Q, Q], [1.0, 1.0]], 0.0, 0.0, 0.5),
        ({"mismatch_is": "mis_token"}, [[0.0, 0.0], [1.0, 1.1]], 0.5, 0.5, 0.0),
        ({"mismatch_is": "mis_token", "mismatch_low": 0.0}, [[0.0, 0.25], [1.0, 1.1]], 0.25, 0.0, 0.0),
        ({"mismatch_is": "mis_seq"}, [[Q, Q], [1.1, 1.1]], 0.0, 0.0, 0.0),
        ({"mismatch_is": "mis_seq", "mismatch_high": 1.05}, [[Q, Q], [0.0, 0.0]], 0.5, 0.5, 0.0),
        ({"mismatch_is": "none", "geo_low": 0.9}, [[0.0, 0.0], [1.0, 1.0]], 0.5, 0.5, 0.0),
        ({"mismatch_is": "none", "geo_high": 1.04}, [[1.0, 1.0], [0.0, 0.0]], 0.5, 0.5, 0.0),
        ({"mismatch_is": "none", "geo_low": 0.8, "geo_high": 1.05}, [[1.0, 1.0], [1.0, 1.0]], 0.0, 0.0, 0.0),
        ({"mismatch_is": "tis_token", "geo_low": 0.9}, [[0.0, 0.0], [1.0, 1.1]], 0.5, 0.5, 0.0),
    ],
)
def test_mismatch_weight_is_the_hand_computed_one(
    settings: dict[str, Any], weights: list[list[float]], masked_tokens: float, masked_rows: float, truncated: float
) -> None:
    spec = ObjectiveSpec(mismatch="active", kl_coef=0.0, **settings)
    found = mismatch_weights(RHO, MASK, spec)
    assert found.weight_B_T[:, :2].tolist() == [pytest.approx(row) for row in weights]
    assert torch.count_nonzero(found.weight_B_T[:, 2]) == 0

    one_B = torch.ones(2, dtype=torch.float64)
    logp_B_T = torch.full_like(RHO, -1.0, requires_grad=True)
    arguments = (logp_B_T, logp_B_T.detach(), one_B, MASK, one_B / 4, spec)
    result = policy_objective(*arguments, rollout_logp_B_T=-1.0 - RHO)
    (grad_B_T,) = torch.autograd.grad(result.loss, logp_B_T)
    assert grad_B_T[:, :2].tolist() == [pytest.approx([-w / 4 for w in row]) for row in weights]
    metrics = finish_metrics(result.metrics)
    assert metrics["mismatch_weight_mean"] == pytest.approx(sum(map(sum, weights)) / 4)
    assert metrics["mismatch_masked_tokens_frac"] == masked_tokens
    assert metrics["mismatch_masked_rows_frac"] == masked_rows
    assert metrics["mismatch_truncated_tokens_frac"] == truncated


@pytest.mark.parametrize("kind", MISMATCHES)
def test_mismatch_observe_measures_as_active_does_but_leaves_the_loss(batch_of: Callable[..., Any], kind: str) -> None:
    batch, settings = batch_of(33), {"mismatch_is": kind, "geo_high": 1.1, "mismatch_high": 1.2}
    off, off_grad = batch.objective(spec_of("ppo"))
    observed, grad = batch.objective(spec_of("ppo", mismatch="observe", **settings))
    active, active_grad = batch.objective(spec_of("ppo", mismatch="active", **settings))
    assert torch.equal(observed.loss, off.loss)
    assert torch.equal(grad, off_grad)
    assert not torch.allclose(active_grad, grad)
    names = [name for name in finish_metrics(active.metrics) if name.startswith("mismatch_")]
    assert len(names) == 4
    assert all(finish_metrics(observed.metrics)[name] == finish_metrics(active.metrics)[name] for name in names)
    assert not any(name.startswith("mismatch_") for name in finish_metrics(off.metrics))


@pytest.mark.parametrize("kind", MISMATCHES)
def test_mismatch_of_equal_policies_changes_nothing(batch_of: Callable[..., Any], kind: str) -> None:
    batch = batch_of(34)
    batch = replace(batch, rollout_logp=batch.old_logp)
    loss, grad = batch.objective(spec_of("sapo"))
    same, same_grad = batch.objective(spec_of("sapo", mismatch="active", mismatch_is=kind, geo_low=1.0, geo_high=1.0))
    assert torch.equal(same.loss, loss.loss)
    assert torch.equal(same_grad, grad)


def test_mismatch_keeps_the_kl_term_and_its_denominators(batch_of: Callable[..., Any]) -> None:
    batch = batch_of(35)
    plain, _ = batch.objective(spec_of("ppo"))
    masked, _ = batch.objective(spec_of("ppo", mismatch="active", mismatch_is="none", geo_low=1.0, geo_high=1.0))
    assert finish_metrics(masked.metrics)["mismatch_masked_rows_frac"] == 1.0
    assert finish_metrics(masked.metrics)["policy_loss"] == 0.0
    assert finish_metrics(masked.metrics)["kl_loss"] == finish_metrics(plain.metrics)["kl_loss"] > 0.0


def test_mismatch_without_the_engines_log_probs_raises(batch_of: Callable[..., Any]) -> None:
    batch, spec = batch_of(36), ObjectiveSpec(mismatch="observe", kl_coef=0.0)
    arguments = (batch.logp, batch.old_logp, batch.advantages, batch.mask, batch.weight(spec), spec)
    with pytest.raises(ValueError, match="mismatch='observe' needs rollout_logp_B_T"):
        policy_objective(*arguments)
    with pytest.raises(ValueError, match="mismatch='active' needs rollout_logp_B_T"):
        active = spec_of("loop-trajectory", "mismatch-tis_seq")
        batch_context(*arguments[:-1], active, batch.ids())
    with pytest.raises(ValueError, match=r"rollout_logp_B_T \(6, 4\)"):
        policy_objective(*arguments, rollout_logp_B_T=batch.rollout_logp[:, :4])
