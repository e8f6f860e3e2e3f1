"""Quantiles of the importance ratio from a fixed histogram, the same for any number of micro-batches and learners."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
STEP, SCALE, HALF_BINS = 0.02, 1e-3, 530
EDGES = tuple(SCALE * math.sinh((k - 0.5) * STEP) for k in range(-HALF_BINS, HALF_BINS + 2))
"""Edges of the 1061 bins of the log-ratio d, from -20.3 to 20.3; the middle bin is centred at 0.

A bin is about ``STEP sqrt(SCALE^2 + d^2)`` wide: 2e-5 near 0, 2 % of |d| further out.
"""
HISTOGRAM, LOWEST, HIGHEST = "sum/log_ratio_histogram", "min/log_ratio", "max/log_ratio"


@torch.no_grad()
def ratio_histogram(log_ratio_B_T: Tensor, mask_B_T: Tensor) -> dict[str, Tensor]:
    """Return the raw histogram of the log-ratios of policy tokens, and their extremes.

    Args:
        log_ratio_B_T: [B, T] float, log pi - log pi_old; clamped to the outermost edges, nan counts as the largest.
        mask_B_T: [B, T] bool or 0/1; masked positions may hold anything.
    Returns:
        raw metrics: counts [1061] int64, and two 0-dim floats (neutral when everything is masked). Merge them with
        `merge_metrics`; counts add exactly.
    Notes:
        One binary search and one integer scatter per token, no wait for the device.
    """
    mask_B_T = mask_B_T.bool()
    d_B_T = torch.where(mask_B_T, log_ratio_B_T.to(torch.promote_types(log_ratio_B_T.dtype, torch.float32)), 0.0)
    edges = _edges(d_B_T.dtype, d_B_T.device)
    bin_B_T = (torch.bucketize(d_B_T, edges, right=True) - 1).clamp(0, len(EDGES) - 2)
    counts = torch.zeros(len(EDGES) - 1, dtype=torch.int64, device=d_B_T.device)
    infinity = torch.full((1,), torch.inf, dtype=d_B_T.dtype, device=d_B_T.device)
    return {
        HISTOGRAM: counts.index_add_(0, bin_B_T.flatten(), mask_B_T.flatten().to(torch.int64)),
        LOWEST: torch.cat([torch.where(mask_B_T, d_B_T, torch.inf).flatten(), infinity]).amin(),
        HIGHEST: torch.cat([torch.where(mask_B_T, d_B_T, -torch.inf).flatten(), -infinity]).amax(),
    }


def ratio_quantiles(raw: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the quantiles of the ratio from merged raw histograms, by interpolation.

    The definition is that of `numpy.quantile` (linear): position q (n - 1) between two order statistics, and an order
    statistic is interpolated inside its bin, which places it within one bin width of its true value.

    Args:
        raw: merged results of `ratio_histogram`.
    Returns:
        ``ratio_q05`` to ``ratio_q95``; the log of each is off by less than one bin width (see `EDGES`). Never outside
        the observed extremes, so exact when all ratios are equal. {} without a policy token.
    """
    counts = raw[HISTOGRAM].cpu().numpy() if HISTOGRAM in raw else np.zeros(1, dtype=np.int64)
    n = int(counts.sum())
    if n == 0:
        return {}
    low, high = (min(max(float(raw[key]), EDGES[0]), EDGES[-1]) for key in (LOWEST, HIGHEST))
    done = {}
    for q in QUANTILES:
        rank = math.floor(position := q * (n - 1))
        below, above = (_order_statistic(counts, min(r, n - 1)) for r in (rank, rank + 1))
        value = below + (position - rank) * (above - below)
        done[f"ratio_q{round(100 * q):02d}"] = math.exp(min(max(value, low), high))
    return done


def _order_statistic(counts: np.ndarray, rank: int) -> float:
    """Return the estimate of the value with `rank` values before it; the values of a bin are spread evenly over it."""
    upto = np.cumsum(counts)
    index = int(np.searchsorted(upto, rank, side="right"))
    share = (rank - (upto[index] - counts[index]) + 0.5) / counts[index]
    return float(EDGES[index] + share * (EDGES[index + 1] - EDGES[index]))


@lru_cache(maxsize=8)
def _edges(dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(EDGES, dtype=dtype, device=device)
