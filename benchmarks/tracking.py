"""Tracking: time of the driver's callbacks per iteration (MLflow, display, CPU meter), against the iteration itself."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any
from unittest.mock import patch

from benchmarks.report import bars, figure
from benchmarks.trial import SMALL, trained

TARGET = 0.03
HOOKS = ("on_trial_result", "on_checkpoint")


def run(*, rounds: int, small: bool = False) -> tuple[dict[str, Any], str]:
    """Return the result and its table: medians of ``rounds`` iterations after a first one that is left out."""
    overrides = [f"run.iterations={rounds + 1}", "run.checkpoint_frequency=1", "evaluation.evaluation_interval=null"]
    with timed_callbacks() as seconds:
        results, settings = trained([*overrides, *(SMALL if small else ())])
    iteration_s = median(result["time_this_iter_s"] for result in results[1:])
    parts = {name: median(values[1:]) for name, values in seconds.items()}
    share = sum(parts.values()) / iteration_s
    result = {
        "benchmark": "tracking",
        "figure": figure("callbacks : iteration, seconds", share, target=TARGET, at_least=False),
        "seconds": parts,
        "iteration_s": iteration_s,
        "calls": {name: len(values) for name, values in seconds.items()},
        "settings": settings,
    }
    text = f"  medians of {rounds} iterations of {iteration_s:.3g} s, each with a checkpoint:\n{bars(parts, unit='s')}"
    return result, text


@contextmanager
def timed_callbacks() -> Iterator[dict[str, list[float]]]:
    """Inside the block every call of a callback's hook adds its seconds to the list of its class and hook."""
    from tune_experiments.cpu_meter import CpuMeter
    from tune_experiments.progress import ProgressDisplay
    from tune_experiments.tracking import MLflowTracker

    seconds: dict[str, list[float]] = defaultdict(list)
    patches = [
        patch.object(cls, hook, _timed(getattr(cls, hook), seconds[f"{cls.__name__}.{hook}"]))
        for cls in (MLflowTracker, ProgressDisplay, CpuMeter)
        for hook in HOOKS
        if hook in vars(cls)
    ]
    for one in patches:
        one.start()
    try:
        yield seconds
    finally:
        for one in patches:
            one.stop()


def _timed(hook: Callable[..., None], seconds: list[float]) -> Callable[..., None]:
    def call(*args: Any, **kwargs: Any) -> None:
        began = time.perf_counter()
        hook(*args, **kwargs)
        seconds.append(time.perf_counter() - began)

    return call
