"""The journal of what an MLflow store did not take: one line of JSON per write, held by one process at a time."""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

FOLDER = "mlflow_undelivered"
"""Below the storage path; a file is there only while something waits."""


@dataclass(frozen=True)
class Write:
    """One write to one run.

    Attributes:
        op: what :class:`~tune_experiments.delivery.Delivery` does with it.
        run: MLflow's id, or a local one.
        at_ms: when it happened.
        values: arguments of ``op``; JSON.
        number: unique within a journal.
    """

    op: str
    run: str
    at_ms: int
    values: dict[str, Any] = field(default_factory=dict)
    number: int = 0


class Undelivered:
    """What waits for one MLflow experiment, in memory and on disk.

    The file is made with the first write that waits and removed with the last; every line is on the disk before the
    next thing happens. Lines are only ever appended: a write, or the numbers of those that were delivered.

    Args:
        file: JSON lines.
        tracking_uri: of the store, without credentials.
        experiment: in that store.
    """

    def __init__(self, file: Path, tracking_uri: str, experiment: str) -> None:
        self.file, self.tracking_uri, self.experiment = file, tracking_uri, experiment
        self.runs: dict[str, str] = {}
        """Local id -> MLflow's id."""
        self._waiting: dict[int, Write] = {}
        self._next = 0
        self._out: FileIO | None = None
        self._unwritten = b""

    @classmethod
    def left(cls, file: Path) -> Undelivered | None:
        """Return what an earlier process left, now held by this one; None when another process holds it.

        Raises:
            ValueError: the file is not such a journal.
        """
        out = file.open("r+b", buffering=0)
        try:
            fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            out.close()
            return None
        try:
            text = out.read()
            whole = text[: text.rfind(b"\n") + 1]  # a kill may have cut off the last line
            lines = [json.loads(line) for line in whole.splitlines()]
            if not lines:  # another process is about to begin it, or was killed there
                out.close()
                return None
            journal = cls(file, lines[0]["tracking_uri"], lines[0]["experiment"])
            if not isinstance(journal.tracking_uri, str) or not isinstance(journal.experiment, str):
                raise TypeError(f"tracking_uri and experiment must be texts, got {lines[0]}")
            for line in lines[1:]:
                journal._take(line)
        except (ValueError, LookupError, TypeError) as error:
            out.close()
            raise ValueError(f"{file} cannot be read: {error}") from error
        out.truncate(len(whole))
        journal._out = out
        return journal

    @property
    def waiting(self) -> list[Write]:
        """The writes that wait, oldest first."""
        return list(self._waiting.values())

    @property
    def is_on_disk(self) -> bool:
        """Whether the file has all that waits."""
        return not self._unwritten

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, write: Write) -> None:
        """Keep a write."""
        line = asdict(write) | {"number": self._next}
        self._take(line)
        self._append(line)

    def delivered(self, numbers: Collection[int], runs: Mapping[str, str]) -> None:
        """Forget writes that the store has; ``runs`` are the local ids that have an id of MLflow by now."""
        line = {"delivered": sorted(numbers), "runs": dict(runs)}
        self._take(line)
        if self._waiting:
            self._append(line)
        else:
            self.discard()

    def discard(self) -> None:
        """Forget everything and remove the file."""
        self._waiting.clear()
        self._unwritten = b""
        if self._out is not None:
            self._out.truncate(0)  # whoever opened it before it goes finds nothing
            self.file.unlink(missing_ok=True)
            self.close()

    def close(self) -> None:
        """Let another process have the file."""
        if self._out is not None:
            self._out.close()
            self._out = None

    # --- the file ------------------------------------------------------------------------------------------------

    def _take(self, line: Mapping[str, Any]) -> None:
        if "delivered" in line:
            self.runs.update(line["runs"])
            for number in line["delivered"]:
                self._waiting.pop(number, None)
        else:
            write = Write(**line)
            self._waiting[write.number] = write
            self._next = write.number + 1

    def _append(self, line: Mapping[str, Any]) -> None:
        """Write one line, and before it those that the file did not take."""
        was_whole = not self._unwritten
        self._unwritten += json.dumps(line).encode() + b"\n"
        try:
            out = self._opened()
            end = out.seek(0, os.SEEK_END)
            try:
                if out.write(self._unwritten) != len(self._unwritten):
                    raise OSError("No space left on device")
                os.fsync(out.fileno())
            except OSError:
                out.truncate(end)
                raise
            self._unwritten = b""
        except OSError as error:  # a full disk
            if was_whole:
                logger.warning("%s cannot be written: %s What waits for MLflow is in memory only.", self.file, error)

    def _opened(self) -> FileIO:
        if self._out is None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self._out = self.file.open("w+b", buffering=0)
            fcntl.flock(self._out, fcntl.LOCK_EX)
            header = {"tracking_uri": self.tracking_uri, "experiment": self.experiment}
            self._unwritten = json.dumps(header).encode() + b"\n" + self._unwritten
        return self._out
