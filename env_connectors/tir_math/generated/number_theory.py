"""Number theory: divisors, primes, totients, congruences."""

from __future__ import annotations

import math
import random

from env_connectors.tir_math.generated.numbers import Draft, Templates, factors, primes_below

_MODULI = [n for n in primes_below(120) if n > 4]


def greatest_divisor(rng: random.Random) -> Draft:
    """The greatest common divisor of two products."""
    common = rng.randint(2, 400)
    a, b = common * rng.randint(20, 2000), common * rng.randint(20, 2000)
    return Draft(
        f"Find the greatest common divisor of {a} and {b}.",
        str(math.gcd(a, b)),
        f"import math\nprint(math.gcd({a}, {b}))",
    )


def least_multiple(rng: random.Random) -> Draft:
    """The least common multiple of three numbers."""
    a, b, c = (rng.randint(20, 400) for _ in range(3))
    return Draft(
        f"Find the least common multiple of {a}, {b} and {c}.",
        str(math.lcm(a, b, c)),
        f"import math\nprint(math.lcm({a}, {b}, {c}))",
    )


def number_of_divisors(rng: random.Random) -> Draft:
    """How many divisors a number has."""
    n = _composite(rng, 2000, 90_000)
    return Draft(
        f"How many positive divisors does {n} have?",
        str(math.prod(e + 1 for e in factors(n).values())),
        f"n = {n}\nprint(sum(n % d == 0 for d in range(1, n + 1)))",
    )


def sum_of_divisors(rng: random.Random) -> Draft:
    """The sum of the divisors of a number."""
    n = _composite(rng, 2000, 90_000)
    return Draft(
        f"Find the sum of all positive divisors of {n}.",
        str(math.prod((p ** (e + 1) - 1) // (p - 1) for p, e in factors(n).items())),
        f"n = {n}\nprint(sum(d for d in range(1, n + 1) if n % d == 0))",
    )


def totient(rng: random.Random) -> Draft:
    """Euler's totient."""
    n = rng.randint(1000, 60_000)
    count = n
    for p in factors(n):
        count -= count // p
    return Draft(
        f"How many integers from 1 to {n} are relatively prime to {n}?",
        str(count),
        f"import math\nn = {n}\nprint(sum(math.gcd(k, n) == 1 for k in range(1, n + 1)))",
    )


def count_of_primes(rng: random.Random) -> Draft:
    """Primes in a range."""
    low = rng.randint(100, 9000)
    high = low + rng.randint(200, 3000)
    return Draft(
        f"How many primes are there between {low} and {high}?",
        str(sum(p > low for p in primes_below(high))),
        f"from sympy import isprime\nprint(sum(isprime(n) for n in range({low} + 1, {high})))",
    )


def prime_divisors(rng: random.Random) -> Draft:
    """The set of primes that divide a number."""
    n = math.prod(rng.choice(_MODULI) for _ in range(4)) * rng.randint(2, 30)
    found = ", ".join(map(str, sorted(factors(n))))
    return Draft(
        f"Find the set of all prime divisors of {n}.",
        "{" + found + "}",
        f"from sympy import primefactors\nprint('{{' + ', '.join(map(str, primefactors({n}))) + '}}')",
    )


def chinese_remainders(rng: random.Random) -> Draft:
    """Three congruences with different prime moduli."""
    moduli = rng.sample(_MODULI, 3)
    rests = [rng.randrange(m) for m in moduli]
    whole = math.prod(moduli)
    x = sum(r * (whole // m) * pow(whole // m, -1, m) for r, m in zip(rests, moduli, strict=True)) % whole
    asked = ", ".join(f"{r} when divided by {m}" for r, m in zip(rests, moduli, strict=True))
    test = " and ".join(f"x % {m} == {r}" for r, m in zip(rests, moduli, strict=True))
    return Draft(
        f"Find the smallest non-negative integer that leaves the remainders {asked}.",
        str(x),
        f"x = 0\nwhile not ({test}):\n    x += 1\nprint(x)",
    )


def multiplicative_order(rng: random.Random) -> Draft:
    """The least exponent that gives 1."""
    m = rng.randint(200, 9999)
    a = rng.randint(2, 99)
    while math.gcd(a, m) != 1:
        m += 1
    order, power = 1, a % m
    while power != 1:
        order, power = order + 1, power * a % m
    return Draft(
        f"Find the smallest positive integer k such that {a}^k leaves the remainder 1 when divided by {m}.",
        str(order),
        f"k, p = 1, {a} % {m}\nwhile p != 1:\n    k, p = k + 1, p * {a} % {m}\nprint(k)",
    )


def modular_inverse(rng: random.Random) -> Draft:
    """An inverse modulo a number."""
    m, a = rng.randint(1000, 99_999), rng.randint(100, 999)
    while math.gcd(a, m) != 1:
        m += 1
    return Draft(
        f"Find the integer x with 0 < x < {m} such that {a}x leaves the remainder 1 when divided by {m}.",
        str(pow(a, -1, m)),
        f"print(pow({a}, -1, {m}))",
    )


def _composite(rng: random.Random, low: int, high: int) -> int:
    while True:
        n = math.prod(rng.choice((2, 2, 2, 3, 3, 5, 7, 11, 13)) for _ in range(rng.randint(3, 6))) * rng.randint(3, 60)
        if low <= n <= high:
            return n


TEMPLATES: dict[int, Templates] = {
    1: (greatest_divisor, least_multiple),
    2: (number_of_divisors, sum_of_divisors, prime_divisors),
    3: (totient, count_of_primes, modular_inverse),
    4: (chinese_remainders, multiplicative_order),
}
