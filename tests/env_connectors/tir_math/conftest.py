"""A sandbox and environments for the tests, skipped, with the reason, where programs cannot be isolated; real problems."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from env_connectors import TextEnv, make_text_env
from env_connectors.errors import EnvConfigError
from env_connectors.tir_math.sandbox import Limits, Sandbox, SandboxUnavailableError, Session

_MATH_VARIABLE = "ARLARENA_MATH_DATA"
_MATH_DEFAULT = Path(__file__).resolve().parents[4] / "shared" / "data" / "math"
LIMITS = Limits(timeout_s=20.0, memory_mb=96, threads=16)


def _started(**options: object) -> Sandbox:
    """Start a sandbox or skip; a sandbox that is not isolated is a failure, not a reason to skip."""
    try:
        return Sandbox(LIMITS, **options).start()  # type: ignore[arg-type]
    except (SandboxUnavailableError, EnvConfigError) as error:
        pytest.skip(f"no sandbox here: {error}")


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """A sandbox with numpy and sympy, whose self-test has passed."""
    with _started() as started:
        assert started.report and all(finding.is_contained for finding in started.report)
        yield started


@pytest.fixture
def small_sandbox() -> Iterator[Sandbox]:
    """One of its own for a test that breaks it, without packages: it starts fast."""
    with _started(packages=()) as started:
        yield started


@pytest.fixture
def session(sandbox: Sandbox) -> Iterator[Session]:
    """A fresh session."""
    with sandbox.session() as opened:
        yield opened


def _parents() -> dict[int, int]:
    table = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                table[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
    return table


@pytest.fixture(scope="session")
def below() -> Callable[[int], list[int]]:
    """Return the process ids below a process, itself included, as the host sees them; parents first."""

    def found(pid: int) -> list[int]:
        table, tree = _parents(), [pid]
        for parent in tree:
            tree += sorted(child for child, its in table.items() if its == parent)
        return [member for member in tree if member in table]

    return found


@pytest.fixture(scope="session")
def gone() -> Callable[[list[int]], bool]:
    """Return whether all of these processes end within ten seconds."""

    def ended(pids: list[int]) -> bool:
        deadline = time.monotonic() + 10.0
        while any(_is_alive(pid) for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.02)
        return not any(_is_alive(pid) for pid in pids)

    return ended


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def make_tir(sandbox: Sandbox) -> Iterator[Callable[..., TextEnv]]:
    """Make environments with few tasks; they are closed at the end."""
    made: list[TextEnv] = []

    def make(**arguments: Any) -> TextEnv:
        sizes = {} if "data" in arguments else {"n_train": 32, "n_validation": 16, "n_test": 16}
        made.append(make_text_env("arlarena/TIRMath-v0", **{**sizes, **arguments}))
        return made[-1]

    yield make
    for env in made:
        env.close()


@pytest.fixture(scope="session")
def math_file() -> Callable[[str], Path]:
    """Return the path of a real problem file by name; none is part of the repository, so the test is skipped without it."""

    def find(name: str) -> Path:
        folder = Path(os.environ.get(_MATH_VARIABLE, _MATH_DEFAULT))
        if not (folder / name).is_file():
            pytest.skip(
                f"no real problems: {name} is not in {folder}; set {_MATH_VARIABLE} to the folder that holds it"
            )
        return folder / name

    return find
