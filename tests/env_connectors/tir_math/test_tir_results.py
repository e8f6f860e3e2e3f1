"""What the model reads of a run, by the stated rule."""

import pytest

from env_connectors.tir_math.results import result_text, with_final_answer
from env_connectors.tir_math.sandbox import RunResult, Session, Status


def _text(result: RunResult, code: str = "", most_chars: int = 64, error_lines: int = 1) -> str:
    return result_text(result, code, most_chars=most_chars, error_lines=error_lines)


def test_output_is_shown_from_its_beginning_and_errors_from_their_end() -> None:
    assert _text(RunResult("6\n\n", "warned", Status.OK)) == "6"
    assert _text(RunResult("", "", Status.OK)) == "(nothing was printed)"
    long = _text(RunResult("x" * 65, "", Status.OK))
    assert (len(long), long[:3], long[-4:]) == (64, "xxx", " ...")
    assert _text(RunResult("x" * 64, "", Status.OK)) == "x" * 64
    error = RunResult("6", "Traceback\n  File\nValueError: bad\n", Status.ERROR)
    assert _text(error) == "ValueError: bad"
    assert _text(error, error_lines=2) == "  File\nValueError: bad".strip()
    assert _text(RunResult("", "E: " + "y" * 99, Status.ERROR)) == "y" * 64
    assert _text(RunResult("6", "", Status.TIMEOUT, "TimeoutError: stopped.")) == "TimeoutError: stopped."
    assert _text(RunResult("", "", Status.ERROR)) == "(error)"


def test_line_numbers_are_those_of_the_model(session: Session) -> None:
    code = "final_answer(2)\nprint(1)\n1 / 0"
    result = session.run(with_final_answer(code))
    assert result.stdout == "\\boxed{2}\n1\n"
    assert 'File "main.py", line 3' in _text(result, code, 512, 9)


def test_final_answer_is_there_only_where_it_is_used_and_not_the_models_own() -> None:
    for code in ("print(1)", "def final_answer(x):\n    pass\nfinal_answer(1)"):
        assert with_final_answer(code) == code


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("print('a' * 10_000_000)", "aaa ..."),
        ("while True: pass", "TimeoutError: the program was stopped after 1 s."),
        ("print('\u03c0 \U0001f600')", "\u03c0 \U0001f600"),
        ("import subprocess\nsubprocess.run('ls')", "PermissionError"),
        ("def f(:", "SyntaxError: invalid syntax"),
        ("input()", "EOFError: EOF when reading a line"),
        ("x = 1\n" * 200_000, "The program was not taken"),
        ("print('\ud800')", "UnicodeEncodeError"),
        ("[0] * 10**12", "MemoryError"),
        ("import sys; sys.exit(3)", "exit code 3"),
        ("import pandas", "No module 'pandas'"),
    ],
)
def test_every_bad_program_has_a_clear_result(session: Session, code: str, shown: str) -> None:
    result = session.run(code, timeout_s=1.0)
    text = _text(result, code, 512, 3)
    assert len(text) <= 512
    assert shown.removesuffix("aaa ...") in text and text.endswith(" ...") == shown.endswith(" ...")
