"""The context of a minibatch: who needs one, and that it does not depend on how the rows arrived."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from objective_variants import CLIPPING_VARIANTS, MODIFIERS, spec_of

from arlarena_rllib.objectives import ObjectiveSpec, RowIds, batch_context, needs_context, policy_objective

NEEDS = [("loop-trajectory", "plain"), ("clip_cov", "plain"), ("kl_cov", "plain"), ("ppo", "seq_mask-kept")]


@pytest.mark.parametrize("modifier", MODIFIERS)
@pytest.mark.parametrize("clipping", CLIPPING_VARIANTS)
def test_context_is_needed_exactly_where_one_is_computed(
    batch_of: Callable[..., Any], clipping: str, modifier: str
) -> None:
    spec, batch = spec_of(clipping, modifier), batch_of(40)
    context = batch.context(spec)
    assert needs_context(spec) == bool(context)
    assert all(value.shape in (batch.mask.shape, batch.mask.shape[:1]) for value in context.values())
    assert not any(value.requires_grad for value in context.values())


def test_context_is_needed_by_the_known_choices_only() -> None:
    assert all(needs_context(spec_of(*names)) for names in NEEDS)
    for names in [("ppo", "seq_mask"), ("loop", "plain"), ("loop-turn", "plain"), ("cispo", "mismatch-mis_seq")]:
        assert not needs_context(spec_of(*names))


@pytest.mark.parametrize("names", NEEDS)
def test_objective_without_the_context_it_needs_raises(batch_of: Callable[..., Any], names: tuple[str, str]) -> None:
    spec, batch = spec_of(*names, kl_coef=0.0, entropy_coef=0.0), batch_of(41)
    arguments = (batch.logp, batch.old_logp, batch.advantages, batch.mask, batch.weight(spec), spec)
    with pytest.raises(ValueError, match="looks at the whole minibatch: pass context"):
        policy_objective(*arguments)
    first = {name: value[:3] for name, value in batch.context(spec).items()}
    with pytest.raises(ValueError, match=r"context must be sliced as logp_B_T \(6, 5\), not .* \(3"):
        policy_objective(*arguments, context=first)
    with pytest.raises(ValueError, match=r"trajectory_id_B \(5,\)"):
        policy_objective(*arguments, ids=RowIds(batch.trajectory_id[:5], batch.turn_index))


@pytest.mark.parametrize("names", NEEDS)
def test_context_of_gathered_rows_is_that_of_the_rows_in_order(
    batch_of: Callable[..., Any], names: tuple[str, str]
) -> None:
    """Learners gather their rows in another order than one learner would see them."""
    spec, batch = spec_of(*names), batch_of(42, n_rows=12)
    order = torch.tensor([11, 3, 0, 7, 9, 1, 4, 2, 8, 10, 6, 5])
    whole, gathered = batch.context(spec, seed=5), batch.rows(order).context(spec, seed=5)
    assert whole.keys() == gathered.keys() != set()
    for name, value in whole.items():
        assert torch.allclose(gathered[name].double(), value[order].double(), rtol=1e-12, atol=1e-15)


def test_clip_cov_pick_follows_the_seed(batch_of: Callable[..., Any]) -> None:
    spec, batch = spec_of("clip_cov", cov_low=-9.0, cov_frac=0.3), batch_of(43, n_rows=20)
    picks = [batch.context(spec, seed)["selected_B_T"] for seed in (1, 1, 2, 3)]
    assert torch.equal(picks[0], picks[1])
    assert not torch.equal(picks[0], picks[2])
    assert not torch.equal(picks[2], picks[3])
    assert all(int(pick.sum()) == int(0.3 * int(batch.mask.sum())) for pick in picks)
    assert not any((pick & ~batch.mask).any() for pick in picks)


def test_clip_cov_pick_is_uniform_over_the_candidates(batch_of: Callable[..., Any]) -> None:
    """One of n tokens per seed: each is picked about equally often (chi-square, 99.9 % quantile of 11 degrees)."""
    spec = spec_of("clip_cov", cov_low=-99.0, cov_high=99.0, cov_frac=1e-6)
    batch = batch_of(44, n_rows=4, width=3, spread=0.0)
    batch.mask[:] = True
    n_draws = 1200
    counts = sum(batch.context(spec, seed)["selected_B_T"].double() for seed in range(n_draws))
    expected = n_draws / 12
    assert float(((counts - expected) ** 2 / expected).sum()) < 31.3


def test_trajectory_context_sums_over_rows_wherever_they_are(batch_of: Callable[..., Any]) -> None:
    spec = ObjectiveSpec(clipping="loop", ratio_level="trajectory", aggregation="traj-mean-token-mean")
    zero, mask = torch.zeros(4, 2), torch.tensor([[1, 1], [1, 1], [1, 0], [0, 0]])
    logp = torch.tensor([[0.1, 0.2], [1.0, 1.0], [0.4, 9.0], [9.0, 9.0]], dtype=torch.float64)
    ids = RowIds(torch.tensor([5, 6, 5, 5]), torch.tensor([0, 0, 1, 2]))
    weight = torch.tensor([1 / 6, 1 / 4, 1 / 6, 0.0], dtype=torch.float64)
    context = batch_context(logp, zero, torch.ones(4), mask, weight, spec, ids)
    assert context["trajectory_log_ratio_B"].tolist() == pytest.approx([0.7, 2.0, 0.7, 0.7])
    assert context["trajectory_scale_B"].tolist() == pytest.approx([1.5, 1.0, 3.0, 0.0])
