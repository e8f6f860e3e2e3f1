"""Exact arithmetic of the generators, and how their answers and programs are written."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Draft:
    """A problem's text, answer and program before it has a place in a list."""

    text: str
    answer: str
    program: str


Templates = tuple[Callable[[random.Random], Draft], ...]


def written(number: int | Fraction) -> str:
    """Return an integer or a fraction p/q, as Python's Fraction and sympy print it."""
    return str(Fraction(number))


def written_set(numbers: Iterable[int | Fraction]) -> str:
    """Return numbers in ascending order in braces."""
    return "{" + ", ".join(written(number) for number in sorted(set(numbers))) + "}"


def written_tuple(numbers: Sequence[int | Fraction]) -> str:
    """Return numbers in parentheses."""
    return "(" + ", ".join(map(written, numbers)) + ")"


def signed(rng: random.Random, least: int, most: int) -> int:
    """Return a number whose size is in the range, of either sign."""
    return rng.choice((-1, 1)) * rng.randint(least, most)


def polynomial(coefficients: Sequence[int], *, power: str = "^", times: str = "") -> str:
    """Return a polynomial in x, highest power first; power '**' and times '*' make it Python."""
    degree, terms = len(coefficients) - 1, []
    for number, c in enumerate(coefficients):
        exponent = degree - number
        if c == 0:
            continue
        letter = "" if exponent == 0 else "x" if exponent == 1 else f"x{power}{exponent}"
        size = str(abs(c)) if abs(c) != 1 or not letter else ""
        body = size + (times if size and letter else "") + letter
        terms.append(("- " if c < 0 else "+ ") + body)
    text = " ".join(terms) or "0"
    return text.removeprefix("+ ") if text.startswith("+") else text.replace("- ", "-", 1) if terms else text


def product(*factors: Sequence[int]) -> list[int]:
    """Return the product of polynomials, highest power first."""
    result = [1]
    for factor in factors:
        sums = [0] * (len(result) + len(factor) - 1)
        for i, a in enumerate(result):
            for j, b in enumerate(factor):
                sums[i + j] += a * b
        result = sums
    return result


def solved(matrix: Sequence[Sequence[int]], right: Sequence[int]) -> list[Fraction] | None:
    """Return the solution of a square system, None when there is not exactly one."""
    rows = [[*map(Fraction, row), Fraction(b)] for row, b in zip(matrix, right, strict=True)]
    size = len(rows)
    for column in range(size):
        pivot = next((r for r in range(column, size) if rows[r][column]), None)
        if pivot is None:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [entry / rows[column][column] for entry in rows[column]]
        for r in range(size):
            if r != column and (factor := rows[r][column]):
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[column], strict=True)]
    return [row[-1] for row in rows]


def factors(number: int) -> dict[int, int]:
    """Return the exponents of the primes of a positive number."""
    found: dict[int, int] = {}
    prime = 2
    while prime * prime <= number:
        while number % prime == 0:
            found[prime] = found.get(prime, 0) + 1
            number //= prime
        prime += 1
    if number > 1:
        found[number] = found.get(number, 0) + 1
    return found


def primes_below(most: int) -> list[int]:
    """Return the primes below a number."""
    sieve = bytearray([1]) * max(most, 2)
    sieve[:2] = b"\0\0"
    for n in range(2, math.isqrt(max(most - 1, 1)) + 1):
        if sieve[n]:
            sieve[n * n :: n] = bytes(len(range(n * n, most, n)))
    return [n for n in range(most) if sieve[n]]
