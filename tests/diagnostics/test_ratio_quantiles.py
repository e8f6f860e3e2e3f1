"""Quantiles from the histogram: within a bin of the true ones, and the same for any number of parts."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from arlarena_rllib.diagnostics import ratio_histogram, ratio_quantiles
from arlarena_rllib.diagnostics.ratio_histogram import EDGES, HISTOGRAM, QUANTILES, SCALE, STEP
from arlarena_rllib.objectives import merge_metrics


def quantiles(values: list[float] | np.ndarray) -> list[float]:
    log_ratio = torch.tensor(values, dtype=torch.float64).reshape(1, -1)
    done = ratio_quantiles(ratio_histogram(log_ratio, torch.ones_like(log_ratio).bool()))
    assert list(done) == ["ratio_q05", "ratio_q25", "ratio_q50", "ratio_q75", "ratio_q95"]
    return list(done.values())


def bin_width(log_ratio: float) -> float:
    """As documented; the half bin more is for a value at the edge towards 0."""
    return 1.02 * STEP * math.hypot(SCALE, log_ratio)


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 400),
    spread=st.sampled_from([1e-6, 1e-3, 0.05, 0.5, 5.0]),
    shift=st.sampled_from([0.0, -0.2, 1.0]),
)
def test_quantiles_are_within_one_bin_of_those_of_numpy(seed: int, n: int, spread: float, shift: float) -> None:
    values = np.clip(shift + spread * np.random.default_rng(seed).standard_normal(n), -20, 20)
    for got, q in zip(quantiles(values), QUANTILES, strict=True):
        true = float(np.quantile(values, q))
        rank = q * (n - 1)
        neighbours = np.sort(values)[[math.floor(rank), math.ceil(rank)]]
        assert abs(math.log(got) - true) <= max(bin_width(v) for v in neighbours)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), cuts=st.lists(st.integers(1, 59), max_size=6, unique=True))
def test_quantiles_are_equal_for_any_number_of_parts(seed: int, cuts: list[int]) -> None:
    generator = torch.Generator().manual_seed(seed)
    log_ratio, mask = torch.randn(60, generator=generator) * 0.1, torch.rand(60, generator=generator) < 0.6
    bounds = [0, *sorted(cuts), 60]
    parts = [
        ratio_histogram(log_ratio[a:b].reshape(1, -1), mask[a:b].reshape(1, -1)) for a, b in itertools.pairwise(bounds)
    ]
    whole = ratio_histogram(log_ratio.reshape(6, 10), mask.reshape(6, 10))
    assert torch.equal(merge_metrics(parts)[HISTOGRAM], whole[HISTOGRAM])
    assert ratio_quantiles(merge_metrics(parts)) == ratio_quantiles(whole)
    assert int(whole[HISTOGRAM].sum()) == int(mask.sum())


@pytest.mark.parametrize("ratio", [1.0, 0.8, 1.2, 1e-6, 1e6])
def test_quantiles_of_equal_ratios_are_exact(ratio: float) -> None:
    assert quantiles([math.log(ratio)] * 7) == pytest.approx([ratio] * 5, rel=1e-14)


def test_quantiles_of_hand_numbers() -> None:
    """Five ratios far apart: positions .2, 1, 2, 3, 3.8 between the sorted logarithms."""
    logs = [-2.0, -1.0, 0.0, 1.0, 2.0]
    expected = [math.exp(v) for v in (-1.8, -1.0, 0.0, 1.0, 1.8)]
    assert quantiles(logs) == pytest.approx(expected, rel=0.041)


def test_values_of_one_bin_are_spread_evenly_over_it() -> None:
    """Median of -2, v, v, 2: the two v stand at 1/4 and 3/4 of their bin, their mean in its middle."""
    low, high = EDGES[700], EDGES[701]
    v = low + 0.1 * (high - low)
    assert quantiles([-2.0, v, v, 2.0])[2] == pytest.approx(math.exp((low + high) / 2), rel=1e-12)


def test_edges_are_symmetric_and_cover_the_clamp_of_the_log_ratio() -> None:
    assert all(high > low for low, high in itertools.pairwise(EDGES))
    assert [-edge for edge in reversed(EDGES)] == pytest.approx(EDGES)
    assert EDGES[0] < -20.0 and EDGES[-1] > 20.0
    assert len(EDGES) == 1062


def test_histogram_puts_what_is_beyond_the_edges_into_the_outer_bins() -> None:
    log_ratio = torch.tensor([[-math.inf, -1e9, 1e9, math.inf, math.nan, 5.0]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 0]])
    raw = ratio_histogram(log_ratio, mask)
    assert int(raw[HISTOGRAM][0]) == 2 and int(raw[HISTOGRAM][-1]) == 3
    assert int(raw[HISTOGRAM].sum()) == 5
    assert all(math.isfinite(value) for value in ratio_quantiles(raw).values())


def test_histogram_of_nothing_has_no_quantiles() -> None:
    assert ratio_quantiles(ratio_histogram(torch.zeros(2, 3), torch.zeros(2, 3))) == {}
    assert ratio_quantiles(ratio_histogram(torch.zeros(0, 3), torch.zeros(0, 3))) == {}
    assert ratio_quantiles({}) == {}
