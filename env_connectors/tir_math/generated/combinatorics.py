"""Combinatorics: counting with constraints."""

from __future__ import annotations

import math
import random
from collections import Counter

from env_connectors.tir_math.generated.numbers import Draft, Templates, primes_below

_WORDS = (
    "banana", "mississippi", "committee", "balloon", "statistics", "tennessee", "success", "parallel", "bookkeeper",
    "assessment", "possession", "engineering", "combination", "arrangement", "permutation", "reference", "pepper",
    "cocoon", "referee", "letter",
)  # fmt: skip


def committee(rng: random.Random) -> Draft:
    """Choosing from two groups."""
    a, b = rng.randint(8, 30), rng.randint(8, 30)
    i, j = rng.randint(2, 6), rng.randint(2, 6)
    return Draft(
        f"In how many ways can a committee of {i} of {a} women and {j} of {b} men be chosen?",
        str(math.comb(a, i) * math.comb(b, j)),
        f"from math import comb\nprint(comb({a}, {i}) * comb({b}, {j}))",
    )


def divisible_numbers(rng: random.Random) -> Draft:
    """Numbers divisible by one of two, not by a third."""
    n, a, b, c = rng.randint(1000, 9999), rng.randint(3, 12), rng.randint(13, 25), rng.randint(2, 30)
    count = sum((k % a == 0 or k % b == 0) and k % c != 0 for k in range(1, n + 1))
    return Draft(
        f"How many integers from 1 to {n} are divisible by {a} or {b} but not by {c}?",
        str(count),
        f"print(sum((k % {a} == 0 or k % {b} == 0) and k % {c} != 0 for k in range(1, {n} + 1)))",
    )


def word_arrangements(rng: random.Random) -> Draft:
    """Different orders of a word's letters and some more letters."""
    word = rng.choice(_WORDS) + "".join(rng.choice("aeiou") for _ in range(rng.randint(0, 3)))
    count = math.factorial(len(word)) // math.prod(map(math.factorial, Counter(word).values()))
    return Draft(
        f"In how many different orders can the letters of '{word}' be written?",
        str(count),
        "from collections import Counter\nfrom math import factorial, prod\n"
        f"w = '{word}'\nprint(factorial(len(w)) // prod(factorial(c) for c in Counter(w).values()))",
    )


def lattice_paths(rng: random.Random) -> Draft:
    """Paths on a grid that avoid a point."""
    n, m = rng.randint(6, 20), rng.randint(6, 20)
    x, y = rng.randint(1, n - 1), rng.randint(1, m - 1)
    count = math.comb(n + m, n) - math.comb(x + y, x) * math.comb(n - x + m - y, n - x)
    return Draft(
        f"How many paths from (0, 0) to ({n}, {m}) with unit steps right or up do not pass through ({x}, {y})?",
        str(count),
        f"from math import comb\nprint(comb({n + m}, {n}) - comb({x + y}, {x}) * comb({n - x + m - y}, {n - x}))",
    )


def bounded_solutions(rng: random.Random) -> Draft:
    """Solutions of a sum with an upper bound."""
    k, most = rng.randint(3, 6), rng.randint(5, 15)
    total = rng.randint(most, k * most - 2)
    ways = [1] + [0] * total
    for _ in range(k):
        ways = [sum(ways[max(0, s - most) : s + 1]) for s in range(total + 1)]
    letters = " + ".join(f"x_{i}" for i in range(1, k + 1))
    return Draft(
        f"How many solutions in integers from 0 to {most} does {letters} = {total} have?",
        str(ways[total]),
        f"ways = [1] + [0] * {total}\nfor _ in range({k}):\n    ways = [sum(ways[max(0, s - {most}):s + 1]) for s in "
        f"range({total} + 1)]\nprint(ways[{total}])",
    )


def fixed_points(rng: random.Random) -> Draft:
    """Permutations with a given number of fixed points, modulo a number."""
    n = rng.randint(7, 40)
    k, m = rng.randint(0, 5), rng.randint(1000, 99_999)
    derangements = [1, 0]
    for i in range(2, n + 1):
        derangements.append((i - 1) * (derangements[-1] + derangements[-2]))
    return Draft(
        f"Find the remainder when the number of permutations of 1, ..., {n} with exactly {k} fixed points is divided by {m}.",
        str(math.comb(n, k) * derangements[n - k] % m),
        f"from math import comb\nd = [1, 0]\nfor i in range(2, {n} + 1):\n    d.append((i - 1) * (d[-1] + d[-2]))\n"
        f"print(comb({n}, {k}) * d[{n} - {k}] % {m})",
    )


def binomial_remainder(rng: random.Random) -> Draft:
    """A large binomial modulo a prime."""
    n = rng.randint(200, 2000)
    k, p = rng.randint(20, n // 2), rng.choice(primes_below(3000)[40:])
    return Draft(
        f"Find the remainder when the binomial coefficient C({n}, {k}) is divided by {p}.",
        str(math.comb(n, k) % p),
        f"from math import comb\nprint(comb({n}, {k}) % {p})",
    )


def subset_sums(rng: random.Random) -> Draft:
    """Subsets with a sum divisible by a number."""
    n, m = rng.randint(12, 60), rng.randint(3, 13)
    ways = [1] + [0] * (m - 1)
    for number in range(1, n + 1):
        ways = [ways[s] + ways[(s - number) % m] for s in range(m)]
    return Draft(
        f"How many subsets of {{1, ..., {n}}}, the empty one included, have a sum divisible by {m}?",
        str(ways[0]),
        f"ways = [1] + [0] * ({m} - 1)\nfor n in range(1, {n} + 1):\n    ways = [ways[s] + ways[(s - n) % {m}] for s in "
        f"range({m})]\nprint(ways[0])",
    )


TEMPLATES: dict[int, Templates] = {
    1: (committee, divisible_numbers),
    2: (word_arrangements, lattice_paths),
    3: (bounded_solutions, fixed_points),
    4: (binomial_remainder, subset_sums),
}
