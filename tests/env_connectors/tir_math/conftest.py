"""A sandbox for the tests; they are skipped, with the reason, where programs cannot be isolated."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from env_connectors.errors import EnvConfigError
from env_connectors.tir_math.sandbox import Limits, Sandbox, SandboxUnavailableError, Session

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
