"""The processes below this one: what each is for, its CPU seconds, its memory."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import psutil

DRIVER, OTHER = "driver", "other"
ROLES = (
    ("ray::AgentEnvRunner", "runner"),
    ("ray::ServeReplica", "replica"),
    ("VLLM::EngineCore", "engine core"),
    ("ray::ARLArena", "trial"),
    ("ray::ServeController", "serve controller"),
    ("ray::WeightStoreActor", "weight store"),
    ("ray::IDLE", "idle worker"),
    ("ray::DashboardAgent", "dashboard agent"),
    ("ray::RuntimeEnvAgent", "runtime env agent"),
    ("ray::", "other actor"),
    ("/raylet/raylet", "raylet"),
    ("/gcs_server", "gcs"),
    ("dashboard/dashboard.py", "dashboard"),
    ("log_monitor.py", "log monitor"),
    ("autoscaler/_private/monitor.py", "autoscaler monitor"),
    ("multiprocessing.resource_tracker", "resource tracker"),
)
"""(part of the command line, role), the first that fits."""


def family(pid: int | None = None) -> list[psutil.Process]:
    """Return a process (this one by default) and all its descendants."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def role_of(process: psutil.Process) -> str:
    """Return what ``process`` is for; its title says so for Ray and vLLM."""
    if process.pid == psutil.Process().pid:
        return DRIVER
    try:
        command = " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
        return OTHER
    return next((role for part, role in ROLES if part in command), OTHER)


def cpu_seconds(process: psutil.Process) -> float:
    """Return user and system CPU seconds of ``process``, 0 when it has ended."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


class CpuWindow:
    """Context manager: wall seconds, and CPU seconds by role, of the processes that are there at the end.

    A process that ends inside the window is not counted, one that starts inside it is, from its start.
    """

    def __init__(self, members: Callable[[], Iterable[psutil.Process]]) -> None:
        """``members`` lists the processes; it is called at both ends of the window."""
        self._members = members
        self.wall_s = 0.0
        self.by_role: dict[str, float] = {}

    def __enter__(self) -> CpuWindow:
        self._begun = {process.pid: cpu_seconds(process) for process in self._members()}
        self._start, self._own_start = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *error: object) -> None:
        self.wall_s = time.perf_counter() - self._start
        own_s = time.process_time() - self._own_start  # before the look around, which costs CPU itself
        for process in self._members():
            role = role_of(process)
            used = own_s if role == DRIVER else cpu_seconds(process) - self._begun.get(process.pid, 0.0)
            self.by_role[role] = self.by_role.get(role, 0.0) + max(0.0, used)

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all roles."""
        return sum(self.by_role.values())


@dataclass(frozen=True)
class Memory:
    """One process at one moment. ``pss_mb`` is the resident size with shared pages divided by those who share them."""

    pid: int
    role: str
    rss_mb: float
    pss_mb: float | None


def memory_of(processes: Iterable[psutil.Process]) -> list[Memory]:
    """Return the memory of those processes that still run; PSS is None where the system does not tell it."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            rss = process.memory_info().rss / 1e6
            found.append(Memory(process.pid, role_of(process), rss, _pss_mb(process)))
    return found


def _pss_mb(process: psutil.Process) -> float | None:
    try:
        pss = getattr(process.memory_full_info(), "pss", None)
    except psutil.AccessDenied:
        return None
    return None if pss is None else pss / 1e6
