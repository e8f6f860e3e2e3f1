"""A solver that knows the answer: runs the problem's program, then answers; and slips that a clumsy one makes."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from env_connectors.tir_math.problems import Problem
from env_connectors.tir_math.replies import Style

Plan = list[tuple[str, str]]
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_OPERATORS = {"+": "-", "-": "+", "*": "+", "%": "//"}
_SWAP = re.compile(r"(?<=[\w) ])[-+*%](?=[\w( ])")


def plan(problem: Problem, style: Style, *, is_known: bool, turns_left: int, words: tuple[str, str]) -> Plan:
    """Return (thought, action) pairs to the right answer.

    Args:
        problem: being solved.
        style: how actions are written.
        is_known: the last output was the answer already.
        turns_left: actions that are left, >= 1; a single one is an answer.
        words: thoughts before a program and before an answer; '{0}' in the second becomes the answer.
    """
    final = (words[1].format(problem.answer), style.answer.format(problem.answer))
    if is_known or turns_left < 2 or not problem.program:
        return [final]
    return [(words[0], style.call.format(problem.program)), final]


def slips(problem: Problem, style: Style, outputs: list[str]) -> Iterator[str]:
    """Return wrong actions: programs with a wrong number, operator or end, answers that are guesses.

    Equal for equal arguments; whether a slip happens to be right is for the judge.
    """
    rng = random.Random(f"{problem.text}:{len(outputs)}")
    for code in dict.fromkeys(_wrong_programs(problem.program, rng)):
        if code != problem.program:
            yield style.call.format(code)
    guesses = [*outputs[-1:], *_NUMBER.findall(problem.text)[:2], *_near(problem.answer, rng)]
    for guess in dict.fromkeys(guess.strip() for guess in guesses):
        if guess and guess != problem.answer and len(guess) <= len(problem.answer) + 20:
            yield style.answer.format(guess)


def _wrong_programs(code: str, rng: random.Random) -> Iterator[str]:
    if not code:
        return
    if numbers := list(_NUMBER.finditer(code)):
        spot = rng.choice(numbers)
        yield code[: spot.start()] + _other(spot[0], rng) + code[spot.end() :]
    if operators := list(_SWAP.finditer(code)):
        spot = rng.choice(operators)
        yield code[: spot.start()] + _OPERATORS[spot[0]] + code[spot.end() :]
    yield code.rstrip().removesuffix(")").rstrip()


def _near(answer: str, rng: random.Random) -> Iterator[str]:
    if numbers := list(_NUMBER.finditer(answer)):
        spot = rng.choice(numbers)
        yield answer[: spot.start()] + _other(spot[0], rng) + answer[spot.end() :]


def _other(number: str, rng: random.Random) -> str:
    """Return a number with another last digit."""
    digit = rng.choice([d for d in "123456789" if d != number[-1]])
    return number[:-1] + digit
