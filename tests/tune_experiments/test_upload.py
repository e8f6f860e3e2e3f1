"""The copy of a run's folder: what is copied when, what a second machine gets, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from ray import cloudpickle

from arlarena_rllib.errors import CheckpointError, ConfigError
from tune_experiments.progress import ProgressDisplay
from tune_experiments.upload import OWNER, RemoteFolder, Upload, fetch_or_refuse, uploaded


@pytest.fixture
def progress() -> Iterator[ProgressDisplay]:
    with ProgressDisplay(1) as display:
        yield display


@pytest.fixture(params=["file", "memory"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """One file system of pyarrow's and one of fsspec's."""
    yield f"file://{tmp_path}/bucket" if request.param == "file" else "memory://bucket"
    fsspec.filesystem("memory").store.clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "runs" / "mine"
    for file, text in {
        "config.yaml": "a: 1",
        "trials/t1/checkpoint_000000/weights": "old",
        "trials/t1/result.json": "{}\n",
    }.items():
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).write_text(text)
    return home


def _texts(folder: Path) -> dict[str, str]:
    return {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*") if file.is_file()}


def _copied(uri: str) -> dict[str, str]:
    remote = RemoteFolder(uri, "mine")
    return {file: remote.read(file).decode() for file in remote.files()}


def test_copy_follows_the_folder(folder: Path, uri: str, progress: ProgressDisplay) -> None:
    with uploaded(folder, uri, progress) as (upload,):
        upload.bring_up_to_date()
        assert _copied(uri) == _texts(folder)
        shutil.rmtree(folder / "trials/t1/checkpoint_000000")
        (folder / "trials/t1/checkpoint_000001").mkdir()
        (folder / "trials/t1/checkpoint_000001/weights").write_text("new")
        (folder / "trials/t1/result.json").write_text("{}\n{}\n")
        (folder / "notes.json.half").write_text("being written")
        upload.bring_up_to_date()
        (folder / "notes.json.half").unlink()
        assert _copied(uri) == _texts(folder)
        (folder / "summary.json").write_text("the last word")
    assert _copied(uri) == _texts(folder)


def test_what_has_not_changed_is_not_copied_again(
    folder: Path, uri: str, progress: ProgressDisplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = RemoteFolder(uri, "mine")
    upload = Upload(folder, remote, progress)
    written: list[str] = []
    monkeypatch.setattr(remote, "write", lambda file, content: written.append(file))
    monkeypatch.setattr(remote, "put", lambda file, source: written.append(file))
    upload.bring_up_to_date()
    assert written == ["trials/t1/checkpoint_000000/weights", "config.yaml", "trials/t1/result.json"]
    (folder / "config.yaml").write_text("a: 22")
    upload.bring_up_to_date()
    assert written[3:] == ["config.yaml"]


def test_notes_tell_of_no_checkpoint_that_is_not_there_yet(
    folder: Path, uri: str, progress: ProgressDisplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read before the checkpoints are copied; what is written meanwhile comes with the next copy."""
    remote = RemoteFolder(uri, "mine")
    upload, put = Upload(folder, remote, progress), remote.put

    def slow(file: str, source: Path) -> None:
        put(file, source)
        (folder / "config.yaml").write_text("newer than the checkpoint")

    monkeypatch.setattr(remote, "put", slow)
    upload.bring_up_to_date()
    assert _copied(uri)["config.yaml"] == "a: 1"
    upload.bring_up_to_date()
    assert _copied(uri)["config.yaml"] == "newer than the checkpoint"


def test_run_goes_on_where_its_folder_is_gone(folder: Path, uri: str, progress: ProgressDisplay) -> None:
    with uploaded(folder, uri, progress):
        pass
    before = {name: text for name, text in _texts(folder).items() if name != OWNER}
    shutil.rmtree(folder)
    (left := folder.with_name("mine.half")).mkdir()
    (left / "of_a_fetch_that_was_cut_off").touch()
    fetch_or_refuse(folder, uri, resume=True, progress=progress)
    assert _texts(folder) == before
    with uploaded(folder, uri, progress) as (upload,):
        (folder / "summary.json").write_text("more")
        assert isinstance(upload, Upload)
    assert _copied(uri) == _texts(folder)


def test_folder_that_was_left_behind_does_not_go_on(folder: Path, uri: str, progress: ProgressDisplay) -> None:
    with uploaded(folder, uri, progress):
        pass
    fetch_or_refuse(folder, uri, resume=True, progress=progress)  # nothing happened elsewhere
    stale = folder.rename(folder.with_name("stale"))
    fetch_or_refuse(folder, uri, resume=True, progress=progress)
    with uploaded(folder, uri, progress):
        pass
    shutil.rmtree(folder)
    stale.rename(folder)
    with pytest.raises(CheckpointError, match="went on in another folder"):
        fetch_or_refuse(folder, uri, resume=True, progress=progress)


def test_another_storage_path_is_refused_with_the_first_one(
    folder: Path, uri: str, progress: ProgressDisplay, tmp_path: Path
) -> None:
    with uploaded(folder, uri, progress):
        pass
    with pytest.raises(ConfigError, match=rf"was in {folder}.* give run\.storage_path={folder.parent}\."):
        fetch_or_refuse(tmp_path / "elsewhere" / "mine", uri, resume=True, progress=progress)


def test_new_run_never_writes_over_a_copy(folder: Path, uri: str, progress: ProgressDisplay) -> None:
    fetch_or_refuse(folder, uri, resume=False, progress=progress)
    with uploaded(folder, uri, progress):
        pass
    with pytest.raises(ConfigError, match=r"holds a run already\. Go on with it by --resume"):
        fetch_or_refuse(folder, uri, resume=False, progress=progress)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("s3//bucket/runs", "run.upload_to='s3//bucket/runs' is no URI"),
        ("nosuch://bucket/runs", "run.upload_to='nosuch://bucket/runs' cannot be used: Protocol not known: nosuch"),
        ("file:///proc/nothing/runs", "/proc/nothing/runs/mine cannot be written to: .*No such file"),
    ],
)
def test_place_that_cannot_be_used_is_refused(
    bad: str, message: str, progress: ProgressDisplay, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        fetch_or_refuse(tmp_path / "mine", bad, resume=False, progress=progress)


def test_bucket_that_goes_away_is_told_of_and_ends_nothing(
    folder: Path, tmp_path: Path, progress: ProgressDisplay, capsys: pytest.CaptureFixture
) -> None:
    with uploaded(folder, f"file://{tmp_path}/bucket", progress) as (upload,):
        shutil.rmtree(tmp_path / "bucket")
        (tmp_path / "bucket").write_text("not a folder any more")
        for _ in range(2):
            upload.on_checkpoint(1, [], None, None)
            upload.on_step_end(1, [])
            upload._running.result()
    said = capsys.readouterr().out
    assert f"the copy of {folder} in file://{tmp_path}/bucket/mine could not be brought up to date" in said
    assert said.count("The next checkpoint tries again") == 1
    assert "It stays incomplete; the folder itself is complete." in said


def test_tune_can_write_it_down(folder: Path, uri: str, progress: ProgressDisplay) -> None:
    with uploaded(folder, uri, progress) as (upload,):
        cloudpickle.loads(cloudpickle.dumps(upload)).on_step_end(1, [])


def test_owner_tells_the_folder(folder: Path, uri: str, progress: ProgressDisplay) -> None:
    with uploaded(folder, uri, progress):
        assert json.loads(RemoteFolder(uri, "mine").read(OWNER))["folder"] == str(folder)
