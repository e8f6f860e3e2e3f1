"""Are two answers equal? Exact rules, math-verify behind them, a wall clock around it; agreement on MATH-500."""

import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env_connectors.errors import AnswerCheckError
from env_connectors.tir_math import exact, judge
from env_connectors.tir_math.judge import Judge, Verdict


@pytest.fixture(scope="module")
def checker() -> Iterator[Judge]:
    made = Judge(timeout_s=30.0)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("gold", "given_answer", "equal"),
    [
        ("6", " 6. ", True),
        ("6", "6.0", True),
        ("6", "7", False),
        ("6", "x = 6", True),
        ("6", "\\boxed{6}", True),
        ("1/2", "0.5", True),
        ("1/2", "\\dfrac{1}{2}", True),
        ("1/2", "50\\%", True),
        ("-1/2", "-\\frac12", True),
        ("1\\frac{4}{5}", "1.8", True),
        ("1/2", "2/4", True),
        ("1/3", "0.3333333333", False),
        ("10,\\!080", "10080", True),
        ("10080", "10,080", True),
        ("\\$32", "32", True),
        ("90^\\circ", "90", True),
        ("{1, 2}", "2, 1", True),
        ("{1, 2}", "\\{2,1\\}", True),
        ("{1, 2}", "[1, 2]", True),
        ("{1, 2}", "{1, 3}", False),
        ("(1, 2)", "(1,2)", True),
        ("(1, 2)", "(2, 1)", False),
        ("(1/2, -3)", "(0.5, -3)", True),
        ("{5}", "5", True),
        ("\\text{even}", "even", True),
        ("6", "", False),
        ("6", "1" * 100_000, False),
        ("6", "1/0", None),
        ("p - q", "-q + p", None),
        ("[1,2)", "(1,2)", None),
        ("0.0000672", "6.72e-05", True),
    ],
)
def test_exact_rules(gold: str, given_answer: str, equal: bool | None) -> None:
    assert exact.compare(gold, given_answer) is equal


@pytest.mark.parametrize(
    ("gold", "given_answer", "equal"),
    [
        ("p - q", "-q + p", True),
        ("x^2 + 2x + 1", "(x + 1)**2", True),
        ("2\\sqrt{5}", "sqrt(20)", True),
        ("\\frac{\\sqrt{3}}{3}", "1/sqrt(3)", True),
        ("\\{1\\pm\\sqrt{5},-2\\}", "{-2, 1+sqrt(5), 1-sqrt(5)}", True),
        ("6 - 5i", "6 - 5*I", True),
        ("(3,4]", "(3,4)", False),
        ("\\pi", "3.14159", False),
        ("3", "3x", False),
        ("6", "\\frac{", False),
        ("6", "\\sqrt[", False),
        ("6", "\u03c0\U0001f600", False),
        ("6", "the cat", False),
        ("6", "1/0", False),
        ("6", "__import__('os').system('true')", False),
    ],
)
def test_math_verify_decides_the_rest_and_broken_latex_is_just_wrong(
    checker: Judge, gold: str, given_answer: str, equal: bool
) -> None:
    verdict = checker.compare(gold, given_answer)
    assert verdict.is_equal is equal and verdict.by in ("math_verify", "unread")


@pytest.mark.parametrize(
    ("gold", "given_answer", "lax", "strict"),
    [
        ("5", "2 + 3", True, False),
        ("1024", "2^{10}", True, False),
        ("{-1, 1}", "{-1^3, 1^2}", True, False),
        ("1/2", "0.5", True, True),
        ("x^2 - 1", "(x - 1)(x + 1)", True, False),
        ("x^2 - 1", "x^2 - 1 + x - x", True, False),
        ("x^2 - 1", "-1 + x**2", True, True),
        ("2x^3 - x", "2*x**3 - x", True, True),
    ],
)
def test_repeating_what_is_asked_is_no_answer_where_something_is_to_be_worked_out(
    checker: Judge, gold: str, given_answer: str, lax: bool, strict: bool
) -> None:
    assert checker.compare(gold, given_answer).is_equal is lax
    assert checker.compare(gold, given_answer, is_strict=True).is_equal is strict


def test_a_check_that_hangs_is_given_up_and_the_next_one_works() -> None:
    with_clock = Judge(timeout_s=1.0)
    assert with_clock.compare("p + 1", "1 + p").is_equal  # the worker is up
    started = time.monotonic()
    assert with_clock.compare("2", "10^{10^{10^{10}}}") == Verdict(False, "timeout")
    assert time.monotonic() - started < 15.0
    with_clock.timeout_s = 30.0
    assert with_clock.compare("q + 1", "1 + q").is_equal
    with_clock.close()
    assert with_clock.pid is None


def test_checks_work_in_threads(checker: Judge) -> None:
    found: list[bool] = []
    threads = [
        threading.Thread(target=lambda n=n: found.append(checker.compare(f"{n}a", f"a*{n}").is_equal))
        for n in range(2, 10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert found == [True] * 8


def test_a_worker_that_was_killed_is_replaced() -> None:
    checker = Judge(timeout_s=30.0)
    assert checker.compare("2b", "b*2").is_equal
    assert checker._worker is not None
    checker._worker.kill()
    checker._worker.wait()
    assert checker.compare("3b", "b*3").is_equal
    checker.close()


@pytest.mark.parametrize(
    ("gold", "given_answer", "equal"),
    [("52", "5²", False), ("25", "5²", True), ("x^2+1", "x²+1", True), ("x^{-12}", "x⁻¹²", True), ("x2", "x²", False)],
)
def test_raised_digits_are_powers(checker: Judge, gold: str, given_answer: str, equal: bool) -> None:
    assert checker.compare(gold, given_answer).is_equal is equal


def test_a_worker_that_is_killed_while_it_checks_does_not_make_a_right_answer_wrong() -> None:
    checker = Judge(timeout_s=30.0)
    assert checker.compare("2k", "k*2").is_equal
    exchange, killed = checker._exchange, []

    def kill_first(request: bytes, timeout_s: float) -> bytes:
        if request and not killed:
            killed.append(checker.pid)
            checker._worker.kill()
        return exchange(request, timeout_s)

    checker._exchange = kill_first
    assert checker.compare("3k", "k*3") == Verdict(True, "math_verify")
    assert killed != [checker.pid]
    checker.close()


def test_a_worker_that_cannot_start_fails_the_episode_and_judges_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "_WORKER", "/nowhere/worker.py")
    checker = Judge()
    with pytest.raises(AnswerCheckError, match=r"cannot be started: EOFError .* Remedy: see what `.*worker.py` says"):
        checker.compare("4k", "k*4")
    monkeypatch.undo()
    assert checker.compare("4k", "k*4").is_equal
    checker.close()


def test_without_math_verify_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"no module 'math_verify'. Remedy: pip install 'arlarena-rllib\[tir_math\]'"):
        judge.require_math_verify()


@given(st.text(alphabet=st.sampled_from(list("0123456789.,/%{}()[]\\-+ frac^$x=")), max_size=30))
def test_no_answer_makes_the_exact_rules_raise(text: str) -> None:
    assert exact.compare(text, text) in (True, False)
    exact.compare("1/2", text)


@given(st.fractions(max_denominator=500), st.fractions(max_denominator=500))
def test_exact_numbers_are_those_of_fractions(one: object, other: object) -> None:
    assert exact.compare(str(one), str(other)) is (one == other)


_SIMPLE = re.compile(r"-?\\frac\{\d+\}\{\d+\}")


def _decimal(answer: str) -> str | None:
    number = exact.number(exact.plain(answer))
    if number is None or number.denominator == 1 or 10**12 % number.denominator:
        return None
    return f"{float(number):.12f}".rstrip("0")


def _spellings(answer: str) -> Iterator[tuple[str, str]]:
    is_number, is_word = re.fullmatch(r"\d+", answer) is not None, "\\text" in answer
    yield "as it is", answer
    yield "boxed", f"\\boxed{{{answer}}}"
    yield "in dollars", f"${answer}$"
    yield "full stop", f"{answer}."
    if not re.search(r"\d,|\\!", answer):
        yield "blanks", " " + re.sub(r"(?<=[,+=(\[])|(?=[,+=)\]])", " ", answer) + " "
    if "\\frac" in answer:
        yield "dfrac", answer.replace("\\frac", "\\dfrac")
    if _SIMPLE.fullmatch(answer):
        yield "p/q", re.sub(r"\\frac\{(\d+)\}\{(\d+)\}", r"\1/\2", answer)
    if (decimal := _decimal(answer)) is not None:
        yield "decimal", decimal
    if "=" not in answer and "\\in" not in answer and not is_word:
        yield "x =", f"x = {answer}"
    if is_number:
        yield "with a unit", f"{answer}\\text{{ cm}}"
        yield "with .0", f"{answer}.0"
    if is_number and len(answer) > 3:
        yield "thousands", f"{int(answer):,}"
    if re.fullmatch(r"[^\\]*(?:\\sqrt\{\d+\}|\\pi)[^\\]*", answer):
        yield "as Python", re.sub(r"\\sqrt\{(\d+)\}", r"sqrt(\1)", answer).replace("\\pi", "pi")


def test_agreement_on_math_500(math_file: Callable[[str], Path], checker: Judge) -> None:
    answers = [
        json.loads(line)["answer"] for line in math_file("math500.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    asked: dict[str, int] = {}
    agreed: dict[str, int] = {}
    by_math_verify = 0
    for answer in answers:
        for name, spelling in _spellings(answer):
            verdict = checker.compare(answer, spelling)
            asked[name] = asked.get(name, 0) + 1
            agreed[name] = agreed.get(name, 0) + verdict.is_equal
            by_math_verify += verdict.by == "math_verify"
    print("\n".join(f"{name}: {agreed[name]} of {asked[name]}" for name in asked), f"\n{by_math_verify} by math-verify")
    assert asked["as it is"] == 500
    assert {name: asked[name] - agreed[name] for name in asked if agreed[name] < asked[name]} == {}


def test_exact_rules_and_math_verify_agree_on_math_500(math_file: Callable[[str], Path], checker: Judge) -> None:
    answers = [
        json.loads(line)["answer"] for line in math_file("math500.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    pairs = [(a, b) for a, b in itertools.pairwise(answers) if exact.compare(a, b) is not None]
    assert len(pairs) > 250
    assert [(a, b) for a, b in pairs if checker.ask(a, b).is_equal != exact.compare(a, b)] == []
    assert sum(checker.ask(a, a).is_equal for a in answers[:200]) == 200, "math-verify alone"
