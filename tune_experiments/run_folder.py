"""The folder of a run: one run at a time, never over something else, an older run of the same name moved aside."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from arlarena_rllib.errors import CheckpointError, ConfigError
from tune_experiments.progress import ProgressDisplay

_OF_A_RUN = ("config.yaml", "trials", "base", "start")
"""What tells a run's folder from any other; the first of them is there within seconds."""

_OF_THE_STORAGE = ("mlflow.db", "mlflow_artifacts", "mlflow_undelivered")
"""Beside the folders of the runs."""
_LONGEST = 200
"""Of a name, in bytes: a file system has 255, and the lock's name and those of earlier runs are longer."""


def check_name(name: str) -> None:
    """Raise :class:`ConfigError` when a run's name is not the name of one folder."""
    is_name = name.strip() and name not in (".", "..") and "/" not in name and name.isprintable()
    if not is_name or len(name.encode()) > _LONGEST:
        raise ConfigError(
            f"run.name={name!r} must be the name of one folder below run.storage_path: one line without '/', at most "
            f"{_LONGEST} bytes."
        )
    if name in _OF_THE_STORAGE:
        raise ConfigError(f"run.name={name!r} is taken: run.storage_path has {', '.join(_OF_THE_STORAGE)} for MLflow.")


@contextmanager
def claimed(folder: Path, *, resume: bool, progress: ProgressDisplay) -> Iterator[None]:
    """Hold ``folder`` for one run; it is new and empty, or the one of the run that is resumed.

    Raises:
        ConfigError: another process runs it, the folder holds something else, or it cannot be made.
        CheckpointError: there is no run to resume.
    """
    if resume and not folder.is_dir():
        raise CheckpointError(f"there is no run to resume at {folder}")
    inside = {path.name for path in folder.iterdir()} if resume else set()
    if inside and not inside & set(_OF_A_RUN):
        raise CheckpointError(f"{folder} is not the folder of a run, so there is nothing to resume.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = (folder.parent / f".{folder.name}.lock").open("w")
    except OSError as error:
        raise ConfigError(f"run.storage_path={str(folder.parent)!r} cannot be used: {error.strerror}.") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(f"the run {folder} is in use by another process. Choose another run.name.") from error
        if not resume:
            _make_room(folder, progress)
        yield


def _make_room(folder: Path, progress: ProgressDisplay) -> None:
    if folder.exists():
        inside = [path.name for path in folder.iterdir()] if folder.is_dir() else [folder.name]
        if inside and not any(name in inside for name in _OF_A_RUN):
            raise ConfigError(f"{folder} exists and is not the folder of a run. Choose another run.name.")
        number = next(n for n in range(1, 10_000) if not folder.with_name(f"{folder.name}.{n}").exists())
        folder.rename(folder.with_name(f"{folder.name}.{number}"))
        progress.message(f"an earlier run was moved to {folder.name}.{number}")
    folder.mkdir()
