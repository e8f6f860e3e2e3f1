"""Gradients against central differences of the loss value, in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from objective_variants import CLIPPING_VARIANTS, MODIFIERS, spec_of
from torch import Tensor

from arlarena_rllib.objectives import AXES, ObjectiveSpec

STEP = 1e-6
# Choices whose value does not carry their gradient (stop-gradients inside) cannot be checked this way.
VALUE_HAS_GRADIENT = [name for name in CLIPPING_VARIANTS if name not in ("gspo_token", "cispo")]
# Its gradient is exact for advantages that are constant in a trajectory, and when all its rows are kept.
PER_TRAJECTORY = "loop-trajectory"


def numeric_gradient(batch: Any, spec: ObjectiveSpec) -> Tensor:
    grad = torch.zeros_like(batch.logp)
    for row, token in batch.mask.nonzero().tolist():
        shift = torch.zeros_like(batch.logp)
        shift[row, token] = STEP
        up, _ = replace(batch, logp=batch.logp + shift).objective(spec)
        down, _ = replace(batch, logp=batch.logp - shift).objective(spec)
        grad[row, token] = (up.loss - down.loss) / (2 * STEP)
    return grad


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("aggregation", AXES["aggregation"].names())
@pytest.mark.parametrize("clipping", VALUE_HAS_GRADIENT)
def test_gradient_of_clipping_and_aggregation_matches_central_differences(
    batch_of: Callable[..., Any], clipping: str, aggregation: str, seed: int
) -> None:
    spec = spec_of(clipping, aggregation=aggregation)
    batch = batch_of(seed, n_rows=4, width=4, token_advantages=clipping != PER_TRAJECTORY)
    if clipping == PER_TRAJECTORY:
        batch = replace(batch, advantages=batch.advantages[batch.trajectory_id])
    _, grad = batch.objective(spec)
    assert torch.allclose(grad, numeric_gradient(batch, spec), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("modifier", MODIFIERS)
@pytest.mark.parametrize("clipping", [name for name in VALUE_HAS_GRADIENT if name != PER_TRAJECTORY])
def test_gradient_under_masks_and_corrections_matches_central_differences(
    batch_of: Callable[..., Any], clipping: str, modifier: str
) -> None:
    """Masks and weights carry no gradient of their own."""
    spec, batch = spec_of(clipping, modifier), batch_of(5, n_rows=5, width=3)
    _, grad = batch.objective(spec)
    assert torch.allclose(grad, numeric_gradient(batch, spec), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("modifier", MODIFIERS)
def test_trajectory_product_gradient_is_exact_on_every_row_that_carries_weight(
    batch_of: Callable[..., Any], modifier: str
) -> None:
    """A row that a mask takes out keeps its place in the product, but gets no policy gradient itself."""
    spec, batch = spec_of(PER_TRAJECTORY, modifier, kl_coef=0.0), batch_of(5, n_rows=6, width=3, spread=0.1)
    batch = replace(batch, advantages=batch.advantages[batch.trajectory_id])
    _, grad = batch.objective(spec)
    numeric, carries = numeric_gradient(batch, spec), batch.context(spec)["trajectory_scale_B"] > 0
    assert torch.allclose(grad[carries], numeric[carries], rtol=1e-6, atol=1e-8)
    assert torch.count_nonzero(grad[~carries]) == 0
    assert torch.count_nonzero(grad[carries]) > 0


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "abs", "k3_is"])
def test_gradient_of_kl_matches_central_differences(batch_of: Callable[..., Any], estimator: str) -> None:
    spec = ObjectiveSpec(kl_coef=1.0, kl_estimator=estimator)
    batch = batch_of(2, n_rows=3, width=4)
    _, grad = batch.objective(spec)
    assert torch.allclose(grad, numeric_gradient(batch, spec), rtol=1e-6, atol=1e-8)


def test_gradient_of_dual_clip_matches_central_differences(batch_of: Callable[..., Any]) -> None:
    spec = ObjectiveSpec(dual_clip=1.5, kl_coef=0.0)
    batch = batch_of(3, n_rows=5, width=4, spread=1.0)
    _, grad = batch.objective(spec)
    assert torch.allclose(grad, numeric_gradient(batch, spec), rtol=1e-6, atol=1e-8)


def test_gspo_gradient_spreads_over_the_whole_row(batch_of: Callable[..., Any]) -> None:
    """The sequence ratio couples the tokens of a row, and only of that row."""
    batch = batch_of(4, n_rows=3, width=4, spread=0.01)
    spec = ObjectiveSpec(clipping="gspo", aggregation="seq-mean-token-mean", kl_coef=0.0)
    _, grad = batch.objective(spec)
    for row in range(3):
        live = grad[row][batch.mask[row]]
        assert torch.allclose(live, live[:1].expand_as(live))
