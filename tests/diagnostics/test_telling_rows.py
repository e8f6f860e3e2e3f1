"""An alarm says which rows are behind it, from the fullest cells of the tables."""

from __future__ import annotations

from arlarena_rllib.diagnostics import telling_rows

LEARNER = "learners/default_policy/"


def test_fullest_cells_are_named_in_words() -> None:
    metrics = {
        f"{LEARNER}ref_kl_share_adv_neg_is_lt1_highH": 0.61,
        f"{LEARNER}ref_kl_share_adv_nonneg_is_ge1_lowH": 0.39,
        f"{LEARNER}oob_token_adv_neg_ratio_low_frac": 0.082,
        f"{LEARNER}oob_token_adv_pos_ratio_high_frac": 0.01,
        f"{LEARNER}oob_token_total_frac": 0.12,
    }
    assert telling_rows(metrics) == (
        "rows with A < 0, ratio < 1, high entropy carry 61% of the KL to the reference; "
        "8.2% of the tokens have A < 0, ratio below the band"
    )


def test_nonnegative_advantage_is_not_taken_for_negative() -> None:
    assert "A >= 0, ratio >= 1, low entropy" in telling_rows({f"{LEARNER}ref_kl_share_adv_nonneg_is_ge1_lowH": 1.0})


def test_without_tables_or_with_empty_ones_there_is_nothing_to_say() -> None:
    assert telling_rows({}) == ""
    assert telling_rows({f"{LEARNER}oob_token_adv_neg_ratio_low_frac": 0.0}) == ""
