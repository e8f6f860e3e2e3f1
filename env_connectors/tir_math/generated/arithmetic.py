"""Arithmetic: products, powers and fractions too large for a head."""

from __future__ import annotations

import random
from fractions import Fraction

from env_connectors.tir_math.generated.numbers import Draft, Templates, written


def large_product(rng: random.Random) -> Draft:
    """A product of two numbers of four digits, plus or minus a third."""
    a, b, c = rng.randint(1000, 9999), rng.randint(1000, 9999), rng.randint(1000, 99_999)
    sign = rng.choice("+-")
    return Draft(
        f"Compute {a} * {b} {sign} {c}.", str(a * b + (c if sign == "+" else -c)), f"print({a} * {b} {sign} {c})"
    )


def product_remainder(rng: random.Random) -> Draft:
    """The rest of a product by a number of two or three digits."""
    a, b, m = rng.randint(100, 9999), rng.randint(100, 9999), rng.randint(50, 999)
    return Draft(f"What is the remainder of {a} * {b} when divided by {m}?", str(a * b % m), f"print({a} * {b} % {m})")


def modular_power(rng: random.Random) -> Draft:
    """A power modulo a number."""
    a, e, m = rng.randint(12, 999), rng.randint(20, 999), rng.randint(100, 9999)
    return Draft(
        f"Find the remainder when {a}^{{{e}}} is divided by {m}.", str(pow(a, e, m)), f"print(pow({a}, {e}, {m}))"
    )


def fraction_sum(rng: random.Random) -> Draft:
    """A sum of three fractions in lowest terms."""
    parts = [Fraction(rng.randint(1, 60), rng.randint(7, 97)) for _ in range(3)]
    shown = " + ".join(f"{p.numerator}/{p.denominator}" for p in parts)
    summed = " + ".join(f"Fraction({p.numerator}, {p.denominator})" for p in parts)
    return Draft(
        f"Write {shown} as a fraction in lowest terms.",
        written(sum(parts, Fraction(0))),
        f"from fractions import Fraction\nprint({summed})",
    )


def digit_sum_of_power(rng: random.Random) -> Draft:
    """The sum of the digits of a large power."""
    a, e = rng.randint(2, 99), rng.randint(30, 150)
    return Draft(
        f"What is the sum of the decimal digits of {a}^{{{e}}}?",
        str(sum(map(int, str(a**e)))),
        f"print(sum(int(d) for d in str({a} ** {e})))",
    )


def last_digits(rng: random.Random) -> Draft:
    """The last digits of a sum of two powers."""
    a, b, e, f, k = (rng.randint(*span) for span in ((3, 99), (3, 99), (100, 9999), (100, 9999), (3, 6)))
    return Draft(
        f"Find the remainder when {a}^{{{e}}} + {b}^{{{f}}} is divided by 10^{k}.",
        str((pow(a, e, 10**k) + pow(b, f, 10**k)) % 10**k),
        f"m = 10 ** {k}\nprint((pow({a}, {e}, m) + pow({b}, {f}, m)) % m)",
    )


def factorial_zeros(rng: random.Random) -> Draft:
    """Zeros at the end of a quotient of factorials."""
    n = rng.randint(300, 3000)
    k = rng.randint(20, n // 2)
    zeros = min(_exponent(n, p) - _exponent(n - k, p) for p in (2, 5))
    return Draft(
        f"How many zeros are at the end of the decimal form of {n}! / {n - k}!?",
        str(zeros),
        "def power(n, p):\n    total = 0\n    while n:\n        n //= p\n        total += n\n    return total\n"
        f"print(min(power({n}, p) - power({n - k}, p) for p in (2, 5)))",
    )


def mixed_fraction_power(rng: random.Random) -> Draft:
    """A power of a sum of two fractions."""
    a, b = (Fraction(rng.randint(1, 20), rng.randint(3, 19)) for _ in range(2))
    e = rng.randint(3, 5)
    return Draft(
        f"Compute ({a.numerator}/{a.denominator} - {b.numerator}/{b.denominator})^{e} exactly, in lowest terms.",
        written((a - b) ** e),
        f"from fractions import Fraction\nprint((Fraction({a.numerator}, {a.denominator}) - "
        f"Fraction({b.numerator}, {b.denominator})) ** {e})",
    )


def _exponent(n: int, prime: int) -> int:
    total = 0
    while n:
        n //= prime
        total += n
    return total


TEMPLATES: dict[int, Templates] = {
    1: (large_product, product_remainder),
    2: (modular_power, fraction_sum),
    3: (digit_sum_of_power, last_digits),
    4: (factorial_zeros, mixed_fraction_power),
}
