"""The `sweep` command as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path


class Sweep:
    """One `sweep` command in a session of its own, its output in a file."""

    def __init__(self, study: Path, storage: Path, *arguments: str) -> None:
        self.log = storage / f"log.{len(list(storage.glob('log.*')))}"
        environment = {k: v for k, v in os.environ.items() if k != "MLFLOW_TRACKING_URI"}
        command = [sys.executable, "-m", "tune_experiments.cli", "sweep", str(study), f"run.storage_path={storage}"]
        self.process = subprocess.Popen(
            [*command, *arguments],
            stdout=self.log.open("w"),
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        )

    def wait_for(self, text: str, *, seconds: float = 240) -> None:
        """Wait until the output holds ``text``."""
        end = time.monotonic() + seconds
        while text not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < end, self.log.read_text()[-3000:]
            time.sleep(0.1)

    def result(self, *, seconds: float = 400) -> tuple[int, str]:
        """Wait for its end and return exit code and output."""
        return self.process.wait(seconds), self.log.read_text()

    def signal_all(self, number: int) -> None:
        """Send a signal to the command and all that it started."""
        os.killpg(self.process.pid, number)
