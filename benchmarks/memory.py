"""Memory: what every process of a small served run holds at the moment when all of them together hold most."""

from __future__ import annotations

import os
import threading
from dataclasses import asdict
from typing import Any

from benchmarks.processes import Memory, family, memory_of
from benchmarks.report import figure, table
from benchmarks.trial import SMALL, trained

LIMIT_GB = 8.0
SAMPLE_EVERY_S = 1.0


class MemoryWatch:
    """Reads the memory of this process and its descendants every second; a context manager."""

    def __init__(self) -> None:
        self.peak: list[Memory] = []
        self.num_samples = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory-watch", daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(SAMPLE_EVERY_S):
            now = memory_of(family(os.getpid()))
            self.num_samples += 1
            if total_mb(now) > total_mb(self.peak):
                self.peak = now


def total_mb(processes: list[Memory]) -> float:
    """Return the sum of PSS, or of RSS (which counts shared pages several times) where PSS cannot be read."""
    return sum(p.rss_mb if p.pss_mb is None else p.pss_mb for p in processes)


def run(*, rounds: int, small: bool = False) -> tuple[dict[str, Any], str]:
    """Return the result and its table, of ``rounds`` iterations with evaluation."""
    with MemoryWatch() as watch:
        _, settings = trained(
            [f"run.iterations={rounds}", "evaluation.evaluation_interval=1", *(SMALL if small else ())]
        )
    peak = sorted(watch.peak, key=lambda p: p.pss_mb or p.rss_mb, reverse=True)
    total_gb = total_mb(peak) / 1000
    result = {
        "benchmark": "memory",
        "figure": figure("GB of all processes at the peak", total_gb, target=LIMIT_GB, at_least=False),
        "total_pss_gb": total_gb if all(p.pss_mb is not None for p in peak) else None,
        "total_rss_gb": sum(p.rss_mb for p in peak) / 1000,
        "share_of_limit": total_gb / LIMIT_GB,
        "processes": [asdict(process) for process in peak],
        "num_samples": watch.num_samples,
        "settings": settings,
    }
    return result, _text(peak, total_gb)


def _text(peak: list[Memory], total_gb: float) -> str:
    rows: list[list[Any]] = [[p.role, p.rss_mb, "-" if p.pss_mb is None else p.pss_mb] for p in peak]
    rows.append(["sum", sum(p.rss_mb for p in peak), total_gb * 1000])
    return table(["process", "RSS MB", "PSS MB"], rows)
