"""A guessing game on a disk that is full while a file says so: copies into the run's folder are cut off in the middle."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

from ray.train._internal import storage

from env_connectors import register_text_env

FULL = "disk_is_full"
_copy = storage._pyarrow_fs_copy_files


def _copy_until_full(source: Any, destination: Any, *arguments: Any, **keywords: Any) -> Any:
    if not any((folder / FULL).exists() for folder in Path(destination).parents):
        return _copy(source, destination, *arguments, **keywords)
    files = sorted(Path(source).rglob("*")) if Path(source).is_dir() else [Path(source)]
    for file in filter(Path.is_file, files):
        target = Path(destination, file.relative_to(source))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        os.truncate(target, file.stat().st_size // 2)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# Every process of the run imports its environment: the trial, which copies its checkpoints, and the driver, which
# copies Tune's notes.
storage._pyarrow_fs_copy_files = _copy_until_full
register_text_env("full/Guess-v0", "env_connectors.toy.env:GuessEnv")
