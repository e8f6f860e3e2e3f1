"""Arithmetic in at most twelve words for tiny models: the program copies the numbers and puts operators between them.

Numbers have two digits and stand between blanks, in problem and program alike, so that each is one token of a tokenizer made from
these texts; results have at most two digits as well. A tiny model can learn when and how to call the tool; the
results themselves it can only guess, about one time in seventy.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from env_connectors.tir_math.generated.numbers import Draft, Templates

_LEAST = 2  # 0 and 1 come too often: a guess would do


def _numbers(rng: random.Random, count: int, result: Callable[..., int]) -> tuple[list[int], int, int]:
    """Return numbers, a modulus, and what the function of the numbers is modulo it."""
    while True:
        numbers, m = [rng.randint(11, 99) for _ in range(count)], rng.randint(50, 99)
        if (rest := result(*numbers) % m) >= _LEAST:
            return numbers, m, rest


def product(rng: random.Random) -> Draft:
    """a * b mod m."""
    (a, b), m, rest = _numbers(rng, 2, lambda a, b: a * b)
    return Draft(f"compute {a} * {b} mod {m}", str(rest), f"print( {a} * {b} % {m} )")


def sum_of_product(rng: random.Random) -> Draft:
    """a * b + c mod m, or with minus."""
    sign, _, factor = _sign(rng)
    (a, b, c), m, rest = _numbers(rng, 3, lambda a, b, c: a * b + factor * c)
    return Draft(f"compute {a} * {b} {sign} {c} mod {m}", str(rest), f"print( ( {a} * {b} {sign} {c} ) % {m} )")


def in_words(rng: random.Random) -> Draft:
    """The same with words for the operators."""
    sign, word, factor = _sign(rng)
    (a, b, c), m, rest = _numbers(rng, 3, lambda a, b, c: a * b + factor * c)
    return Draft(f"take {a} times {b} {word} {c} mod {m}", str(rest), f"print( ( {a} * {b} {sign} {c} ) % {m} )")


def power(rng: random.Random) -> Draft:
    """a to the power b mod m."""
    (a, b), m, rest = _numbers(rng, 2, pow)
    return Draft(f"compute {a} to the power {b} mod {m}", str(rest), f"print( pow( {a} , {b} , {m} ) )")


def sum_of_products(rng: random.Random) -> Draft:
    """a * b + c * d mod m."""
    (a, b, c, d), m, rest = _numbers(rng, 4, lambda a, b, c, d: a * b + c * d)
    return Draft(f"compute {a} * {b} + {c} * {d} mod {m}", str(rest), f"print( ( {a} * {b} + {c} * {d} ) % {m} )")


def power_minus(rng: random.Random) -> Draft:
    """What is taken away comes first."""
    (a, b, c), m, rest = _numbers(rng, 3, lambda a, b, c: pow(b, c) - a)
    return Draft(f"take {a} from {b} to the power {c} mod {m}", str(rest), f"print( ( pow( {b} , {c} ) - {a} ) % {m} )")


def _sign(rng: random.Random) -> tuple[str, str, int]:
    return rng.choice((("+", "plus", 1), ("-", "minus", -1)))


TEMPLATES: dict[int, Templates] = {
    1: (product,),
    2: (sum_of_product, in_words),
    3: (power,),
    4: (sum_of_products, power_minus),
}
