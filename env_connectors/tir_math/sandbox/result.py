"""How a program ended, in a word for statistics and in a sentence for the model."""

from __future__ import annotations

import codecs
import dataclasses
import enum
import signal
from collections.abc import Sequence
from typing import Any

from env_connectors.tir_math.sandbox.limits import Limits


class Status(enum.StrEnum):
    """How a program ended."""

    OK = "ok"
    ERROR = "error"
    """An exception; its traceback is in `stderr`."""
    MISSING = "missing_package"
    EXIT = "exit"
    """It ended itself with a status other than 0."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output"
    """Stopped because it wrote too much; output that is only cut leaves the status as it is."""
    THREADS = "threads"
    FILTER = "filter"
    """Killed by the system call filter."""
    CRASH = "crash"
    """Killed by another signal."""
    REJECTED = "rejected"
    """Not run: the program or its input is too large."""
    LOST = "lost"
    """The session died with it; the next call gets a new one, with an empty /tmp."""


@dataclasses.dataclass(frozen=True, slots=True)
class RunResult:
    """What came of one call."""

    stdout: str
    stderr: str
    """Traceback included."""
    status: Status
    note: str = ""
    """One or two sentences for the model about what the outputs do not say by themselves; empty for a plain success."""
    is_truncated: bool = False
    """Some output was thrown away."""
    seconds: float = 0.0
    """Wall clock inside the sandbox."""
    cpu_seconds: float = 0.0
    exit_code: int | None = None
    """None when a signal ended it."""

    @property
    def text(self) -> str:
        """Standard output, standard error and the note, in this order."""
        parts = (self.stdout, self.stderr, f"[{self.note}]" if self.note else "")
        return "".join(part if part.endswith("\n") else part + "\n" for part in parts if part)


def _decoded(data: bytes, is_cut: bool) -> str:
    """Invalid bytes become U+FFFD; a character that the cut went through is left out."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data, final=not is_cut)


def _size(count: int) -> str:
    for unit, step in (("MB", 1 << 20), ("kB", 1 << 10)):
        if count >= step:
            return f"{count / step:.3g} {unit}"
    return f"{count} bytes"


def _ending(
    header: dict[str, Any], told: bytes, limits: Limits, timeout_s: float, packages: Sequence[str]
) -> tuple[Status, str]:
    cause, number, code = header["cause"], int(header["signal"]), int(header["exit"])
    if cause == "timeout" or number == signal.SIGXCPU:
        return Status.TIMEOUT, f"TimeoutError: the program was stopped after {timeout_s:g} s."
    if cause == "output":
        most = f"{limits.output_stop_mb} MB"
        return Status.OUTPUT, f"The program was stopped: it wrote more than {most} of output."
    if cause == "threads":
        return Status.THREADS, f"The program was stopped: it had more than {limits.threads} threads."
    if number == signal.SIGSYS:
        return Status.FILTER, "The program was stopped: it made a system call that is not allowed here."
    if number:
        name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
        hint = {
            signal.SIGSEGV: ", as by endless recursion",
            signal.SIGABRT: ", as when memory runs out",
            signal.SIGKILL: ", by itself or because the machine ran out of memory",
        }
        return Status.CRASH, f"The interpreter was killed by {name}{hint.get(signal.Signals(number), '')}."
    kind, name = told[:1], told[1:].decode("utf-8", "replace")
    if code == 0:
        return Status.OK, ""
    if kind == b"M":
        return Status.MEMORY, f"MemoryError: the program may use {limits.memory_mb} MB."
    if kind == b"I":
        have = ", ".join(packages)
        return Status.MISSING, (
            f"No module {name!r}: there are the standard library{f', {have}' if have else ''}; nothing can be installed."
        )
    if kind == b"E":
        return Status.ERROR, ""
    return Status.EXIT, f"The program ended itself with exit code {code}."


def result_of(
    header: dict[str, Any], parts: Sequence[bytes], limits: Limits, timeout_s: float, packages: Sequence[str]
) -> RunResult:
    """Return the result that a session's answer means."""
    out, err, told = parts
    status, note = _ending(header, told, limits, timeout_s, packages)
    written = [int(value) for value in header["written"]]
    cuts = [count > len(kept) for count, kept in zip(written, (out, err), strict=True)]
    notes = [note] if note else []
    for name, count, is_cut in zip(("output", "error output"), written, cuts, strict=True):
        if is_cut:
            of = "" if header["cause"] else f" of {_size(count)}"
            notes.append(f"The {name} was cut: only the first {_size(limits.output_bytes)}{of} are kept.")
    return RunResult(
        stdout=_decoded(out, cuts[0]),
        stderr=_decoded(err, cuts[1]),
        status=status,
        note=" ".join(notes),
        is_truncated=any(cuts),
        seconds=float(header["seconds"]),
        cpu_seconds=float(header["cpu_seconds"]),
        exit_code=int(header["exit"]) if not header["signal"] else None,
    )
