"""A session: process 1 of its own namespaces; forks a process per call, reads what it prints, ends it when a limit is passed.

It holds nothing that a call could want: no file, no network, no capability. It never opens a path in /tmp and imports
nothing once a call has run, so nothing that a call leaves there is ever read by it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import select
import shutil
import signal
import socket
import tempfile
import time
from typing import Any, NoReturn

from . import bpf, call, kernel, wire

_LOOK_S = 0.02  # how often threads are counted
_CHUNK = 1 << 16  # as much as a pipe holds
_READS_AT_ONCE, _PAUSE_S = 8, 0.001
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


class Stream:
    """What is kept of one output of a call."""

    def __init__(self, descriptor: int, keep: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor, self.keep = descriptor, keep
        self.kept = bytearray()
        self.written = 0
        self.is_open = True

    def read(self) -> int:
        """Take what is there, at most one chunk; return how much."""
        try:
            data = os.read(self.descriptor, _CHUNK)
        except BlockingIOError:
            return 0
        self.is_open = bool(data)
        self.written += len(data)
        self.kept += data[: max(0, self.keep - len(self.kept))]
        return len(data)


class Session:
    """Answers the owner's calls, one at a time, until the owner closes."""

    def __init__(self, channel: socket.socket, limits: dict[str, Any], *, is_isolated: bool) -> None:
        self._channel, self._limits, self._is_isolated = channel, dict(limits), is_isolated
        self._proc: int | None = None
        self._pid_1 = os.getpid()
        if is_isolated:
            kernel.mount_private_tmp(limits["tmp_mb"], limits["tmp_files"])
            self._proc = kernel.hide_proc()
            kernel.drop_capabilities()
            if self._pid_1 != 1:
                raise RuntimeError(f"a session is process {self._pid_1} of its namespace, not 1")
        elif os.path.isdir("/proc/self"):
            self._proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
        self._limits["directory"] = "/tmp" if is_isolated else tempfile.mkdtemp(prefix="arlarena-unsafe-")
        self._limits["address_space"] = self._size() + (limits["memory_mb"] << 20)
        if self._proc is None:
            self._limits["threads"] = 1  # nothing could count them
        self._filter = bpf.program(os.uname().machine, threads=self._limits["threads"] > 1)

    def serve(self) -> NoReturn:
        """Answer until the other side is gone; then nothing of the session is left."""
        with contextlib.suppress(EOFError, OSError, wire.WireError):
            wire.send(self._channel, {"ready": True, "threads": self._limits["threads"]})
            while True:
                header, (code, text) = wire.receive(self._channel, self._limits["input_bytes"])
                wire.send(self._channel, *self._call(code, text, float(header["timeout_s"])))
        self._end()

    def _end(self) -> NoReturn:
        if not self._is_isolated:
            shutil.rmtree(self._limits["directory"], ignore_errors=True)
        os._exit(0)

    def _size(self) -> int:
        if self._proc is None:
            return 1 << 30
        file = os.open("self/statm", os.O_RDONLY, dir_fd=self._proc)
        pages = int(os.read(file, 200).split()[0])
        os.close(file)
        return pages * resource.getpagesize()

    def _call(self, code: bytes, text: bytes, timeout_s: float) -> tuple[Any, ...]:
        started = time.monotonic()
        stdin = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        view = memoryview(text)
        while view:
            view = view[os.write(stdin, view) :]
        os.lseek(stdin, 0, os.SEEK_SET)
        fcntl.fcntl(stdin, fcntl.F_ADD_SEALS, _SEALS)
        (out, out_w), (err, err_w), (report, report_w) = (os.pipe() for _ in range(3))
        limits = {**self._limits, "cpu_s": int(timeout_s) + 2}
        child = os.fork()
        if child == 0:
            call.run(code, (stdin, out_w, err_w, report_w), limits, self._proc, self._filter)
        for descriptor in (stdin, out_w, err_w, report_w):
            os.close(descriptor)
        streams = Stream(out, limits["output_bytes"]), Stream(err, limits["output_bytes"])
        handle = os.pidfd_open(child)
        cause = self._watch(child, handle, streams, started + timeout_s)
        os.kill(child, signal.SIGKILL)
        _, status, usage = os.wait4(child, 0)
        if self._is_isolated:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)  # everybody in this PID namespace but this process; there should be nobody
        for stream in streams:
            while stream.read() and stream.written < 2 * limits["output_stop_bytes"]:
                pass
        os.set_blocking(report, False)
        try:
            told = os.read(report, 256)
        except BlockingIOError:
            told = b""
        for descriptor in (out, err, report, handle):
            os.close(descriptor)
        header = {
            "cause": cause,
            "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
            "exit": os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1,
            "written": [stream.written for stream in streams],
            "seconds": time.monotonic() - started,
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
        }
        return header, *(bytes(stream.kept) for stream in streams), told

    def _watch(self, child: int, handle: int, streams: tuple[Stream, Stream], deadline: float) -> str:
        """Read until the child ends; return the limit that it passed, or ''."""
        poll = select.poll()
        for descriptor in (handle, self._channel.fileno(), *(stream.descriptor for stream in streams)):
            poll.register(descriptor, select.POLLIN)
        most = self._limits["output_stop_bytes"]
        look = time.monotonic() + _LOOK_S
        reads = 0
        while True:
            now = time.monotonic()
            if now >= deadline:
                return "timeout"
            if now >= look:
                look = now + _LOOK_S
                if self._threads(child) > self._limits["threads"]:
                    return "threads"
            ready = {descriptor for descriptor, _ in poll.poll(1000 * max(0.0, min(deadline, look) - now))}
            if self._channel.fileno() in ready:  # nothing is due from the owner: it is gone
                self._end_call(child)
            for stream in streams:
                if stream.descriptor in ready:
                    reads += 1
                    stream.read()
                    if not stream.is_open:
                        poll.unregister(stream.descriptor)
            if sum(stream.written for stream in streams) > most:
                return "output"
            if handle in ready:
                return ""
            if reads > _READS_AT_ONCE:
                time.sleep(_PAUSE_S)  # a program that prints line by line would wake this process for every line

    def _end_call(self, child: int) -> NoReturn:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        self._end()

    def _threads(self, child: int) -> int:
        if self._proc is None:
            return 1
        try:
            file = os.open(f"{child}/stat", os.O_RDONLY, dir_fd=self._proc)
        except OSError:
            return 0
        try:
            return int(os.read(file, 1024).rpartition(b")")[2].split()[17])
        except (OSError, IndexError):
            return 0  # it has ended
        finally:
            os.close(file)
