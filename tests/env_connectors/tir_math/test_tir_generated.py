"""Generated problems: right answers, no problem twice, equal in every process, small enough for a tiny model."""

import contextlib
import io
import os
import subprocess
import sys
from collections import Counter
from fractions import Fraction

import pytest

from env_connectors.errors import EnvConfigError
from env_connectors.tir_math.generated.make import KINDS, LEVELS, generated_problems
from env_connectors.tir_math.generated.numbers import factors, polynomial, primes_below, product, solved
from env_connectors.tir_math.judge import Judge
from env_connectors.tir_math.problems import normalised
from env_connectors.tir_math.sandbox import Session

_JUDGE = Judge(timeout_s=30.0)


def _printed(program: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(program, {"__name__": "__main__"})
    return out.getvalue()


@pytest.mark.parametrize("is_compact", [False, True])
def test_the_program_of_every_problem_prints_its_answer(is_compact: bool) -> None:
    kinds = ("arithmetic",) if is_compact else KINDS
    for problem in generated_problems(2400, seed=0, kinds=kinds, is_compact=is_compact):
        assert _JUDGE.compare(problem.answer, _printed(problem.program), is_strict=True).is_equal, problem


def test_programs_do_the_same_in_the_sandbox(session: Session) -> None:
    for problem in generated_problems(64, seed=1):
        result = session.run(problem.program)
        assert _JUDGE.compare(problem.answer, result.stdout).is_equal, (problem, result)


@pytest.mark.parametrize("is_compact", [False, True])
def test_no_text_and_no_program_comes_twice(is_compact: bool) -> None:
    problems = generated_problems(4600, seed=3, kinds=("arithmetic",), is_compact=is_compact)
    assert len({normalised(p.text) for p in problems}) == len({p.program for p in problems}) == 4600


def test_kinds_and_levels_come_in_turn_and_a_longer_list_begins_as_the_shorter_one() -> None:
    problems = generated_problems(1600, seed=0)
    assert set(Counter((p.kind, p.level) for p in problems[:64]).values()) == {64 // (len(KINDS) * len(LEVELS))}
    assert generated_problems(100, seed=0) == problems[:100]
    assert generated_problems(100, seed=1) != problems[:100]


def test_equal_in_another_process() -> None:
    code = (
        "from env_connectors.tir_math.generated.make import generated_problems as g; import hashlib; "
        "print(hashlib.sha256(repr(g(800, seed=0) + g(80, seed=0, kinds=('arithmetic',), is_compact=True)).encode()).hexdigest())"
    )
    seen = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, env=environment, check=True, timeout=120
        )
        seen.add(run.stdout)
    assert len(seen) == 1


def test_compact_problems_are_short_and_only_guessed_by_luck() -> None:
    problems = generated_problems(4000, seed=0, kinds=("arithmetic",), is_compact=True)
    assert max(len(p.text.split()) for p in problems) <= 12
    for level in LEVELS:
        answers = Counter(p.answer for p in problems if p.level == level)
        assert max(answers.values()) < 0.05 * answers.total(), answers.most_common(3)
    for p in problems:
        numbers = [word for word in p.program.split() if word.isdigit()]
        assert sorted(numbers) == sorted(word for word in p.text.split() if word.isdigit()), p
        assert p.answer.isdigit() and len(p.answer) <= 2


def test_too_many_problems_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from env_connectors.tir_math.generated import make
    from env_connectors.tir_math.generated.numbers import Draft

    monkeypatch.setitem(make._TEMPLATES, "algebra", {1: (lambda rng: Draft("1 + 1", "2", "print(2)"),)})  # type: ignore[arg-type]
    with pytest.raises(EnvConfigError, match="fewer than 2 different generated problems of kinds algebra"):
        generated_problems(2, seed=0, kinds=("algebra",), levels=(1,))


def test_helpers_against_values_worked_out_by_hand() -> None:
    assert polynomial((1, 0, -3, 1)) == "x^3 - 3x + 1"
    assert polynomial((-1, 2), power="**", times="*") == "-x + 2"
    assert polynomial((-3, -1, 0)) == "-3x^2 - x"
    assert product((1, -1), (1, 1)) == [1, 0, -1]
    assert solved([[2, 1], [1, -1]], [5, 1]) == [Fraction(2), Fraction(1)]
    assert solved([[1, 1], [2, 2]], [1, 2]) is None
    assert factors(360) == {2: 3, 3: 2, 5: 1}
    assert primes_below(12) == [2, 3, 5, 7, 11] and primes_below(2) == []
