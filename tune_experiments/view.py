"""`arlarena view`: gathers the episodes that a run has written down and makes one page of them."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arlarena_rllib.errors import ConfigError
from arlarena_rllib.trajectory_recorder import FOLDER
from tune_experiments.view_page import view_page

PAGE = "trajectories.html"
MOST_CHARS = 64 * 2**20
"""Size of the records on a page, as JSON; of more than that the newest are taken."""


@dataclass(frozen=True)
class Viewed:
    """The page that was written, and what a person should know of it."""

    page: Path
    num_shown: int
    notes: list[str]


@dataclass
class _Found:
    """Records, newest first, and what was wrong with others."""

    records: list[dict[str, Any]] = field(default_factory=list)
    chars: int = 0
    left_out: int = 0
    unreadable: list[str] = field(default_factory=list)


def view(folder: Path, out: Path | None = None, *, most_chars: int = MOST_CHARS) -> Viewed:
    """Write the page of all episodes below a run's folder.

    Args:
        folder: Of a run, a trial or a study.
        out: File to write; None = ``trajectories.html`` in the folder.
        most_chars: Size of the records on the page, as JSON.

    Raises:
        ConfigError: there is no such folder, nothing is written down in it, or the page cannot be written.
    """
    if not os.path.isdir(folder):  # Path.is_dir raises when the name is too long
        raise ConfigError(f"RUN={str(folder)!r} is not a directory. Give the folder of a run.")
    files = sorted(folder.glob(f"**/{FOLDER}/iteration_*.jsonl"), key=lambda file: (file.name, str(file)), reverse=True)
    found = _Found()
    for file in files:
        _read(file, folder, found, most_chars)
    if not found.records:
        raise ConfigError(
            f"no episodes are written down in {folder}{_and_unreadable(found)}. A run with reporting.record_trajectories=8 "
            "writes 8 of each iteration."
        )
    notes = _notes(found)
    page = out if out is not None else folder / PAGE
    _write(page, view_page(folder.resolve().name, _facts(found.records), found.records[::-1], notes))
    return Viewed(page, len(found.records), notes)


def _read(file: Path, folder: Path, found: _Found, most_chars: int) -> None:
    """Add the records of a file; a line that is none is noted, a file for which there is no room is counted."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        found.unreadable.append(f"{file}: {error.strerror or error}")
        return
    trial = str(file.parent.parent.relative_to(folder))
    for number, line in reversed(list(enumerate(lines, start=1))):
        if not line.strip():
            continue
        if found.left_out or found.chars + len(line) > most_chars:
            found.left_out += 1
            continue
        try:
            record = json.loads(line, parse_float=_finite, parse_constant=_finite)
        except (ValueError, RecursionError):
            record = None
        if not _is_record(record):
            found.unreadable.append(f"{file}, line {number}")
            continue
        found.chars += len(line)
        found.records.append({**record, "trial": trial})


def _finite(text: str) -> float | None:
    """Return a number that a browser reads too: it refuses all of the data for one NaN or Infinity."""
    value = float(text)
    return value if math.isfinite(value) else None


def _is_record(record: Any) -> bool:
    turns = record.get("turns") if isinstance(record, dict) else None
    return isinstance(turns, list) and all(isinstance(turn, dict) for turn in turns)


def _notes(found: _Found) -> list[str]:
    notes = []
    if found.left_out:
        size = f"{found.chars / 2**20:.0f} MiB" if found.chars >= 2**20 else f"{found.chars} characters"
        notes.append(f"{found.left_out} older episodes are left out: the newest {len(found.records)} fill {size}.")
    if found.unreadable:
        more = f" and {len(found.unreadable) - 3} more" if len(found.unreadable) > 3 else ""
        notes.append(f"{len(found.unreadable)} could not be read: {'; '.join(found.unreadable[:3])}{more}.")
    return notes


def _and_unreadable(found: _Found) -> str:
    return f" ({' '.join(_notes(found))})" if found.unreadable or found.left_out else ""


def _facts(records: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the few lines on top of the page."""
    iterations = [r["iteration"] for r in records if isinstance(r.get("iteration"), int)]
    won = sum(bool(r.get("success")) for r in records)
    facts = [(name, ", ".join(sorted({str(r[name]) for r in records if name in r}))) for name in ("env", "method")]
    facts.append(("episodes", f"{len(records)}, {won} won"))
    if iterations:
        facts.append(("iterations", f"{min(iterations)} to {max(iterations)}"))
    return [(name, value) for name, value in facts if value]


def _write(page: Path, html: str) -> None:
    page = Path(os.path.realpath(page))
    half = page.with_name(f"{page.name}.half")
    try:
        if os.path.lexists(page) and not page.is_file():  # a device, say: a file would take its place
            raise OSError(errno.EINVAL, "it is no ordinary file")
        half.write_text(html, encoding="utf-8", errors="replace")  # half of a surrogate pair, say
        half.replace(page)
    except OSError as error:
        with suppress(OSError):
            half.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise ConfigError(f"the page cannot be written to {page}: {error.strerror or error}") from error
