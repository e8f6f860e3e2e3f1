"""Whether a checkpoint is whole: it lists its own files and their sizes, so that a copy that a full disk cut off shows."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from arlarena_rllib.errors import CheckpointError

MANIFEST = "files.json"
"""File -> size in bytes; written last."""


def write_manifest(folder: Path) -> None:
    """List all files of ``folder`` in it."""
    sizes = {str(file.relative_to(folder)): file.stat().st_size for file in sorted(folder.rglob("*")) if file.is_file()}
    (folder / MANIFEST).write_text(json.dumps(sizes, indent=1))


def is_whole(folder: Path) -> bool:
    """Say whether ``folder`` has its list and every file of it in full size."""
    try:
        sizes = json.loads((folder / MANIFEST).read_text())
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def newest_whole(trial_folder: Path) -> Path | None:
    """Return the newest whole checkpoint of a trial."""
    found = sorted(trial_folder.glob("checkpoint_*"), reverse=True)
    return next((folder for folder in found if is_whole(folder)), None)


def cannot_write(error: OSError, folder: Path, iteration: int, trial_folder: Path | None) -> CheckpointError:
    """Return what to raise when a checkpoint cannot be written: which disk, and which checkpoint is still usable."""
    disk = next(path for path in (folder, *folder.parents) if path.exists())
    while not disk.is_mount():
        disk = disk.parent
    reason = os.strerror(error.errno) if error.errno else str(error)
    text = (
        f"the checkpoint of iteration {iteration} could not be written to {folder}: {reason} "
        f"({shutil.disk_usage(disk).free / 2**20:.1f} MiB free on the disk at {disk}). "
    )
    usable = newest_whole(trial_folder) if trial_folder is not None else None
    if usable is None:
        return CheckpointError(f"{text}There is no earlier checkpoint. Make room and start again.")
    return CheckpointError(f"{text}{usable} is whole: make room, then go on from it with --resume.")
