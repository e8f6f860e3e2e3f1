"""A short training run through Ray Tune, as `arlarena train` does it, in a folder of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.setting import BRIEF_CLONING, quickstart_run, refuse_foreign_cluster

SMALL = (
    "env_runners.groups_per_iteration=2",
    "env_runners.group_size=4",
    "evaluation.evaluation_num_tasks=4",
    "model.corpus_tasks=40",
)


def trained(overrides: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Train with the quick start's settings and ``overrides``; return the results of the iterations and the settings.

    The Ray cluster that the run starts is ended, its folder removed.
    """
    import ray

    from tune_experiments.train import train

    refuse_foreign_cluster()
    with tempfile.TemporaryDirectory(prefix="arlarena-bench-") as folder:
        run = quickstart_run([*BRIEF_CLONING, f"run.storage_path={Path(folder).resolve()}", *overrides])
        try:
            outcome = train(run, report=False)
        finally:
            ray.shutdown()
        return outcome.results, run.algorithm(outcome.start.path).resolved()
