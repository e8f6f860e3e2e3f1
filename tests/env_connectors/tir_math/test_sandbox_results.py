"""What a program gives back: plain script semantics, and a clear word about every end."""

from __future__ import annotations

import pickle

import pytest

from env_connectors.errors import EnvConfigError
from env_connectors.tir_math.sandbox import Limits, Sandbox, SandboxError, Session, Status


def test_script_prints_reads_input_and_takes_no_notice_of_its_last_value(session: Session) -> None:
    result = session.run("name = input()\nprint('hello', name, __name__)\n1 + 1", "world\n")
    assert (result.stdout, result.stderr, result.status, result.note) == ("hello world __main__\n", "", Status.OK, "")
    assert result.exit_code == 0 and 0 < result.seconds < 20 and not result.is_truncated


def test_traceback_shows_the_program_and_nothing_of_the_sandbox(session: Session) -> None:
    result = session.run("def f(x):\n    return 1 / x\n\nprint('begun')\nf(0)")
    assert result.status is Status.ERROR and result.stdout == "begun\n"
    assert '  File "main.py", line 5, in <module>\n    f(0)\n' in result.stderr
    assert result.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert "inside" not in result.stderr and "exec(" not in result.stderr


def test_syntax_error_shows_the_line(session: Session) -> None:
    result = session.run("x = 1\nprint(x")
    assert (
        result.status is Status.ERROR
        and "SyntaxError: '(' was never closed" in result.stderr
        and "line 2" in result.stderr
    )


def test_calls_share_files_and_nothing_else(session: Session, sandbox: Sandbox) -> None:
    assert session.run("x = 5; import math; math.pi = 3; open('a.txt', 'w').write('7')").status is Status.OK
    again = session.run("import math; print(open('/tmp/a.txt').read(), math.pi > 3, 'x' in globals())")
    assert again.stdout == "7 True False\n"
    with sandbox.session() as other:
        assert "FileNotFoundError" in other.run("open('/tmp/a.txt')").stderr


def test_module_written_by_one_call_is_imported_by_the_next(session: Session) -> None:
    session.run("open('helper.py', 'w').write('def double(x): return 2 * x')")
    assert session.run("from helper import double; print(double(21))").stdout == "42\n"


def test_random_numbers_differ_between_calls_and_set_order_does_not(session: Session) -> None:
    code = "import random, numpy; print(random.random(), numpy.random.rand(), numpy.random.default_rng().random())"
    first, second = (session.run(code).stdout.split() for _ in range(2))
    assert all(a != b for a, b in zip(first, second, strict=True)) and len(first) == 3
    assert len({session.run("print(set('abcdefgh'))").stdout for _ in range(2)}) == 1


def test_packages_compute(session: Session) -> None:
    result = session.run(
        "import numpy as np, sympy as sp, mpmath\nx = sp.symbols('x')\n"
        "print(np.linalg.solve([[2, 0], [0, 4]], [2, 4]).tolist(), sp.integrate(x**2, (x, 0, 3)), mpmath.mpf(1) / 4)"
    )
    assert result.stdout == "[1.0, 1.0] 9 0.25\n", result.text


def test_threads_and_asyncio_work(session: Session) -> None:
    code = (
        "import asyncio\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "async def f():\n    await asyncio.sleep(0.01)\n    return 3\n"
        "print(sum(ThreadPoolExecutor(4).map(abs, [-1, -2])), asyncio.run(f()))"
    )
    assert session.run(code).text == "3 3\n"


def test_every_end_has_its_sentence(session: Session) -> None:
    ends = {
        "import pandas": (Status.MISSING, "No module 'pandas': there are the standard library, numpy, sympy, mpmath"),
        "while True: pass": (Status.TIMEOUT, "TimeoutError: the program was stopped after 0.5 s."),
        "bytearray(10**9)": (Status.MEMORY, "MemoryError: the program may use 96 MB."),
        "import mmap; mmap.mmap(-1, 10**9)": (Status.MEMORY, "MemoryError: the program may use 96 MB."),
        "import sys; sys.exit(3)": (Status.EXIT, "exit code 3"),
        "import sys; sys.exit('no solution')": (Status.EXIT, "exit code 1"),
        "import os; os.abort()": (Status.CRASH, "killed by SIGABRT"),
        "print('x' * 10**6)": (Status.OK, "The output was cut: only the first 64 kB of 977 kB are kept."),
        "exit()": (Status.OK, ""),
    }
    for code, (status, sentence) in ends.items():
        result = session.run(code, timeout_s=0.5 if "while" in code else None)
        assert result.status is status and sentence in result.note, (code, result)
        assert sentence in result.text


def test_output_before_a_timeout_is_kept(session: Session) -> None:
    result = session.run("print('first step')\nwhile True: pass", timeout_s=1.0)
    assert result.status is Status.TIMEOUT and result.stdout == "first step\n" and 1.0 <= result.seconds < 10.0


def test_cut_goes_through_no_character(session: Session) -> None:
    result = session.run("print('a' + 'π' * 10**5)")
    assert result.is_truncated and set(result.stdout) == {"a", "π"} and len(result.stdout.encode()) in (65_535, 65_536)


def test_program_or_input_that_is_too_large_is_not_run(session: Session) -> None:
    for arguments, word in ((("#" * 2_000_000,), "program"), (("pass", "x" * 2_000_000), "input")):
        result = session.run(*arguments)
        assert result.status is Status.REJECTED and f"The {word} was not taken" in result.note


def test_input_of_a_megabyte_arrives(session: Session) -> None:
    result = session.run("import sys; t = sys.stdin.read(); print(len(t), t[:3])", "é" * 500_000)
    assert result.stdout == "500000 ééé\n"


@pytest.mark.parametrize("field", ["timeout_s", "memory_mb", "tmp_files"])
def test_limit_that_is_not_positive_is_refused(field: str) -> None:
    with pytest.raises(EnvConfigError, match=field):
        Limits(**{field: 0})
    assert pickle.loads(pickle.dumps(Limits())) == Limits()


def test_closed_session_says_so(sandbox: Sandbox) -> None:
    session = sandbox.session()
    session.close()
    session.close()
    with pytest.raises(SandboxError, match="closed"):
        session.run("pass")
