"""Ending a run in good order: after its iterations, or after the one in which somebody asked for it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from ray.tune import Stopper


class StopAfter(Stopper):
    """Ends the trial after the number of iterations in ``file``; Tune restores a stopper as it was, but not the file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Say whether this trial has done enough."""
        return result["training_iteration"] >= int(self._file.read_text())

    def stop_all(self) -> bool:
        """Never end the experiment as a whole; the trial ends with its checkpoint."""
        return False


class StopRequest:
    """Set by the first Ctrl-C or SIGTERM; the stopper reads it through a file."""

    def __init__(self) -> None:
        self.requested = False
        self._file: Path | None = None

    def limit_file(self, folder: Path, iterations: int) -> Path:
        """Return the file that tells the stopper when to end."""
        self._file = folder / "stop_after"
        self._file.write_text("0" if self.requested else str(iterations))
        return self._file

    def request(self) -> None:
        """Ask for the end after this iteration."""
        self.requested = True
        if self._file is not None:
            self._file.write_text("0")


@contextmanager
def graceful_stop() -> Iterator[StopRequest]:
    """First Ctrl-C or SIGTERM: end after this iteration with a checkpoint; second: end at once."""
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        print("\nstopping after this iteration, with a checkpoint (again to stop at once)", flush=True)
        stop.request()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
