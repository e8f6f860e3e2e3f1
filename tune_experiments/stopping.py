"""Ending a run in good order: after its iterations, or after the one in which somebody asked for it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from ray.tune import Stopper

SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
    """The first Ctrl-C or SIGTERM: ends what goes on in good order where that is possible, else at once."""

    def __init__(self) -> None:
        self.requested = False
        self._end_gently: Callable[[], None] | None = None

    def listen(self) -> None:
        """Take the signals; to be called again after Ray has started, which takes SIGTERM for itself."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                signal.signal(number, self.handle)

    @contextmanager
    def gently(self, end: Callable[[], None]) -> Iterator[None]:
        """Inside the block the first signal calls ``end`` instead of raising."""
        self._end_gently = end
        try:
            yield
        finally:
            self._end_gently = None

    @contextmanager
    def after_iteration(self, folder: Path, iterations: int) -> Iterator[Path]:
        """Inside the block a signal ends training after its iteration; yields the file that tells the stopper when."""
        file = folder / "stop_after"
        file.write_text(str(iterations))

        def end() -> None:
            print("\nstopping after this iteration, with a checkpoint (again to stop at once)", flush=True)
            file.write_text("0")

        with self.gently(end):
            yield file

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal.

        Raises:
            KeyboardInterrupt: nothing is going on that can end gently, or it is the second signal.
        """
        if self._end_gently is None or self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self._end_gently()


@contextmanager
def graceful_stop() -> Iterator[StopRequest]:
    """Let Ctrl-C and SIGTERM end a run in good order: in training after the iteration, elsewhere at once."""
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"
    before = {number: signal.getsignal(number) for number in SIGNALS}
    stop.listen()
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
