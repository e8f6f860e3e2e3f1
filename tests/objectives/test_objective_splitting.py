"""Any split of the rows over micro-batches or learners, and any order, gives the loss and gradient of the whole batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objective_variants import CLIPPING_VARIANTS, CLIPPINGS, MODIFIERS, spec_of

from arlarena_rllib.objectives import AXES, ObjectiveSpec, finish_metrics, merge_metrics

COMBINATIONS = [(clipping, "plain", agg) for clipping in CLIPPING_VARIANTS for agg in AXES["aggregation"].names()]
COMBINATIONS += [
    (clipping, modifier, "traj-mean-token-mean")
    for clipping in CLIPPING_VARIANTS
    for modifier in MODIFIERS
    if modifier != "plain"
]


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000), owner=st.lists(st.integers(0, 3), min_size=8, max_size=8))
@pytest.mark.parametrize(("clipping", "modifier", "aggregation"), COMBINATIONS)
def test_micro_batches_add_up_to_the_whole_batch(
    batch_of: Callable[..., Any], clipping: str, modifier: str, aggregation: str, seed: int, owner: list[int]
) -> None:
    """Rows of one trajectory may land in different micro-batches; a part may hold masked rows only."""
    spec, batch = spec_of(clipping, modifier, aggregation=aggregation), batch_of(seed, n_rows=8)
    weight, context = batch.weight(spec), batch.context(spec)
    whole, whole_grad = batch.objective(spec)
    summed_grad, summed_loss, metrics = torch.zeros_like(whole_grad), 0.0, []
    for part in set(owner):
        index = torch.tensor([row for row, who in enumerate(owner) if who == part])
        part_context = {name: value[index] for name, value in context.items()}
        result, grad = batch.rows(index).objective(spec, weight[index], part_context)
        summed_loss += result.loss.item()
        summed_grad[index] += grad
        metrics.append(result.metrics)
    assert summed_loss == pytest.approx(whole.loss.item(), rel=1e-12, abs=1e-14)
    assert torch.allclose(summed_grad, whole_grad, rtol=1e-12, atol=1e-15)
    merged, expected = finish_metrics(merge_metrics(metrics)), finish_metrics(whole.metrics)
    assert merged == pytest.approx(expected, rel=1e-9, abs=1e-12)


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10_000), order=st.permutations(range(6)))
@pytest.mark.parametrize(("clipping", "modifier", "aggregation"), COMBINATIONS)
def test_order_of_rows_permutes_the_gradient_only(
    batch_of: Callable[..., Any], clipping: str, modifier: str, aggregation: str, seed: int, order: list[int]
) -> None:
    spec = spec_of(clipping, modifier, aggregation=aggregation)
    batch, index = batch_of(seed), torch.tensor(order)
    whole, grad = batch.objective(spec)
    moved, moved_grad = batch.rows(index).objective(spec)
    assert moved.loss.item() == pytest.approx(whole.loss.item(), rel=1e-12, abs=1e-14)
    assert torch.allclose(moved_grad, grad[index], rtol=1e-12, atol=1e-15)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
@pytest.mark.parametrize("aggregation", AXES["aggregation"].names())
def test_gspo_token_equals_gspo_for_row_advantages(batch_of: Callable[..., Any], aggregation: str, seed: int) -> None:
    batch = batch_of(seed, spread=0.1)
    sequence, sequence_grad = batch.objective(spec_of("gspo", aggregation=aggregation))
    token, token_grad = batch.objective(spec_of("gspo_token", aggregation=aggregation))
    assert token.loss.item() == pytest.approx(sequence.loss.item(), rel=1e-12, abs=1e-14)
    assert torch.allclose(token_grad, sequence_grad, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_on_policy_gradient_is_the_plain_policy_gradient(batch_of: Callable[..., Any], clipping: str) -> None:
    """At ratio 1 nothing is clipped: gradient -A / n_tokens at every policy token."""
    batch = batch_of(11, spread=0.0)
    spec = ObjectiveSpec(clipping=clipping, kl_coef=0.0, cov_low=1e6, cov_high=1e7)
    result, grad = batch.objective(spec)
    expected = -batch.advantages.unsqueeze(-1) * batch.mask / batch.mask.sum()
    assert torch.allclose(grad, expected)
    assert finish_metrics(result.metrics)["clip_frac"] == 0.0
    assert finish_metrics(result.metrics)["ess_token_frac"] == 1.0


def test_merge_metrics_with_a_key_of_unknown_kind_raises() -> None:
    with pytest.raises(ValueError, match="sum, min, max"):
        merge_metrics([{"mean/loss": torch.tensor(1.0)}])


def test_objective_of_a_batch_without_rows_is_zero(batch_of: Callable[..., Any]) -> None:
    batch = batch_of(12).rows(torch.tensor([], dtype=torch.int64))
    result, grad = batch.objective(spec_of("ppo"))
    assert result.loss.item() == 0.0
    assert grad.shape == (0, 5)
