"""How alike two short texts are: the token set ratio of thefuzz, in plain Python.

ratio = 100 (1 - d / (|x| + |y|)) with d the number of letters to insert or delete to turn x into y. The tokens of both texts
are split into those in common (s) and the rest of each (a, b); the result is the largest ratio among s+a and s+b, s and s+a,
s and s+b, rounded.            Source: thefuzz 0.22 token_set_ratio with its defaults (rapidfuzz underneath).
"""

from __future__ import annotations

import re
from functools import lru_cache

_NO_LETTER = re.compile(r"[\W_]")
_DROPPED = {code: None for code in range(128, 256)}


@lru_cache(maxsize=1 << 16)
def token_set_ratio(first: str, second: str) -> int:
    """Return the likeness of two texts, a whole number from 0 to 100; 0 when one of them has no letter or digit."""
    one, other = _tokens(first), _tokens(second)
    if not one or not other:
        return 0
    common = " ".join(one & other)
    rest, other_rest = " ".join(sorted(one - other)), " ".join(sorted(other - one))
    if common and (not rest or not other_rest):
        return 100
    joint = len(common) + bool(common)
    best = _ratio(_distance(rest, other_rest), 2 * joint + len(rest) + len(other_rest))
    if common:
        for part in (rest, other_rest):
            best = max(best, _ratio(1 + len(part), len(common) + joint + len(part)))
    return round(best)


@lru_cache(maxsize=1 << 16)
def _tokens(text: str) -> frozenset[str]:
    return frozenset(_NO_LETTER.sub(" ", text.translate(_DROPPED)).lower().split())


def _ratio(distance: int, total: int) -> float:
    return 100 - 100 * distance / total if total else 100.0


def _distance(first: str, second: str) -> int:
    """Return the number of letters to insert and delete to turn one text into the other."""
    return len(first) + len(second) - 2 * _common_subsequence(first, second)


def _common_subsequence(first: str, second: str) -> int:
    """Return the length of the longest common subsequence (Hyyro 2004: one big number holds a row of the table)."""
    places: dict[str, int] = {}
    for at, letter in enumerate(first):
        places[letter] = places.get(letter, 0) | 1 << at
    full = (1 << len(first)) - 1
    row = full
    for letter in second:
        matches = row & places.get(letter, 0)
        row = ((row + matches) | (row - matches)) & full
    return len(first) - row.bit_count()
