"""Algebra: equations, systems, roots, series, polynomials."""

from __future__ import annotations

import random
from fractions import Fraction

from env_connectors.tir_math.generated.numbers import (
    Draft,
    Templates,
    polynomial,
    product,
    signed,
    solved,
    written,
    written_set,
    written_tuple,
)

_EXACT = "from fractions import Fraction\n"


def linear_equation(rng: random.Random) -> Draft:
    """One unknown on both sides."""
    a, b, c, d = (signed(rng, 2, 99) for _ in range(4))
    if a == c:
        c = -c
    left, right = (polynomial(pair) for pair in ((a, b), (c, d)))
    return Draft(
        f"Solve for x: {left} = {right}.",
        written(Fraction(d - b, a - c)),
        f"{_EXACT}print(Fraction({d} - ({b}), {a} - ({c})))",
    )


def polynomial_value(rng: random.Random) -> Draft:
    """A polynomial of degree four at a number of two digits."""
    coefficients = [signed(rng, 1, 20) for _ in range(5)]
    x = signed(rng, 11, 60)
    value = 0
    for c in coefficients:
        value = value * x + c
    python = polynomial(coefficients, power="**", times="*")
    return Draft(f"Evaluate {polynomial(coefficients)} at x = {x}.", str(value), f"x = {x}\nprint({python})")


def system_of_two(rng: random.Random) -> Draft:
    """Two linear equations in x and y."""
    return _system(rng, "xy", "Give (x, y).", total=False)


def system_of_three(rng: random.Random) -> Draft:
    """Three linear equations; their solution's sum."""
    return _system(rng, "xyz", "Find x + y + z.", total=True)


def quadratic_roots(rng: random.Random) -> Draft:
    """Two rational roots."""
    factors = [(rng.randint(1, 9), signed(rng, 1, 30)) for _ in range(2)]
    return _roots(factors)


def quartic_roots(rng: random.Random) -> Draft:
    """Four rational roots."""
    factors = [(rng.randint(1, 4), signed(rng, 1, 12)) for _ in range(4)]
    return _roots(factors)


def quadratic_series(rng: random.Random) -> Draft:
    """A sum of a quadratic term."""
    a, b, c, n = rng.randint(1, 30), signed(rng, 1, 30), signed(rng, 1, 99), rng.randint(50, 999)
    term = polynomial((a, b, c))
    return Draft(
        f"Find the sum of {term.replace('x', 'k')} over all integers k from 1 to {n}.",
        str(sum(a * k * k + b * k + c for k in range(1, n + 1))),
        f"print(sum({a} * k * k + ({b}) * k + ({c}) for k in range(1, {n} + 1)))",
    )


def fraction_series(rng: random.Random) -> Draft:
    """A telescoping sum, exact."""
    n, step, start = rng.randint(8, 60), rng.randint(1, 9), rng.randint(1, 20)
    total = sum((Fraction(1, k * (k + step)) for k in range(start, start + n)), Fraction(0))
    return Draft(
        f"Find the exact sum of 1/(k(k+{step})) over all integers k from {start} to {start + n - 1}.",
        written(total),
        f"{_EXACT}print(sum(Fraction(1, k * (k + {step})) for k in range({start}, {start + n})))",
    )


def expansion(rng: random.Random) -> Draft:
    """A product of three polynomials, written out."""
    parts = [(rng.randint(1, 9), signed(rng, 1, 15)), (rng.randint(1, 5), signed(rng, 1, 9), signed(rng, 1, 9))]
    parts.append((rng.randint(1, 9), signed(rng, 1, 15)))
    shown = "".join(f"({polynomial(part)})" for part in parts)
    python = "*".join(f"({polynomial(part, power='**', times='*')})" for part in parts)
    return Draft(
        f"Expand {shown}.",
        polynomial(product(*parts)),
        f"from sympy import expand, symbols\nx = symbols('x')\nprint(expand({python}))",
    )


def recurrence(rng: random.Random) -> Draft:
    """A term of a linear recurrence, modulo a number."""
    a, b, p, q = rng.randint(1, 9), rng.randint(1, 9), rng.randint(1, 9), signed(rng, 1, 9)
    n, m = rng.randint(40, 400), rng.randint(100, 9999)
    one, two = a, b
    for _ in range(n - 1):
        one, two = two, (p * two + q * one) % m
    rule = f"a_n = {p}a_{{n-1}} {'+' if q > 0 else '-'} {abs(q)}a_{{n-2}}"
    return Draft(
        f"Let a_0 = {a}, a_1 = {b} and {rule} for n >= 2. Find the remainder of a_{{{n}}} when divided by {m}.",
        str(two % m),
        f"a, b = {a}, {b}\nfor _ in range({n} - 1):\n    a, b = b, {p} * b + ({q}) * a\nprint(b % {m})",
    )


def _system(rng: random.Random, letters: str, question: str, *, total: bool) -> Draft:
    found = None
    while found is None:
        matrix = [[signed(rng, 1, 20) for _ in letters] for _ in letters]
        right = [signed(rng, 1, 99) for _ in letters]
        found = solved(matrix, right)
    rows = []
    for row, b in zip(matrix, right, strict=True):
        terms = " ".join(f"{'-' if c < 0 else '+'} {abs(c)}{letter}" for c, letter in zip(row, letters, strict=True))
        rows.append(f"{terms.removeprefix('+ ').replace('- ', '-', 1) if terms[0] == '-' else terms[2:]} = {b}")
    end = "print(sum(s))" if total else "print(tuple(s))"
    return Draft(
        f"Solve the system {'; '.join(rows)}. {question}",
        written(sum(found, Fraction(0))) if total else written_tuple(found),
        f"from sympy import Matrix\ns = Matrix({matrix}).LUsolve(Matrix({right}))\n{end}",
    )


def _roots(factors: list[tuple[int, int]]) -> Draft:
    coefficients = product(*factors)
    python = polynomial(coefficients, power="**", times="*")
    return Draft(
        f"Find the set of all real roots of {polynomial(coefficients)}.",
        written_set(Fraction(-b, a) for a, b in factors),
        "from sympy import roots, symbols\nx = symbols('x')\n"
        f"print('{{' + ', '.join(map(str, sorted(roots({python}, x)))) + '}}')",
    )


TEMPLATES: dict[int, Templates] = {
    1: (linear_equation, polynomial_value),
    2: (system_of_two, quadratic_roots),
    3: (system_of_three, quadratic_series, fraction_series),
    4: (quartic_roots, expansion, recurrence),
}
