"""A run never touches a folder that is not its own, nor one that another process uses."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from arlarena_rllib.errors import CheckpointError, ConfigError
from tune_experiments.progress import ProgressDisplay
from tune_experiments.run_folder import check_name, claimed

HOLDER = """
import sys
from pathlib import Path
from tune_experiments.progress import ProgressDisplay
from tune_experiments.run_folder import claimed
with claimed(Path(sys.argv[1]), resume=False, progress=ProgressDisplay(live=False)):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def progress() -> ProgressDisplay:
    return ProgressDisplay(stream=io.StringIO(), live=False)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "/etc", "../x", "a\0b", "a\nb", "  ", "a" * 201, "\u00fc" * 101]
)
def test_name_that_is_no_single_folder_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"run\.name=.* must be the name of one folder"):
        check_name(name)


@pytest.mark.parametrize("name", ["mlflow.db", "mlflow_artifacts", "mlflow_undelivered"])
def test_name_of_what_mlflow_has_in_the_storage_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"run\.name='{name}' is taken"):
        check_name(name)


def test_older_run_is_moved_aside_and_a_foreign_folder_is_not(tmp_path: Path, progress: ProgressDisplay) -> None:
    old, foreign = tmp_path / "mine", tmp_path / "photos"
    (old / "base").mkdir(parents=True)
    foreign.mkdir()
    (foreign / "holiday.jpg").write_bytes(b"x")
    with claimed(old, resume=False, progress=progress):
        assert not any(old.iterdir())
        assert (tmp_path / "mine.1" / "base").is_dir()
    with (
        pytest.raises(ConfigError, match="photos exists and is not the folder of a run"),
        claimed(foreign, resume=False, progress=progress),
    ):
        pass
    assert (foreign / "holiday.jpg").is_file()


def test_run_that_another_process_holds_is_refused_and_free_once_that_is_killed(
    tmp_path: Path, progress: ProgressDisplay
) -> None:
    folder = tmp_path / "mine"
    command = [sys.executable, "-c", HOLDER, str(folder)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    for resume in (False, True):
        with (
            pytest.raises(ConfigError, match="mine is in use by another process"),
            claimed(folder, resume=resume, progress=progress),
        ):
            pass
    holder.kill()
    holder.communicate()
    with claimed(folder, resume=True, progress=progress):
        assert folder.is_dir()


def test_storage_that_cannot_be_used_and_missing_runs_are_named(tmp_path: Path, progress: ProgressDisplay) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ConfigError, match=r"run\.storage_path='.*file' cannot be used: "),
        claimed(tmp_path / "file" / "run", resume=False, progress=progress),
    ):
        pass
    with (
        pytest.raises(CheckpointError, match="there is no run to resume at"),
        claimed(tmp_path / "nothing", resume=True, progress=progress),
    ):
        pass
