"""A copy of a run's folder in a bucket: brought up to date after each checkpoint and at the end, fetched to go on elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import pyarrow
from pyarrow import fs
from ray.tune import Callback

from arlarena_rllib.errors import CheckpointError, ConfigError
from tune_experiments.progress import ProgressDisplay

OWNER = "uploaded_by.json"
"""In the folder and in its copy: which folder is the one that goes on. Fetching makes the new one the owner."""
_HALF = ".half"
_AT_ONCE = 64 * 2**20
"""Smaller files outside of checkpoints are read before any checkpoint is copied, so that they tell of no newer one."""


class RemoteFolder:
    """A folder on any file system that pyarrow or fsspec knows.

    Args:
        uri: ``s3://bucket/runs``, ``gs://...``, ``file:///mnt/runs``, or what an installed fsspec package adds.
        name: of the run, a folder below.

    Raises:
        ConfigError: nothing knows such a URI, or a package or a credential for it is missing.
    """

    def __init__(self, uri: str, name: str) -> None:
        if "://" not in uri:
            raise ConfigError(
                f"run.upload_to={uri!r} is no URI. Give a scheme, s3://bucket/runs say; a folder is file:///path/to/it."
            )
        self.uri = f"{uri.partition('?')[0].rstrip('/')}/{name}"  # without options such as an endpoint
        try:
            self._system, root = _file_system(uri)
        except Exception as error:  # every package raises its own
            raise ConfigError(f"run.upload_to={uri!r} cannot be used: {_reason(error)}") from error
        self._root = root.rstrip("/")
        self._folder = f"{self._root}/{name}"

    def check(self) -> None:
        """Raise :class:`ConfigError` when nothing can be written there."""
        probe = f"{self._root}/.arlarena_{uuid.uuid4().hex}"
        try:
            self._system.create_dir(self._root, recursive=True)
            self._write(probe, b"")
            self._system.delete_file(probe)
        except Exception as error:
            raise ConfigError(f"run.upload_to: {self.uri} cannot be written to: {_reason(error)}") from error

    def files(self) -> dict[str, fs.FileInfo]:
        """Return relative path -> size and time of all files; empty when there is no such folder."""
        selector = fs.FileSelector(self._folder, allow_not_found=True, recursive=True)
        found = self._system.get_file_info(selector)
        return {_below(self._folder, info.path): info for info in found if info.type == fs.FileType.File}

    def read(self, file: str) -> bytes:
        """Return the content of a file."""
        with self._system.open_input_stream(f"{self._folder}/{file}") as stream:
            return stream.read()

    def write(self, file: str, content: bytes) -> None:
        """Write a file and the folders above it."""
        self._write(f"{self._folder}/{file}", content)

    def put(self, file: str, source: Path) -> None:
        """Copy ``source`` in pieces."""
        with source.open("rb") as read, self._stream(f"{self._folder}/{file}") as stream:
            while piece := read.read(_AT_ONCE):
                stream.write(piece)

    def get(self, file: str, info: fs.FileInfo, target: Path) -> None:
        """Copy a file to ``target`` in pieces, with its time."""
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._system.open_input_stream(f"{self._folder}/{file}") as stream, target.open("wb") as written:
            while piece := stream.read(_AT_ONCE):
                written.write(piece)
        if info.mtime_ns is not None:
            os.utime(target, ns=(info.mtime_ns, info.mtime_ns))

    def delete(self, file: str) -> None:
        """Delete a file."""
        self._system.delete_file(f"{self._folder}/{file}")

    def _write(self, path: str, content: bytes) -> None:
        with self._stream(path) as stream:
            stream.write(content)

    def _stream(self, path: str) -> Any:
        self._system.create_dir(path.rpartition("/")[0], recursive=True)
        return self._system.open_output_stream(path)


class Upload(Callback):
    """Brings the copy up to date after checkpoints, beside the training.

    Args:
        folder: of the run.
        remote: its copy.
        progress: tells of copies that failed; the next checkpoint tries again.
    """

    def __init__(self, folder: Path, remote: RemoteFolder, progress: ProgressDisplay) -> None:
        self._folder, self._remote, self._progress = folder, remote, progress
        self._thread = ThreadPoolExecutor(1)
        self._running: Future | None = None
        self._is_due, self._last_failure = False, ""
        there = remote.files()
        self._sent = {file: _stamp(folder / file) for file, info in there.items() if _is_same(folder / file, info)}
        self._there = set(there)

    def __getstate__(self) -> dict[str, Any]:
        """Tune writes its callbacks down; a copy that it reads back copies nothing."""
        return {"_is_due": False}

    def on_checkpoint(self, iteration: int, trials: list, trial: Any, checkpoint: Any, **info: Any) -> None:
        """There is something new to copy."""
        self._is_due = True

    def on_step_end(self, iteration: int, trials: list, **info: Any) -> None:
        """Start copying, unless a copy is under way still."""
        if self._is_due and (self._running is None or self._running.done()):
            self._is_due = False
            self._running = self._thread.submit(self._try)

    def finish(self) -> None:
        """Copy what is left and say where the copy is."""
        self._thread.submit(self._try, is_last=True).result()
        self._thread.shutdown()

    def _try(self, *, is_last: bool = False) -> None:
        try:
            self.bring_up_to_date()
        except Exception as error:  # noqa: BLE001 - a bucket that is away must not end a training
            then, reason = "It stays incomplete" if is_last else "The next checkpoint tries again", _reason(error)
            if is_last or reason != self._last_failure:
                self._progress.message(
                    f"the copy of {self._folder} in {self._remote.uri} could not be brought up to date: {reason} {then}; the "
                    "folder itself is complete."
                )
            self._last_failure = reason
        else:
            self._last_failure = ""
            if is_last:
                self._progress.message(f"a copy of the run is in {self._remote.uri}")

    def bring_up_to_date(self) -> None:
        """Copy files that are new or have changed, checkpoints before the notes that tell of them; drop deleted ones."""
        found = {file: _stamp(self._folder / file) for file in _files(self._folder)}
        stamps = {file: stamp for file, stamp in found.items() if stamp is not None}
        changed = [file for file, stamp in stamps.items() if self._sent.get(file) != stamp]
        small = [file for file in changed if not _is_of_checkpoint(file) and stamps[file][1] < _AT_ONCE]
        contents = {file: content for file in small if (content := _content(self._folder / file)) is not None}
        for file in sorted(set(changed) - set(small)):
            try:
                self._remote.put(file, self._folder / file)
            except FileNotFoundError:
                if (self._folder / file).exists():
                    raise
                continue  # an old checkpoint that was just deleted
            self._noted(file, stamps[file])
        for file, content in contents.items():
            self._remote.write(file, content)
            self._noted(file, stamps[file])
        for file in sorted(self._there - stamps.keys()):
            self._remote.delete(file)
            self._there.discard(file)
            self._sent.pop(file, None)

    def _noted(self, file: str, stamp: tuple[int, int]) -> None:
        self._sent[file] = stamp
        self._there.add(file)


@contextmanager
def uploaded(folder: Path, uri: str | None, progress: ProgressDisplay) -> Iterator[list[Callback]]:
    """Give the callbacks that keep a copy of ``folder`` below ``uri`` and copy what is left at the end, also of an error."""
    if uri is None:
        yield []
        return
    remote = RemoteFolder(uri, folder.name)
    _own(folder, remote)
    upload = Upload(folder, remote, progress)
    try:
        yield [upload]
    finally:
        upload.finish()


def fetch_or_refuse(folder: Path, uri: str | None, *, resume: bool, progress: ProgressDisplay) -> None:
    """Fetch the folder of a run to resume if it is not here; refuse to write over another run's copy.

    Raises:
        ConfigError: nothing can be written to the copy, it is of an earlier run, or was made in another folder.
        CheckpointError: the run went on elsewhere since it was here.
    """
    if uri is None:
        return
    remote = RemoteFolder(uri, folder.name)
    remote.check()
    there = remote.files()
    if not resume:
        if there:
            raise ConfigError(
                f"{remote.uri} holds a run already. Go on with it by --resume, or choose another run.name or run.upload_to."
            )
        return
    if OWNER not in there:
        return
    owner = json.loads(remote.read(OWNER))
    if folder.is_dir():
        here = json.loads(_content(folder / OWNER) or b"{}")
        if here.get("id") != owner["id"]:
            raise CheckpointError(
                f"the run went on in another folder since it was in {folder}: {remote.uri} is not a copy of it any more. Move "
                "the folder away, then --resume fetches the copy."
            )
        return
    if owner["folder"] != str(folder):
        raise ConfigError(
            f"the run in {remote.uri} was in {owner['folder']}, and its files name each other by that: give "
            f"run.storage_path={Path(owner['folder']).parent}."
        )
    progress.phase(f"fetch {remote.uri}", total=len(there))
    half = folder.with_name(f"{folder.name}{_HALF}")
    shutil.rmtree(half, ignore_errors=True)  # of a fetch that was cut off: the copy may have moved on
    for number, (file, info) in enumerate(there.items(), 1):
        remote.get(file, info, half / file)
        progress.advance(number)
    (half / OWNER).unlink()
    half.rename(folder)


def _own(folder: Path, remote: RemoteFolder) -> None:
    """Make ``folder`` the one that the copy is of."""
    if not (folder / OWNER).is_file():
        (folder / OWNER).write_text(json.dumps({"id": uuid.uuid4().hex, "folder": str(folder)}))
    remote.write(OWNER, (folder / OWNER).read_bytes())


def _file_system(uri: str) -> tuple[fs.FileSystem, str]:
    """Return pyarrow's file system of a URI, or fsspec's behind the same interface, and the path in it."""
    try:
        return fs.FileSystem.from_uri(uri)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError):
        system, path = fsspec.core.url_to_fs(uri)
        return fs.PyFileSystem(fs.FSSpecHandler(system)), path


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if text.endswith(".") else f"{text}."


def _below(folder: str, path: str) -> str:
    return path.lstrip("/").removeprefix(f"{folder.lstrip('/')}/")


def _files(folder: Path) -> list[str]:
    found = (Path(at, name) for at, _, names in os.walk(folder) for name in names)
    return [str(file.relative_to(folder)) for file in found if file.suffix != _HALF]


def _is_of_checkpoint(file: str) -> bool:
    return any(part.startswith("checkpoint_") for part in Path(file).parts)


def _stamp(file: Path) -> tuple[int, int] | None:
    """Return time in nanoseconds and size in bytes of a file; None when it is gone."""
    try:
        facts = file.stat()
    except FileNotFoundError:
        return None
    return facts.st_mtime_ns, facts.st_size


def _content(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


def _is_same(file: Path, info: fs.FileInfo) -> bool:
    """Say whether the copy is as long as the file and not older."""
    stamp = _stamp(file)
    return stamp is not None and info.size == stamp[1] and info.mtime_ns is not None and info.mtime_ns >= stamp[0]
