"""Stopwatch: wall and CPU seconds of this process, summed over calls or blocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Stopwatch:
    """Adds up what it times; ``take`` reads and resets it.

    CPU seconds are those of all threads of this process, so they hold on a machine that is busy with other work, where
    wall seconds do not.
    """

    def __init__(self) -> None:
        self.wall_s = 0.0
        self.cpu_s = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Time the block."""
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.wall_s += time.perf_counter() - wall
            self.cpu_s += time.process_time() - cpu

    def around(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return ``function`` with every call timed."""

        def timed(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.running():
                return function(*args, **kwargs)

        return timed

    def take(self) -> dict[str, float]:
        """Return ``wall_s`` and ``cpu_s`` and start again at zero."""
        values = {"wall_s": self.wall_s, "cpu_s": self.cpu_s}
        self.wall_s = self.cpu_s = 0.0
        return values
