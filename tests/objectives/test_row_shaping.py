"""Overlong punishment, and which rows stay out of the loss: by hand, and the counts add up."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from arlarena_rllib.objectives import (
    ObjectiveSpec,
    global_denominators,
    overlong_punishment,
    rows_in_loss,
    small_advantage_rows,
    void_rows,
)

MASK = torch.tensor([[1, 1], [1, 0], [1, 1], [0, 0], [0, 1]]).bool()
BATCH: dict[str, Any] = {
    "mask_B_T": MASK,
    "trajectory_id_B": torch.tensor([4, 4, 9, 9, 2]),
    "action_valid_B": torch.tensor([True, False, True, True, True]),
    "advantages": torch.tensor([0.5, 0.5, -0.005, -0.005, 1.0]),
    "cut_B": torch.tensor([False, False, False, False, True]),
}


def test_overlong_punishment_grows_over_the_buffer_and_stops_at_the_factor() -> None:
    lengths = torch.tensor([0, 6, 7, 8, 10, 11, 99])
    assert overlong_punishment(lengths, max_len=10, buffer=4, factor=2.0).tolist() == [0, 0, -0.5, -1, -2, -2, -2]


@pytest.mark.parametrize("buffer", [0, 11])
def test_overlong_punishment_with_an_impossible_buffer_raises(buffer: int) -> None:
    with pytest.raises(ValueError, match=rf"buffer={buffer} must be in 1\.\.max_len=10"):
        overlong_punishment(torch.tensor([1]), max_len=10, buffer=buffer, factor=1.0)


@pytest.mark.parametrize(("rule", "rows"), [("keep", []), ("mask_turn", [1]), ("drop_trajectory", [0, 1])])
def test_void_turn_takes_out_what_the_rule_says(rule: str, rows: list[int]) -> None:
    void_B = void_rows(BATCH["action_valid_B"], BATCH["trajectory_id_B"], rule=rule)
    assert void_B.nonzero().flatten().tolist() == rows


def test_small_advantage_is_the_largest_of_the_rows_policy_tokens() -> None:
    advantages = torch.tensor([[0.005, -0.02], [0.005, math.nan], [0.01, -0.01]])
    mask = torch.tensor([[1, 1], [1, 0], [1, 1]])
    assert small_advantage_rows(advantages, mask, min_abs=0.01).tolist() == [False, True, False]
    assert small_advantage_rows(torch.tensor([0.0, -0.01, 0.02]), mask, min_abs=0.01).tolist() == [True, False, False]
    assert small_advantage_rows(torch.zeros(3), mask, min_abs=0.0).tolist() == [False, False, False]


def test_rows_in_loss_counts_each_row_at_the_first_rule_that_takes_it_out() -> None:
    spec = ObjectiveSpec(overlong_mask=True, void_turn="mask_turn", min_abs_advantage=0.01)
    chosen = rows_in_loss(spec, **BATCH)
    assert chosen.keep_B.tolist() == [True, False, False, False, False]
    expected = {"masked_overlong": 1, "masked_void": 1, "masked_small_advantage": 1, "trained": 1}
    assert chosen.counts == expected
    both = rows_in_loss(spec, **{**BATCH, "cut_B": torch.ones(5).bool()})
    assert both.counts == {"masked_overlong": 4, "masked_void": 0, "masked_small_advantage": 0, "trained": 0}


def test_rows_in_loss_with_everything_off_keeps_all_rows_with_tokens() -> None:
    chosen = rows_in_loss(ObjectiveSpec(), **{**BATCH, "cut_B": None})
    assert torch.equal(chosen.masked(MASK), MASK)
    assert chosen.counts["trained"] == 4


def test_rows_out_of_the_loss_are_out_of_the_denominators() -> None:
    """Of 2 + 1 + 2 + 1 tokens the cut row's one goes: weights of token-mean are 1/5."""
    chosen = rows_in_loss(ObjectiveSpec(overlong_mask=True), **BATCH)
    denominators = global_denominators(chosen.masked(MASK), BATCH["trajectory_id_B"], ObjectiveSpec())
    assert (denominators.n_tokens, denominators.n_rows, denominators.n_trajectories) == (5, 3, 2)
    assert denominators.weight_B.tolist() == pytest.approx([0.2, 0.2, 0.2, 0.0, 0.0])


def test_masked_keeps_the_dtype_of_the_mask() -> None:
    masked = rows_in_loss(ObjectiveSpec(overlong_mask=True), **BATCH).masked(MASK.float())
    assert masked.dtype == torch.float32
    assert masked.sum() == 5


def test_overlong_mask_without_the_flag_raises() -> None:
    with pytest.raises(ValueError, match="overlong_mask=True needs cut_B"):
        rows_in_loss(ObjectiveSpec(overlong_mask=True), **{**BATCH, "cut_B": None})


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    overlong=st.booleans(),
    void=st.sampled_from(["keep", "mask_turn", "drop_trajectory"]),
    small=st.sampled_from([0.0, 0.5]),
)
def test_row_counts_add_up_and_do_not_depend_on_the_order(seed: int, overlong: bool, void: str, small: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    batch = {
        "mask_B_T": torch.rand(7, 3, generator=generator) < 0.5,
        "trajectory_id_B": torch.randint(3, (7,), generator=generator),
        "action_valid_B": torch.rand(7, generator=generator) < 0.7,
        "advantages": torch.randn(7, generator=generator),
        "cut_B": torch.rand(7, generator=generator) < 0.3,
    }
    spec = ObjectiveSpec(overlong_mask=overlong, void_turn=void, min_abs_advantage=small)
    chosen = rows_in_loss(spec, **batch)
    assert sum(chosen.counts.values()) == int(batch["mask_B_T"].any(-1).sum())
    assert chosen.counts["trained"] == int(chosen.keep_B.sum())
    order = torch.randperm(7, generator=generator)
    moved = rows_in_loss(spec, **{name: value[order] for name, value in batch.items()})
    assert torch.equal(moved.keep_B, chosen.keep_B[order])
    assert moved.counts == chosen.counts
