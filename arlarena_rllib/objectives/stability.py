"""The stability rule for a finished run: does the success rate stay steady, and high, over its last part?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stability:
    """What the tail of a success curve looks like.

    Attributes:
        tail_len: values in the tail.
        tail_mean: their mean.
        tail_var: their population variance.
        drop_from_best: best value of the whole curve, or the start if that is higher, minus tail_mean, >= 0.
        is_steady: tail_var < threshold; a flat collapse is steady too.
        is_stable: steady, and drop_from_best <= max_drop.
    """

    tail_len: int
    tail_mean: float
    tail_var: float
    drop_from_best: float
    is_steady: bool
    is_stable: bool


def stability_rule(
    success: Sequence[float],
    *,
    tail_fraction: float = 0.2,
    threshold: float = 2.5e-3,
    max_drop: float = 0.1,
    start: float | None = None,
) -> Stability:
    """Return the verdict over the last ``ceil(tail_fraction n)`` values of a success curve.

    Source: ARLArena 2602.21534 ("variance of the success rate over the final 20 % of training steps below a
    predefined threshold"); the threshold is not published. 2.5e-3 is twice the binomial variance of 128 episodes at 0.8;
    the bound on the drop is this project's, because variance alone calls a flat collapse stable.

    Args:
        success: success rates in [0, 1], in the order of training; at least one.
        tail_fraction: in (0, 1].
        threshold: > 0, on the variance.
        max_drop: >= 0, how far the tail may lie below the best value.
        start: success before training, if known; it counts for the best value, because a collapse in the first
            iterations leaves no better one behind.
    Returns:
        the verdict and its numbers.
    Raises:
        ValueError: the curve is empty or not finite, or tail_fraction is outside (0, 1].
    """
    if not success or not all(math.isfinite(value) for value in success):
        raise ValueError(f"success must hold at least one value, all finite; got {list(success)[:8]}.")
    if not 0.0 < tail_fraction <= 1.0:
        raise ValueError(f"tail_fraction={tail_fraction!r} must be in (0, 1].")
    tail = success[-math.ceil(round(tail_fraction * len(success), 9)) :]
    try:
        mean = math.fsum(tail) / len(tail)
        variance = math.fsum((value - mean) ** 2 for value in tail) / len(tail)
    except OverflowError:  # of a metric that is no success rate
        mean, variance = math.fsum(value / len(tail) for value in tail), math.inf
    drop = max(*success, mean if start is None else start) - mean
    is_steady = variance < threshold
    return Stability(len(tail), mean, variance, drop, is_steady, is_steady and drop <= max_drop)
