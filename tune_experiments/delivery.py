"""Delivery: the writes of a tracker reach MLflow in their order, at once or as soon as the store answers again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from tune_experiments.mlflow_store import (
    PARENT_TAG,
    STEP_METRIC,
    TRIAL_TAG,
    RunStore,
    StoreAwayError,
    StoreRefusedError,
    TrackingError,
    public_uri,
)
from tune_experiments.undelivered import FOLDER, Undelivered, Write

logger = logging.getLogger(__name__)

T = TypeVar("T")
LOCAL_TAG, LOCAL = "local_run_id", "local-"
PATIENCE_S = 5.0
"""Most time that a call during the training spends on what waits, when the store answers."""
SLOW_S, PAUSE_FACTOR = 1.0, 10.0
"""After a failure that took longer than SLOW_S nothing is tried for PAUSE_FACTOR times as long."""
ARTIFACTS = ("text", "path")


class Delivery:
    """Writes to the runs of one experiment; none of them raises because the store is away.

    The order of a run's writes stays: what comes later waits behind what waits. Artifacts have a queue of their own,
    as a store may take metrics and have no place for files. A run that cannot be made has a local id (also its tag
    ``local_run_id``) until it is made. What is delivered twice has its effect once: runs are looked for before they
    are made, metric points carry their own time, and an iteration that the run has is left out.

    Args:
        tracking_uri: of the store.
        journal: keeps what waits.
    """

    def __init__(self, tracking_uri: str, journal: Undelivered) -> None:
        self.tracking_uri, self._journal = tracking_uri, journal
        self._opened: RunStore | None = None
        self._pause_until = 0.0
        self._known_steps: dict[str, dict[int, int]] | None = None
        self.reason = ""
        """Why the last write that failed did."""
        self.refused = 0
        """Writes that the store will never take; they were dropped."""

    @classmethod
    def to(cls, tracking_uri: str, experiment: str, storage_dir: Path, name: str) -> Delivery:
        """Return a delivery whose journal goes to ``storage_dir``; ``name`` begins the name of its file."""
        safe = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)[:100]
        file = storage_dir.absolute() / FOLDER / f"{safe}-{uuid4().hex[:8]}.jsonl"
        return cls(tracking_uri, Undelivered(file, public_uri(tracking_uri), experiment))

    def store(self) -> RunStore:
        """Return the open store.

        Raises:
            TrackingError: it cannot be opened.
        """
        if self._opened is None:
            self._opened = RunStore(self.tracking_uri, self._journal.experiment)
        return self._opened

    @property
    def file(self) -> Path:
        """Where that which waits is written down."""
        return self._journal.file

    def __len__(self) -> int:
        return len(self._journal)

    def real(self, run: str) -> str:
        """Return MLflow's id of a run; the local one while there is no other."""
        return self._journal.runs.get(run, run)

    def ask(self, question: Callable[[RunStore], T], otherwise: T) -> T:
        """Return the store's answer, or ``otherwise`` while it is away."""
        began = time.monotonic()
        if began < self._pause_until:
            return otherwise
        try:
            return question(self.store())
        except TrackingError as error:
            self._failed(error, began)
            return otherwise

    # --- writes --------------------------------------------------------------------------------------------------

    def create_run(self, name: str, tags: Mapping[str, str], *, find_name: bool = False) -> str:
        """Return the id of a new run, or of the one that it is: same parent and trial, or same name if asked for."""
        local = f"{LOCAL}{uuid4().hex}"
        self._send("create", local, name=name, tags={**tags, LOCAL_TAG: local}, find_name=find_name)
        return self.real(local)

    def set_status(self, run: str, status: str) -> None:
        """Reopen the run (RUNNING) or close it (FINISHED, FAILED, KILLED)."""
        self._send("status", run, status=status)

    def log_metrics(self, run: str, points: Sequence[tuple[str, float, int]]) -> None:
        """Write ``(name, value, step)`` points."""
        if points:
            self._send("metrics", run, points=list(points))

    def log_params(self, run: str, params: Mapping[str, str]) -> None:
        """Write parameters that the run does not have."""
        self._send("params", run, params=dict(params))

    def set_tags(self, run: str, tags: Mapping[str, Any]) -> None:
        """Set tags."""
        self._send("tags", run, tags={key: str(value) for key, value in tags.items()})

    def log_text(self, run: str, text: str, name: str) -> None:
        """Store ``text`` as the artifact ``name``."""
        self._send("text", run, text=text, name=name)

    def log_path(self, run: str, path: Path, folder: str | None = None) -> None:
        """Store a file or folder as artifacts; what waits is its path."""
        self._send("path", run, path=str(path.absolute()), folder=folder)

    def _send(self, op: str, run: str, **values: Any) -> None:
        write = Write(op, run, int(time.time() * 1000), values)
        if len(self):
            self._journal.add(write)
            self.deliver()
            if not len(self):
                logger.warning("MLflow at %s answers again; all that waited is delivered.", self._name)
        elif not self._attempt(write):
            self._journal.add(write)
            logger.warning(
                "MLflow at %s does not take it: %s The training goes on; what waits is kept in %s and delivered as soon as "
                "the store answers.", self._name, self.reason, self.file,
            )  # fmt: skip

    # --- what waits ----------------------------------------------------------------------------------------------

    def deliver(self, *, wholly: bool = False) -> int:
        """Send what waits and return how many writes the store took.

        Args:
            wholly: also right after a failure, and however long it takes.
        """
        if wholly:
            self._pause_until = 0.0
        began, done, refused = time.monotonic(), [], self.refused
        stuck: set[tuple[str, bool]] = set()
        self._known_steps = {}
        for write in self._journal.waiting:
            queue = (write.run, write.op in ARTIFACTS)
            if queue in stuck:
                continue
            if self._attempt(write):
                done.append(write.number)
            else:
                stuck.add(queue)
            if not wholly and time.monotonic() - began > PATIENCE_S:
                break
        self._known_steps = None
        if done:
            self._journal.delivered(done, self._journal.runs)
        return len(done) - (self.refused - refused)

    def end(self) -> None:
        """Send what waits a last time; say where the rest is."""
        self.deliver(wholly=True)
        if len(self):
            where = f"{self.file}; the next run with this storage path delivers them, or `arlarena deliver"
            logger.warning(
                "%d writes could not be delivered to MLflow at %s: %s They are in %s.",
                len(self), self._name, self.reason,
                f"{where} {self.file.parents[1]}`" if self._journal.is_on_disk else "memory only and end here",
            )  # fmt: skip

    def discard(self) -> None:
        """Forget what waits."""
        self._journal.discard()

    # --- one write -----------------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return public_uri(self.tracking_uri)

    def _attempt(self, write: Write) -> bool:
        """Say whether a write is done with: the store took it, or will never take it."""
        began = time.monotonic()
        if began < self._pause_until:
            return False
        try:
            self._apply(write)
        except StoreRefusedError as error:
            self.refused += 1
            logger.warning("MLflow refused %s of run %s: %s It is dropped.", write.op, self.real(write.run), error)
        except TrackingError as error:
            self._failed(error, began)
            return False
        return True

    def _failed(self, error: TrackingError, began: float) -> None:
        self.reason = str(error)
        now = time.monotonic()
        if now - began > SLOW_S:
            self._pause_until = now + PAUSE_FACTOR * (now - began)

    def _apply(self, write: Write) -> None:
        store, run, values = self.store(), self.real(write.run), write.values
        if write.op == "create":
            self._journal.runs[write.run] = self._found_or_made(store, write)
            return
        _check_made(run)
        match write.op:
            case "status":
                store.set_status(run, values["status"], write.at_ms)
            case "metrics":
                if not self._has_iteration(store, run, write):
                    store.log_metrics(run, values["points"], write.at_ms)
            case "params":
                store.log_params(run, values["params"])
            case "tags":
                store.set_tags(run, values["tags"])
            case "text":
                store.log_text(run, values["text"], values["name"])
            case "path":
                store.log_path(run, Path(values["path"]), values["folder"])
            case _:
                raise StoreRefusedError(f"no such write: {write.op!r}.")

    def _found_or_made(self, store: RunStore, write: Write) -> str:
        """Return the run of a `create`, which an earlier attempt, or another process, may have made."""
        name, tags = write.values["name"], dict(write.values["tags"])
        if found := store.find_tagged(LOCAL_TAG, write.run):
            return found
        if PARENT_TAG in tags:
            tags[PARENT_TAG] = self.real(tags[PARENT_TAG])
            _check_made(tags[PARENT_TAG])
            found = store.find_child(tags[PARENT_TAG], tags[TRIAL_TAG])
        elif write.values["find_name"]:
            found = store.find_parent(name)
        return found or store.create_run(name, tags, write.at_ms)

    def _has_iteration(self, store: RunStore, run: str, write: Write) -> bool:
        """Say whether the run has the iteration of a late write from somebody else: it was done again meanwhile."""
        step = next((step for name, _, step in write.values["points"] if name == STEP_METRIC), None)
        if self._known_steps is None or step is None:
            return False
        if run not in self._known_steps:
            self._known_steps[run] = store.steps(run)
        return self._known_steps[run].get(step, write.at_ms) != write.at_ms


def _check_made(run: str) -> None:
    if run.startswith(LOCAL):
        raise StoreAwayError(f"run {run} is not made yet.")
