"""What Ray logs about a command: shorter where it repeats itself, nothing where the command itself tells more."""

from __future__ import annotations

import logging

_TOLD_BY_THE_COMMAND = {
    "ray.tune.tune": ("Experiment has been interrupted", "Wrote the latest version of all result files"),
    "ray.tune.analysis.experiment_analysis": ("Failed to fetch metrics",),
    "ray.tune.logger.tensorboardx": ("You are trying to log an invalid value",),
}
"""Logger -> how messages begin: how to resume with Tune's classes, where results are, a trial that ended before its first
result, and the notices of an iteration, which are texts."""
_ABOUT_SYNC = ("ray.train._internal.syncer", "ray.tune.execution.experiment_state")


class ShortSyncErrors(logging.Filter):
    """Tells once, in one line, that Tune's notes cannot be written; Ray does so every second with a traceback."""

    _last = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten the record; False when it says what the last one said."""
        lines = [line for line in record.getMessage().splitlines() if line.strip()]
        if len(lines) > 1:
            record.msg, record.args = f"{lines[0]} {lines[-1]}", ()
        record.exc_info = None
        is_new = record.msg != self._last
        self._last = str(record.msg)
        return is_new


class Unneeded(logging.Filter):
    """Leaves out messages that begin in one of these ways."""

    def __init__(self, *beginnings: str) -> None:
        super().__init__()
        self._beginnings = beginnings

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether the record is told."""
        return not record.getMessage().startswith(self._beginnings)


def shorten_ray_logs() -> None:
    """Put the filters in place, once per process."""
    wanted: dict[str, logging.Filter] = {name: ShortSyncErrors() for name in _ABOUT_SYNC}
    wanted |= {name: Unneeded(*beginnings) for name, beginnings in _TOLD_BY_THE_COMMAND.items()}
    for name, of_logger in wanted.items():
        logger = logging.getLogger(name)
        if not any(isinstance(known, type(of_logger)) for known in logger.filters):
            logger.addFilter(of_logger)
