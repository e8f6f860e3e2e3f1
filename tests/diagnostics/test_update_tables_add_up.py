"""Tables of an update: hand numbers, and the same for any split, order, padding and garbage."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from arlarena_rllib.diagnostics import (
    TableBands,
    entropy_threshold,
    finish_update_tables,
    row_mean_entropy,
    update_tables,
)
from arlarena_rllib.objectives import merge_metrics, out_of_band_table, sequence_table

SUMS_OF_KL = "sum/table_ref_kl_"


def assert_equal_raw(got: dict[str, Any], expected: dict[str, Any]) -> None:
    """Counts, histogram and extremes are equal exactly, sums of KL up to float64 rounding."""
    assert got.keys() == expected.keys()
    for key, value in expected.items():
        if key.startswith(SUMS_OF_KL):
            assert float(got[key]) == pytest.approx(float(value), rel=1e-12)
        else:
            assert torch.equal(got[key], value), key


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), owner=st.lists(st.integers(0, 3), min_size=9, max_size=9), token=st.booleans())
def test_tables_of_micro_batches_of_any_width_add_up_to_the_whole(
    rows_of: Callable[..., Any], seed: int, owner: list[int], token: bool
) -> None:
    rows = rows_of(seed, token_advantages=token)
    parts = []
    for who in sorted(set(owner), reverse=True):
        index = torch.tensor([row for row, other in enumerate(owner) if other == who])
        columns = torch.nonzero(rows.mask[index].any(dim=0)).flatten()
        width = rows.mask.shape[1] - int(columns[0]) if len(columns) else 1
        parts.append(rows.part(index, width).tables())
    merged, whole = merge_metrics(parts), merge_metrics([rows.tables()])
    assert_equal_raw(merged, whole)
    assert finish_update_tables(merged) == pytest.approx(finish_update_tables(whole), rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), order=st.permutations(range(9)))
def test_tables_do_not_depend_on_the_order_of_rows(rows_of: Callable[..., Any], seed: int, order: list[int]) -> None:
    rows = rows_of(seed)
    assert_equal_raw(rows.part(torch.tensor(order), rows.mask.shape[1]).tables(), rows.tables())


@pytest.mark.parametrize("token_advantages", [False, True])
@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf, 1e30])
def test_tables_ignore_what_stands_at_masked_positions(
    rows_of: Callable[..., Any], garbage: float, token_advantages: bool
) -> None:
    rows = rows_of(3, token_advantages=token_advantages)
    dirty = rows.with_garbage(garbage)
    assert_equal_raw(dirty.tables(), rows.tables())
    assert torch.equal(row_mean_entropy(dirty.entropy, dirty.mask)[1:], rows.entropy_B[1:])


def test_tables_of_two_rows_are_the_hand_numbers() -> None:
    """Row 0: A = -1, r = .7, 1, 1.3; row 1: A = +1, r = 1.5, .9; row 2 is empty. Bands .8 to 1.2 and .9 to 1.1."""
    ratio = torch.tensor([[0.7, 1.0, 1.3], [1.5, 0.9, 1.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1], [1, 1, 0], [0, 0, 0]])
    ref_ratio = torch.tensor([[2.0, 1.0, 1.0], [1.0, 3.0, 1.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
    raw = update_tables(
        ratio.log(),
        torch.zeros(3, 3, dtype=torch.float64),
        torch.tensor([-1.0, 1.0, 5.0]),
        mask,
        torch.tensor([0.4, 0.6, math.nan]),
        entropy_threshold=0.4,
        ref_logp_B_T=ratio.log() + ref_ratio.log(),
        bands=TableBands(seq_low=0.1, seq_high=0.1, seq_mask_delta=0.03),
    )
    done = finish_update_tables(raw)
    # log s of row 0 is log(.91)/3 = -.0314 (in the band .9 to 1.1), of row 1 log(1.35)/2 = .15 (s = 1.16, out of it).
    kl = (2.0 - math.log(2.0) - 1.0, 3.0 - math.log(3.0) - 1.0)
    expected = {
        "oob_token_adv_neg_ratio_low_frac": 1 / 5,
        "oob_token_adv_neg_ratio_high_frac": 1 / 5,
        "oob_token_adv_pos_ratio_low_frac": 0.0,
        "oob_token_adv_pos_ratio_high_frac": 1 / 5,
        "oob_token_total_frac": 3 / 5,
        "oob_seq_adv_pos_ratio_high_frac": 1 / 2,
        "oob_seq_total_frac": 1 / 2,
        "rows_adv_neg_is_lt1_lowH_frac": 1 / 2,
        "rows_adv_nonneg_is_ge1_highH_frac": 1 / 2,
        "ref_kl_share_adv_neg_is_lt1_lowH": kl[0] / sum(kl),
        "ref_kl_share_adv_nonneg_is_ge1_highH": kl[1] / sum(kl),
        "rows_seq_mask_frac": 1 / 2,
        "rows_empty_frac": 1 / 3,
    }
    assert {name: done[name] for name in expected} == pytest.approx(expected, rel=1e-12)
    others = {name for name in done if name.startswith(("oob", "rows", "ref")) and name not in expected}
    assert {done[name] for name in others} == {0.0}


@pytest.mark.parametrize("seed", range(5))
def test_whole_batch_forms_agree_with_a_count_by_numpy(rows_of: Callable[..., Any], seed: int) -> None:
    rows = rows_of(seed)
    mask, adv = rows.mask.numpy(), rows.advantages.numpy()[:, None]
    ratio = np.exp((rows.logp - rows.old_logp).double().numpy())
    table = out_of_band_table(rows.logp - rows.old_logp, rows.advantages.unsqueeze(-1).expand(9, 7), rows.mask)
    assert table["adv_neg_ratio_low"] == pytest.approx(((adv < 0) & (ratio < 0.8) & mask).sum() / mask.sum())
    assert table["total"] == pytest.approx((((ratio < 0.8) | (ratio > 1.2)) & mask).sum() / mask.sum())
    log_s = np.array([np.log(r[m]).mean() for r, m in zip(ratio[1:], mask[1:], strict=True)])
    kl = (rows.logp - rows.ref_logp).square()
    counts = sequence_table(rows.logp - rows.old_logp, rows.advantages, rows.mask, kl, rows.entropy).counts
    assert counts["adv_pos_is_ge1"] == ((adv[1:, 0] > 0) & (log_s >= 0)).sum()
    assert sum(counts.values()) == 7  # 9 rows, one empty, one with A = 0


def test_sequence_mask_share_is_the_lower_negative_cell_at_the_matching_threshold(rows_of: Callable[..., Any]) -> None:
    """With delta = -log(1 - low) both count rows with A < 0 and s < 1 - low."""
    rows = rows_of(7, spread=0.05)
    bands = TableBands(seq_low=0.01, seq_mask_delta=-math.log1p(-0.01))
    arguments = (rows.logp, rows.old_logp, rows.advantages, rows.mask, rows.entropy_B)
    done = finish_update_tables(update_tables(*arguments, entropy_threshold=rows.threshold, bands=bands))
    assert done["rows_seq_mask_frac"] == done["oob_seq_adv_neg_ratio_low_frac"] > 0.0


def test_kl_shares_sum_to_one_and_are_absent_without_a_reference(rows_of: Callable[..., Any]) -> None:
    rows = rows_of(8)
    done = finish_update_tables(rows.tables())
    assert sum(v for k, v in done.items() if k.startswith("ref_kl_share_")) == pytest.approx(1.0)
    assert sum(v for k, v in done.items() if k.startswith("rows_adv_")) == pytest.approx(1.0)
    arguments = (rows.logp, rows.old_logp, rows.advantages, rows.mask, rows.entropy_B)
    without = finish_update_tables(update_tables(*arguments, entropy_threshold=0.0))
    assert without.keys() == {name for name in done if not name.startswith("ref_kl_share_")}


def test_tables_of_masked_rows_only_have_nothing_to_divide_by(rows_of: Callable[..., Any]) -> None:
    rows = rows_of(9)
    empty = rows.part(torch.tensor([0, 0]), 7)
    assert finish_update_tables(merge_metrics([empty.tables()])) == {"rows_empty_frac": 1.0}
    assert finish_update_tables(rows.part(torch.tensor([], dtype=torch.int64), 7).tables()) == {}
    assert finish_update_tables({}) == {}
    merged = merge_metrics([empty.tables(), rows.tables()])
    assert_equal_raw(merged, rows.tables() | {"sum/table_rows_empty": torch.tensor(3)})


def test_side_of_a_row_is_not_lost_to_rounding() -> None:
    """In float32 1 - 2^-30 - 1 is 0 in one order and not in another, so padding could move a row."""
    logp = torch.tensor([[1.0, -(2.0**-30), -1.0]])
    mask = torch.ones(1, 3)
    raw = update_tables(logp, torch.zeros(1, 3), torch.tensor([1.0]), mask, torch.zeros(1), entropy_threshold=0.0)
    assert int(raw["sum/table_rows_adv_pos_is_lt1"]) == 1


def test_on_policy_update_is_inside_every_band(rows_of: Callable[..., Any]) -> None:
    done = finish_update_tables(rows_of(10, spread=0.0).tables())
    assert done["oob_token_total_frac"] == done["oob_seq_total_frac"] == 0.0
    assert {done[f"ratio_q{q}"] for q in ("05", "25", "50", "75", "95")} == {1.0}


def test_infinite_log_probs_of_policy_tokens_leave_finite_metrics(rows_of: Callable[..., Any]) -> None:
    rows = rows_of(11)
    rows.logp[1, -1], rows.logp[2, -1], rows.logp[3, -1] = -math.inf, math.inf, math.nan
    done = finish_update_tables(rows.tables())
    assert all(math.isfinite(value) for name, value in done.items() if not name.startswith("ref_kl_share_"))


@pytest.mark.parametrize("split", [[[0, 1, 2, 3]], [[0], [1, 2, 3]], [[3, 1], [2, 0]], [[], [2, 1, 3, 0]]])
def test_entropy_threshold_is_the_median_over_rows_for_any_split(split: list[list[int]]) -> None:
    """Row means 1, 2, 4 and an empty row: the median is 2, the row at it counts as low, and A = 0 as non-negative."""
    entropy = torch.tensor([[1.0, 1.0], [3.0, 1.0], [4.0, math.nan], [9.0, 9.0]])
    mask = torch.tensor([[1, 1], [1, 1], [1, 0], [0, 0]])
    row_B = row_mean_entropy(entropy, mask)
    assert row_B[:3].tolist() == [1.0, 2.0, 4.0]
    assert entropy_threshold([row_B[torch.tensor(part, dtype=torch.int64)] for part in split]) == 2.0
    zero = torch.zeros(4, 2)
    raw = update_tables(zero, zero, torch.zeros(4), mask, row_B, entropy_threshold=2.0)
    assert int(raw["sum/table_rows_adv_nonneg_is_ge1_lowH"]) == 2
    assert int(raw["sum/table_rows_adv_nonneg_is_ge1_highH"]) == 1


def test_entropy_threshold_of_an_even_number_of_rows_is_between_the_middle_two() -> None:
    assert entropy_threshold([torch.tensor([1.0, 7.0]), torch.tensor([2.0, 4.0])]) == 3.0
    assert entropy_threshold([]) == 0.0
