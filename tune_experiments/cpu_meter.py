"""CPU time of a run, which its control may spend as well."""

from __future__ import annotations

import math
from typing import Any

import psutil
from ray.tune import Callback


class CpuMeter(Callback):
    """CPU seconds of all processes of the run during training; start-up is left out."""

    def __init__(self) -> None:
        self._readings: list[tuple[int, float]] = []

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Take a reading after each iteration."""
        self._readings.append((int(result["training_iteration"]), tree_cpu_seconds()))

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all iterations; that of the first, which includes the start, is taken as the others' mean."""
        if len(self._readings) < 2:
            return math.nan
        (first, begun), (last, ended) = self._readings[0], self._readings[-1]
        return (ended - begun) * last / (last - first)


def tree_cpu_seconds() -> float:
    """Return user and system CPU seconds of this process and all its descendants that are alive."""
    me = psutil.Process()
    total = 0.0
    for process in [me, *me.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total
