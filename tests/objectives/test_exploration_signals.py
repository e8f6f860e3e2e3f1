"""Decisions while sampling and the stability rule: edges that the reference cases do not reach."""

from __future__ import annotations

import math

import pytest
import torch

from arlarena_rllib.objectives import (
    branch_by_draw,
    branch_by_threshold,
    branch_probability,
    choose_turn,
    entropy_change,
    stability_rule,
    thinking_signal,
    thinking_stop,
    turn_signal,
    window_means,
)


def test_branch_probability_rises_with_entropy_and_draws_respect_its_bounds() -> None:
    change = entropy_change(2.0, 1.0, round(math.e**2))
    assert change == pytest.approx(1.0 / math.log(7))
    assert branch_probability(change, alpha=0.5, beta=0.2) == pytest.approx(0.5 + 0.2 / math.log(7))
    assert not branch_by_draw(-0.3, 0.0)
    assert branch_by_draw(1.3, 0.999)
    assert not branch_by_threshold(0.5, 0.5)


def test_thinking_signal_of_certainty_and_of_ignorance_is_zero_and_one_with_fixed_range_entropy() -> None:
    """V = 4. One-hot: H = 0, p_max = 1: M = 0. Uniform: H = log 4, p_max = .25: M = .5 + .5 * .75."""
    probs = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])
    signal = thinking_signal(probs, top_j=1, alpha=0.5, normaliser="fixed_range")
    assert signal.signal_T.tolist() == pytest.approx([0.0, 0.875])
    assert math.isnan(signal.delta_T[0].item())
    assert signal.delta_T[1].item() == pytest.approx(0.875)


def test_thinking_signal_of_one_token_has_no_change_and_never_stops() -> None:
    signal = thinking_signal(torch.tensor([[0.5, 0.5]]), top_j=2, alpha=0.4, normaliser="offline_minmax")
    assert thinking_stop(window_means(signal.delta_T, 0), threshold=10.0, min_tokens=1) is None


def test_thinking_signal_with_an_unknown_normaliser_raises() -> None:
    with pytest.raises(ValueError, match=r"normaliser='offline' is not known\. Nearest: 'offline_minmax'"):
        thinking_signal(torch.tensor([[0.5, 0.5]]), top_j=1, alpha=0.5, normaliser="offline")


def test_thinking_stops_after_a_quiet_window_but_not_before_the_minimum() -> None:
    """Changes nan 1 0 0 0 0: windows of two end quiet from token 3 on."""
    delta = torch.tensor([math.nan, 1.0, 0.0, 0.0, 0.0, 0.0])
    means = window_means(delta, 1)
    assert means.tolist()[2:] == [0.5, 0.0, 0.0, 0.0]
    assert all(math.isnan(value) for value in means.tolist()[:2])
    assert thinking_stop(means, threshold=0.1, min_tokens=1) == 3
    assert thinking_stop(means, threshold=0.1, min_tokens=6) == 5
    assert thinking_stop(means, threshold=0.1, min_tokens=7) is None


def test_turn_signal_is_the_geometric_mean_with_a_floor() -> None:
    assert turn_signal(torch.tensor([0.5, 2.0])) == pytest.approx(1.0)
    assert turn_signal(torch.tensor([0.0, 1.0]), floor=1e-4) == pytest.approx(1e-2)


def test_turn_is_resampled_until_it_moves_and_runs_out_of_candidates_with_an_error() -> None:
    choice = choose_turn(0.5, [0.5, 0.75], threshold=0.25, max_resamples=3)
    assert (choice.index, choice.is_still_below) == (1, False)
    with pytest.raises(ValueError, match="1 candidates do not reach the end of 3 resamples"):
        choose_turn(0.5, [0.5], threshold=0.25, max_resamples=3)


def test_stability_rule_calls_a_flat_collapse_steady_but_not_stable() -> None:
    rule = stability_rule([0.9] * 8 + [0.1] * 2)
    assert (rule.is_steady, rule.is_stable) == (True, False)
    assert rule.drop_from_best == pytest.approx(0.8)
    assert stability_rule([0.5, 0.9, 0.85, 0.85, 0.85]).is_stable
    assert not stability_rule([0.0, 1.0], tail_fraction=1.0).is_steady


def test_stability_rule_sees_a_collapse_before_the_first_value_by_the_start() -> None:
    flat = [0.05] * 10
    assert stability_rule(flat).is_stable
    assert not stability_rule(flat, start=0.45).is_stable
    assert stability_rule(flat, start=0.45).drop_from_best == pytest.approx(0.4)
    assert stability_rule(flat, start=0.01) == stability_rule(flat)


def test_stability_rule_window_is_rounded_up_but_not_by_rounding_noise() -> None:
    """.2 * 15 = 3.0000000000000004 is three values; .2 * 16 = 3.2 is four."""
    assert stability_rule([0.5] * 15).tail_len == 3
    assert stability_rule([0.5] * 16).tail_len == 4


@pytest.mark.parametrize(
    ("series", "fraction", "word"),
    [([], 0.2, "at least one"), ([math.nan], 0.2, "finite"), ([0.5], 0.0, "tail_fraction")],
)
def test_stability_rule_with_bad_input_raises(series: list[float], fraction: float, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        stability_rule(series, tail_fraction=fraction)
