"""A tiny Tune experiment: counts iterations, writes checkpoints, fails or is slow when told. Also a driver to be killed."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from ray import cloudpickle, tune

from tune_experiments.progress import ProgressDisplay
from tune_experiments.tracking import MLflowTracker

cloudpickle.register_pickle_by_value(sys.modules[__name__])
RUN = "trials"


class Counter(tune.Trainable):
    """Counts to ``iterations``; raises in iteration ``fail_at`` while the file ``broken`` exists."""

    def setup(self, config: dict[str, Any]) -> None:
        """Start from zero."""
        self.count = 0

    def step(self) -> dict[str, Any]:
        """Count one further and report it as the algorithm reports: nested, numpy scalars, some NaN."""
        time.sleep(self.config["sleep_s"])
        self.count += 1
        if self.count == self.config["fail_at"] and Path(self.config["broken"]).exists():
            raise RuntimeError(f"broken on purpose in iteration {self.count}")
        return {
            "env_runners": {"success_rate": np.float32(self.count / 10), "note": "text"},
            "learners": {"default_policy": {"policy_loss": np.float64(-self.count), "bad@name": 1.0}},
            "evaluation": {"env_runners": {"sampled": float("nan")}},
            "done": self.count >= self.config["iterations"],
        }

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the count."""
        Path(checkpoint_dir, "count").write_text(str(self.count))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        """Read the count."""
        self.count = int(Path(checkpoint_dir, "count").read_text())


def counter_tuner(
    storage: Path, callbacks: list[tune.Callback], *, fail_at: Any = 0, iterations: int = 4, sleep_s: float = 0.0
) -> tune.Tuner:
    """Return the experiment in ``storage/trials``; ``fail_at`` may be a grid; a checkpoint every two iterations."""
    broken = str(storage / "broken")
    return tune.Tuner(
        Counter,
        param_space={"fail_at": fail_at, "iterations": iterations, "sleep_s": sleep_s, "broken": broken},
        run_config=tune.RunConfig(
            name=RUN,
            storage_path=str(storage),
            callbacks=callbacks,
            verbose=0,
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=2, checkpoint_at_end=True),
        ),
    )


def main(storage: str, mlflow_dir: str, experiment: str) -> None:
    """Drive one slow trial of eight iterations on the running cluster, with plain progress lines."""
    import ray

    ray.init(log_to_driver=False, logging_level="ERROR")
    tracker = MLflowTracker(experiment, storage_dir=mlflow_dir)
    counter_tuner(Path(storage), [tracker, ProgressDisplay(8)], iterations=8, sleep_s=0.5).fit()


if __name__ == "__main__":
    main(*sys.argv[1:])
