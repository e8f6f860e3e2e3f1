"""How long calls take: small programs on the standard library, numpy and sympy, in one session and in many at once."""

from __future__ import annotations

import dataclasses
import os
import statistics
import subprocess
import sys
import threading
import time

from env_connectors.tir_math.sandbox.result import Status
from env_connectors.tir_math.sandbox.sandbox import Sandbox

PROGRAMS = {
    "stdlib": ("from math import comb\nprint(sum(comb(20, k) for k in range(21)))", "1048576\n"),
    "numpy": ("import numpy as np\nprint(np.linalg.det(np.array([[2.0, 1.0], [1.0, 3.0]])).round(6))", "5.0\n"),
    "sympy": ("from sympy import symbols, solve\nx = symbols('x')\nprint(solve(x**2 - 5*x + 6, x))", "[2, 3]\n"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Timing:
    """Of one program at one number of sessions."""

    program: str
    sessions: str
    calls: int
    calls_per_s: float
    best_ms: float
    p50_ms: float
    p95_ms: float
    cpu_ms: float
    """CPU time of the process of a call, median."""


def measure(sandbox: Sandbox, program: str, sessions: int, calls: int) -> Timing:
    """Run `calls` calls in each of `sessions` sessions at once.

    Raises:
        RuntimeError: a call gave a wrong answer.
    """
    code, answer = PROGRAMS[program]
    walls: list[float] = []
    cpus: list[float] = []
    wrong: list[str] = []
    opened = [sandbox.session() for _ in range(sessions)]

    def work(number: int) -> None:
        for _ in range(calls):
            began = time.perf_counter()
            result = opened[number].run(code, timeout_s=60.0)
            walls.append(1e3 * (time.perf_counter() - began))
            cpus.append(1e3 * result.cpu_seconds)
            if result.status is not Status.OK or result.stdout != answer:
                wrong.append(result.text)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(sessions)]
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - began
    for session in opened:
        session.close()
    if wrong or len(walls) != sessions * calls:
        raise RuntimeError(f"{program}: {len(wrong)} wrong answers of {len(walls)}, such as {wrong[:1]}")
    return _timing(program, f"{sessions}", seconds, walls, cpus)


def measure_plain(program: str, calls: int) -> Timing:
    """Run a program in new interpreters without a sandbox, one after the other, to compare with."""
    walls: list[float] = []
    cpus: list[float] = []
    began = time.perf_counter()
    for _ in range(calls):
        start, before = time.perf_counter(), os.times()
        subprocess.run([sys.executable, "-c", PROGRAMS[program][0]], check=True, stdout=subprocess.DEVNULL)
        after = os.times()
        walls.append(1e3 * (time.perf_counter() - start))
        own = (after.children_user - before.children_user) + (after.children_system - before.children_system)
        cpus.append(1e3 * own)
    return _timing(program, "new interpreters", time.perf_counter() - began, walls, cpus)


def _timing(program: str, sessions: str, seconds: float, walls: list[float], cpus: list[float]) -> Timing:
    p95 = statistics.quantiles(walls, n=20)[-1]
    middle = statistics.median
    return Timing(program, sessions, len(walls), len(walls) / seconds, min(walls), middle(walls), p95, middle(cpus))
