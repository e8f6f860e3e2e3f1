"""Whose turn it is: fixed orders in which several members get their shares, as evenly as can be."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import cycle
from math import gcd, lcm

from env_connectors.errors import EnvConfigError

MAX_PERIOD = 10_000


def whole_weights(weights: Sequence[float]) -> tuple[int, ...]:
    """Return the smallest whole numbers in the proportion of `weights` (as written in decimals), e.g. 1.5, 1 -> 3, 2.

    Raises:
        EnvConfigError: the order would repeat only after more than MAX_PERIOD turns.
    """
    exact = [Fraction(str(weight)) for weight in weights]
    scale = lcm(*(number.denominator for number in exact))
    whole = [int(number * scale) for number in exact]
    whole = [number // gcd(*whole) for number in whole]
    if sum(whole) > MAX_PERIOD:
        raise EnvConfigError(
            f"the weights {', '.join(map(str, weights))} are in the proportion of {', '.join(map(str, whole))}, whose "
            f"order repeats only after {sum(whole)} turns. Allowed: {MAX_PERIOD}. Remedy: rounder weights."
        )
    return tuple(whole)


@lru_cache(maxsize=64)
def turn_order(weights: tuple[int, ...]) -> tuple[int, ...]:
    """Return the member of each turn of one period; a period has sum(weights) turns and is repeated for ever.

    |turns of i among the first n - n weight_i / sum(weights)| <= 1 - 1 / (2 k - 2) for every n and k members, which no
    order can better for all weights; so the turns of i in a window from anywhere are less than 2 from its share, and at
    most 1 with two members.            Source: Tijdeman 1980, The chairman assignment problem (ties: first member).

    Args:
        weights: whole numbers, each >= 1.
    """
    k, total = len(weights), sum(weights)
    if k == 1:
        return (0,) * total
    taken = [0] * k
    order = []
    for n in range(1, total + 1):
        behind = [n * weight - total * count for weight, count in zip(weights, taken, strict=True)]
        due = [i for i in range(k) if (2 * k - 2) * behind[i] >= total]
        first = min(due, key=lambda i: Fraction((2 * k - 3) * total - (2 * k - 2) * behind[i], weights[i]))
        taken[first] += 1
        order.append(first)
    return tuple(order)


def deal(sizes: Sequence[int], weights: Sequence[int]) -> list[int]:
    """Return an order in which every member i appears sizes[i] times, by weight among those that have some left."""
    left = list(sizes)
    order: list[int] = []
    while any(left):
        members = [i for i, size in enumerate(left) if size]
        for turn in cycle(turn_order(tuple(weights[i] for i in members))):
            member = members[turn]
            order.append(member)
            left[member] -= 1
            if not left[member]:
                break
    return order
