"""What every benchmark runs on: the quick start's settings, a small fresh policy, a Ray cluster of its own."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from arlarena_rllib.errors import ConfigError
from tune_experiments.prepare import Start, base_model, warm_start
from tune_experiments.run_config import RunConfig, load_run_config, shipped_config

BRIEF_CLONING = ("warm_start.num_tasks=80", "warm_start.steps=80")
"""Enough that replies are well-formed and about as long as in training; a few CPU seconds."""


def quickstart_run(overrides: Sequence[str] = ()) -> RunConfig:
    """Return the quick start's run with ``section.key=value`` overrides."""
    return load_run_config(shipped_config("quickstart"), overrides)


def cloned_start(run: RunConfig, folder: Path) -> Start:
    """Build the small policy of ``run`` below ``folder`` and clone it as ``run.warm_start`` says."""
    return warm_start(run, base_model(run, folder), folder)


@contextmanager
def own_cluster(num_cpus: int) -> Iterator[None]:
    """Start a local Ray cluster with Serve, and end it afterwards; processes are counted below this one.

    Raises:
        ConfigError: the environment points to a cluster that runs already.
    """
    import ray

    from tune_experiments.cluster import start_cluster

    refuse_foreign_cluster()
    os.environ.setdefault("RAY_worker_niceness", "0")  # the limit runs in a process of normal priority, too
    try:
        start_cluster(num_cpus)
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        yield
    finally:
        ray.shutdown()


def refuse_foreign_cluster() -> None:
    """Raise ConfigError when RAY_ADDRESS or a Ray job would connect this process to another cluster."""
    for name in ("RAY_ADDRESS", "RAY_JOB_ID"):
        if os.environ.get(name):
            raise ConfigError(
                f"{name} is set, but a benchmark counts the processes of a cluster that it starts itself. Unset {name}."
            )
