"""What stands at masked positions, and how many there are, must change neither values nor gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objective_variants import CLIPPING_VARIANTS, CLIPPINGS, MODIFIERS, spec_of

from arlarena_rllib.objectives import (
    AXES,
    ClipInput,
    ClipResult,
    ObjectiveSpec,
    RowIds,
    finish_metrics,
    mismatch_metrics,
    out_of_band_table,
    policy_objective,
    sequence_table,
)
from arlarena_rllib.objectives.kl import REGISTRY as KL

AGGREGATIONS = AXES["aggregation"].names()
GARBAGE = [math.nan, math.inf, -math.inf, 1e30, -1e30]


@pytest.mark.parametrize("token_advantages", [False, True])
@pytest.mark.parametrize("modifier", MODIFIERS)
@pytest.mark.parametrize("clipping", CLIPPING_VARIANTS)
def test_garbage_at_masked_positions_changes_nothing(
    batch_of: Callable[..., Any], clipping: str, modifier: str, token_advantages: bool
) -> None:
    spec = spec_of(clipping, modifier)
    batch = batch_of(3, token_advantages=token_advantages)
    clean, clean_grad = batch.objective(spec)
    for garbage in GARBAGE:
        dirty, dirty_grad = batch.with_garbage(garbage).objective(spec)
        assert torch.equal(clean.loss, dirty.loss), garbage
        assert torch.equal(clean_grad, dirty_grad), garbage
        assert finish_metrics(clean.metrics) == finish_metrics(dirty.metrics), garbage


@pytest.mark.parametrize("estimator", KL.names())
def test_kl_estimator_with_nan_at_masked_positions_has_the_same_gradient(
    batch_of: Callable[..., Any], estimator: str
) -> None:
    spec = spec_of("ppo", kl_estimator=estimator)
    batch = batch_of(4)
    clean, clean_grad = batch.objective(spec)
    dirty, dirty_grad = batch.with_garbage(math.nan).objective(spec)
    assert torch.equal(clean.loss, dirty.loss)
    assert torch.equal(clean_grad, dirty_grad)


def test_entropy_gradient_with_nan_at_masked_positions_is_zero_there(batch_of: Callable[..., Any]) -> None:
    spec, batch = spec_of("ppo"), batch_of(5).with_garbage(math.nan)
    entropy = batch.entropy.clone().requires_grad_()
    arguments = (batch.logp, batch.old_logp, batch.advantages, batch.mask, batch.weight(spec), spec)
    result = policy_objective(*arguments, ref_logp_B_T=batch.ref_logp, entropy_B_T=entropy)
    (grad,) = torch.autograd.grad(result.loss, entropy)
    expected = -spec.entropy_coef * batch.weight(spec).unsqueeze(-1) * batch.mask
    assert torch.allclose(grad, expected)


def test_metrics_functions_ignore_nan_at_masked_positions(batch_of: Callable[..., Any]) -> None:
    clean, dirty = batch_of(6), batch_of(6).with_garbage(math.nan)
    tables = []
    for batch in (clean, dirty):
        ratio = batch.logp - batch.old_logp
        tables.append(
            (
                finish_metrics(mismatch_metrics(batch.old_logp, batch.ref_logp, batch.mask)),
                out_of_band_table(ratio, batch.advantages.unsqueeze(-1).expand_as(ratio), batch.mask),
                sequence_table(ratio, batch.advantages, batch.mask, ratio.square(), batch.entropy),
            )
        )
    assert tables[0] == tables[1]


EMPTY = [(clipping, modifier, "token-mean") for clipping in CLIPPING_VARIANTS for modifier in MODIFIERS]
EMPTY += [("ppo", modifier, name) for modifier in ("plain", "all") for name in AGGREGATIONS]


@pytest.mark.parametrize(("clipping", "modifier", "aggregation"), EMPTY)
def test_everything_masked_gives_exactly_zero_loss_and_gradient(
    batch_of: Callable[..., Any], clipping: str, modifier: str, aggregation: str
) -> None:
    spec, batch = spec_of(clipping, modifier, aggregation=aggregation), batch_of(7)
    batch.mask.zero_()
    result, grad = batch.with_garbage(math.nan).objective(spec)
    assert result.loss.item() == 0.0
    assert torch.count_nonzero(grad) == 0
    metrics = finish_metrics(result.metrics)
    assert metrics["num_tokens"] == metrics["num_rows"] == metrics["total_loss"] == 0.0
    assert "ratio_mean" not in metrics


PADDED = [("gspo", "plain", name) for name in AGGREGATIONS]
PADDED += [(clipping, modifier, "token-mean") for clipping in CLIPPING_VARIANTS for modifier in ("plain", "all")]


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), width=st.integers(1, 7), row=st.integers(0, 5))
@pytest.mark.parametrize(("clipping", "modifier", "aggregation"), PADDED)
def test_amount_of_padding_changes_nothing(
    batch_of: Callable[..., Any], clipping: str, modifier: str, aggregation: str, seed: int, width: int, row: int
) -> None:
    """Columns of padding, and whole rows of padding."""
    spec, batch = spec_of(clipping, modifier, aggregation=aggregation), batch_of(seed)
    loss, grad = batch.objective(spec)
    wide_loss, wide_grad = batch.padded(width, math.nan).objective(spec)
    assert wide_loss.loss.item() == pytest.approx(loss.loss.item(), rel=1e-12, abs=1e-15)
    assert torch.allclose(wide_grad[:, : grad.shape[1]], grad, rtol=1e-12, atol=1e-15)
    assert torch.count_nonzero(wide_grad[:, grad.shape[1] :]) == 0

    index = torch.cat([torch.arange(6), torch.tensor([row])])
    longer = batch.rows(index)
    longer.mask[-1] = False
    long_loss, long_grad = longer.objective(spec)
    assert long_loss.loss.item() == pytest.approx(loss.loss.item(), rel=1e-12, abs=1e-15)
    assert torch.count_nonzero(long_grad[-1]) == 0


@pytest.mark.parametrize("gap", [25.0, 1e4, math.inf])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("modifier", MODIFIERS)
@pytest.mark.parametrize("clipping", CLIPPING_VARIANTS)
def test_huge_log_ratio_on_a_policy_token_stays_finite(clipping: str, modifier: str, sign: float, gap: float) -> None:
    spec = spec_of(clipping, modifier, kl_estimator="k3", entropy_coef=0.0)
    logp = torch.tensor([[-1.0, -1.0]], requires_grad=True)
    old = torch.tensor([[-1.0 - sign * gap, -1.0]])
    adv, mask, weight = torch.tensor([-1.0]), torch.ones(1, 2), torch.tensor([0.5])
    ids = RowIds(torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    more = {"ref_logp_B_T": old, "rollout_logp_B_T": -torch.ones(1, 2), "ids": ids}
    result = policy_objective(logp, old, adv, mask, weight, spec, **more)
    (grad,) = torch.autograd.grad(result.loss, logp)
    assert torch.isfinite(result.loss)
    assert torch.isfinite(grad).all()
    assert all(math.isfinite(value) for value in finish_metrics(result.metrics).values())


def test_clipping_function_that_returns_garbage_at_masked_positions_is_masked(
    batch_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third-party function need not treat masked positions, neither in its losses nor in its indicators."""

    def careless(rows: ClipInput, spec: ObjectiveSpec) -> ClipResult:
        everywhere = torch.ones_like(rows.mask_B_T)
        return ClipResult(torch.where(rows.mask_B_T, -rows.adv_B_T * rows.logp_B_T, math.nan), everywhere, everywhere)

    batch = batch_of(10)
    monkeypatch.setattr(AXES["clipping"], "_choices", dict(AXES["clipping"]._choices))
    AXES["clipping"].register("careless")(careless)
    result, grad = batch.objective(ObjectiveSpec(clipping="careless", kl_coef=0.0))
    assert torch.isfinite(result.loss)
    assert torch.allclose(grad, -batch.advantages.unsqueeze(-1) * batch.mask / batch.mask.sum())
    assert finish_metrics(result.metrics)["clip_frac"] == 1.0


def test_old_and_reference_log_probs_and_advantages_get_no_gradient(batch_of: Callable[..., Any]) -> None:
    batch = batch_of(10)
    inputs = [tensor.clone().requires_grad_() for tensor in (batch.logp, batch.old_logp, batch.advantages)]
    ref = batch.ref_logp.clone().requires_grad_()
    spec = ObjectiveSpec(kl_coef=0.1, kl_estimator="k3_is")
    policy_objective(*inputs, batch.mask, batch.weight(spec), spec, ref_logp_B_T=ref).loss.backward()
    assert inputs[0].grad is not None
    assert all(tensor.grad is None for tensor in (*inputs[1:], ref))


@pytest.mark.parametrize("modifier", MODIFIERS)
def test_nan_at_a_policy_token_is_not_hidden(batch_of: Callable[..., Any], modifier: str) -> None:
    spec = spec_of("ppo", modifier)
    for name in ("logp", "rollout_logp") if spec.mismatch == "active" else ("logp",):
        batch = batch_of(8)
        row, token = batch.mask.nonzero()[0].tolist()
        getattr(batch, name)[row, token] = math.nan
        assert torch.isnan(batch.objective(spec)[0].loss)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_low_precision_inputs_agree_with_float64(
    batch_of: Callable[..., Any], clipping: str, dtype: torch.dtype
) -> None:
    spec = spec_of(clipping, kl_estimator="k3", aggregation="seq-mean-token-mean")
    batch = batch_of(9, dtype=dtype)
    exact = type(batch)(
        **{name: value.double() if value.is_floating_point() else value for name, value in vars(batch).items()}
    )
    low, low_grad = batch.objective(spec)
    high, high_grad = exact.objective(spec)
    assert low.loss.dtype == torch.float32
    assert low.loss.item() == pytest.approx(high.loss.item(), rel=1e-5, abs=1e-6)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-2
    assert torch.allclose(low_grad.double(), high_grad, rtol=tolerance, atol=1e-4)
