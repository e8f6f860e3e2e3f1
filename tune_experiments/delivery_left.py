"""Delivers to MLflow what ended processes could not, from the files that they left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tune_experiments.delivery import Delivery
from tune_experiments.mlflow_store import public_uri
from tune_experiments.undelivered import FOLDER, Undelivered


@dataclass(frozen=True)
class Left:
    """What became of one file of an earlier process.

    Attributes:
        file: the journal; gone when nothing waits any more.
        experiment: in MLflow.
        tracking_uri: of the store, without credentials.
        delivered: writes that the store took now.
        refused: writes that the store will never take; they were dropped.
        waiting: writes that still wait.
        reason: why they do.
    """

    file: Path
    experiment: str
    tracking_uri: str
    delivered: int
    refused: int
    waiting: int
    reason: str

    def __str__(self) -> str:
        """Return one line for a person."""
        if not self.tracking_uri:
            return self.reason
        text = f"{self.delivered} writes delivered to {self.tracking_uri}, experiment {self.experiment!r}"
        if self.refused:
            text += f"; {self.refused} refused and dropped"
        return f"{text}; {self.waiting} still wait: {self.reason}" if self.waiting else text


def deliver_left(storage_dir: Path, tracking_uri: str, *, other_stores: bool = False) -> Iterator[Left]:
    """Deliver what ended processes left in ``storage_dir``, and yield what became of each file.

    Args:
        storage_dir: as it was given to :meth:`Delivery.to`.
        tracking_uri: of the store; the journal knows it without credentials only.
        other_stores: also what is for other stores.
    """
    for file in sorted((storage_dir.absolute() / FOLDER).glob("*.jsonl"), key=_age):
        try:
            journal = Undelivered.left(file)
        except (OSError, ValueError) as error:
            yield Left(file, "", "", 0, 0, 0, str(error))
            continue
        if journal is None:
            continue
        is_this = journal.tracking_uri == public_uri(tracking_uri)
        if is_this or other_stores:
            delivery = Delivery(tracking_uri if is_this else journal.tracking_uri, journal)
            try:
                count, reason = delivery.deliver(wholly=True), ""
            except (LookupError, TypeError, ValueError, AttributeError) as error:  # somebody has changed a line
                count, reason = 0, f"a write in the file cannot be read ({error!r})."
            yield Left(
                file,
                journal.experiment,
                journal.tracking_uri,
                count,
                delivery.refused,
                len(journal),
                reason or delivery.reason,
            )
        journal.close()


def _age(file: Path) -> float:
    return file.lstat().st_mtime  # of a link that leads nowhere too
