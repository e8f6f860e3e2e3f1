"""Checkpoints that a full disk cut off are told from whole ones."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from arlarena_rllib.whole_checkpoint import cannot_write, is_whole, newest_whole, write_manifest


def _checkpoint(trial: Path, number: int) -> Path:
    folder = trial / f"checkpoint_{number:06d}"
    (folder / "learner").mkdir(parents=True)
    (folder / "learner" / "state.pkl").write_bytes(b"x" * 100)
    (folder / "rllib_checkpoint.json").write_text("{}")
    write_manifest(folder)
    return folder


def test_newest_whole_passes_over_missing_cut_off_and_unlisted_files(tmp_path: Path) -> None:
    first, cut_off, missing, unlisted = (_checkpoint(tmp_path, number) for number in range(4))
    assert newest_whole(tmp_path) == unlisted
    (unlisted / "files.json").unlink()
    assert newest_whole(tmp_path) == missing
    (missing / "rllib_checkpoint.json").unlink()
    assert newest_whole(tmp_path) == cut_off
    os.truncate(cut_off / "learner" / "state.pkl", 99)
    assert newest_whole(tmp_path) == first
    (first / "mlflow.json").write_text("added later")
    assert is_whole(first)
    os.truncate(first / "files.json", 10)
    assert newest_whole(tmp_path) is None


@pytest.mark.parametrize(("number", "reason"), [(errno.ENOSPC, "No space left"), (errno.EDQUOT, "quota exceeded")])
def test_cannot_write_names_the_disk_and_the_checkpoint_that_is_left(tmp_path: Path, number: int, reason: str) -> None:
    error, target = OSError(number, "as pyarrow says it"), tmp_path / "checkpoint_000001"
    alone = str(cannot_write(error, target, 4, tmp_path))
    assert f"the checkpoint of iteration 4 could not be written to {target}: " in alone
    assert reason in alone
    assert "MiB free on the disk at /" in alone
    assert "There is no earlier checkpoint" in alone
    kept = _checkpoint(tmp_path, 0)
    assert f"{kept} is whole: make room, then go on from it with --resume" in str(
        cannot_write(error, target, 4, tmp_path)
    )
