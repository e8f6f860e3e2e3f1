"""Reads what Tune wrote about the failures of a trial."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
NO_TEXT = "no error text was stored"


def error_text(trial: Any) -> str:
    """Return the texts of all failures of a trial, without terminal colours."""
    local = Path(trial.error_file) if trial.error_file else None
    # The driver's own file is complete at once; the copy in the experiment's storage follows with the next sync.
    text = local.read_text() if local is not None and local.is_file() else trial.get_error()
    return _COLOURS.sub("", text or NO_TEXT)


def error_summary(trial: Any) -> str:
    """Return the last line of the last failure, e.g. ``RuntimeError: ...``."""
    return last_line(error_text(trial))


def last_line(text: str) -> str:
    """Return the last line of a traceback, which says what happened."""
    lines = [line for line in _COLOURS.sub("", text).splitlines() if line.strip()]
    return lines[-1].strip() if lines else NO_TEXT
