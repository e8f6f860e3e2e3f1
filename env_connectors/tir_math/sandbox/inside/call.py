"""One call, in the process forked for it: limits, filter, then the program as a fresh `__main__`; never returns.

The report (descriptor 3) tells the session how the program ended as far as Python knows. A program can forge it; all it
gains is another word for its own end, since what the session enforces it sees for itself.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import errno
import fcntl
import io
import linecache
import os
import resource
import sys
import threading
import traceback
import types
from typing import Any, NoReturn

from . import bpf, kernel

FILE_NAME = "main.py"
ERROR, MEMORY, MISSING, EXIT, SETUP = b"E", b"M", b"I", b"X", b"S"
_REPORT = 3
_RESERVE_BYTES = 16 << 20  # to print the traceback of a MemoryError with


def run(
    code: bytes, descriptors: tuple[int, int, int, int], limits: dict[str, Any], proc: int | None, template: bytes
) -> NoReturn:
    """Run a program and end the process.

    Args:
        code: UTF-8 source.
        descriptors: What becomes standard input, output, error, and the report.
        limits: Of the call; see limits.py outside.
        proc: Descriptor of /proc, or None.
        template: The filter, from bpf.program.
    """
    status = 1
    try:
        _confine(descriptors, limits, proc, template)
    except BaseException as error:  # noqa: BLE001 - nothing may run unconfined
        with contextlib.suppress(OSError):
            os.write(descriptors[3], SETUP + repr(error).encode()[:200])
            os.write(_REPORT, SETUP + repr(error).encode()[:200])
        os._exit(70)
    try:
        status = _execute(code)
    finally:
        os._exit(status)


def _confine(descriptors: tuple[int, int, int, int], limits: dict[str, Any], proc: int | None, template: bytes) -> None:
    if proc is not None:
        with contextlib.suppress(OSError):  # the kernel, short of memory, ends this process and no other
            file = os.open("self/oom_score_adj", os.O_WRONLY, dir_fd=proc)
            os.write(file, b"1000")
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(
            int.from_bytes(os.urandom(4), "little")
        )  # the standard library reseeds itself after a fork
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 100) for descriptor in descriptors]
    for number, descriptor in enumerate(high):
        os.dup2(descriptor, number)
    os.closerange(4, 1 << 20)
    with contextlib.suppress(OSError):
        os.chmod(limits["directory"], 0o700)  # whatever an earlier call made of it
    os.chdir(limits["directory"])
    os.umask(0o077)
    sys.argv[:] = [FILE_NAME]
    sys.path.insert(0, limits["directory"])
    kernel.forbid_dumps()
    space = limits["address_space"]
    for what, soft, hard in (
        (resource.RLIMIT_AS, space, space + _RESERVE_BYTES),
        (resource.RLIMIT_CPU, limits["cpu_s"], limits["cpu_s"]),
        (resource.RLIMIT_FSIZE, limits["tmp_mb"] << 20, limits["tmp_mb"] << 20),
        (resource.RLIMIT_NOFILE, limits["open_files"], limits["open_files"]),
        (resource.RLIMIT_NPROC, limits["processes"], limits["processes"]),
        (resource.RLIMIT_MEMLOCK, 0, 0),
        (resource.RLIMIT_MSGQUEUE, 0, 0),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        resource.setrlimit(what, (soft, hard))
    kernel.install_filter(bpf.for_process(template, os.getpid()))


def _execute(code: bytes) -> int:
    out, err = _text(1, "w", "strict"), _text(2, "w", "backslashreplace")
    for name, stream in (("stdin", _text(0, "r", "strict")), ("stdout", out), ("stderr", err)):
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __file__=FILE_NAME)
    sys.modules["__main__"] = main
    status = 0
    try:
        source = code.decode("utf-8", "surrogatepass")
        linecache.cache[FILE_NAME] = (len(source), None, source.splitlines(keepends=True), FILE_NAME)
        exec(compile(source, FILE_NAME, "exec", dont_inherit=True), main.__dict__)
    except BaseException as error:  # noqa: BLE001 - whatever the program raises is its result
        status = _raised(error, err)
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        out.flush()
        err.flush()
    except BaseException as error:  # noqa: BLE001 - a closed or full output is the program's affair
        with contextlib.suppress(BaseException):
            os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "backslashreplace"))
        status = status or 120
    return status


def _raised(error: BaseException, err: io.TextIOWrapper) -> int:
    """Say what ended the program, as Python would; return the exit status."""
    if isinstance(error, SystemExit):
        code = error.code
        if code is not None and not isinstance(code, int):
            with contextlib.suppress(BaseException):
                print(code, file=err)
        _report(EXIT)
        return code & 0xFF if isinstance(code, int) else int(code is not None)
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        with contextlib.suppress(BaseException):
            resource.setrlimit(resource.RLIMIT_AS, (resource.getrlimit(resource.RLIMIT_AS)[1],) * 2)
        _report(MEMORY)
    elif isinstance(error, ModuleNotFoundError):
        _report(MISSING + str(error.name).encode("utf-8", "replace")[:100])
    else:
        _report(ERROR)
    try:
        begin = error.__traceback__.tb_next if error.__traceback__ else None  # without the frame of this file
        traceback.print_exception(type(error), error, begin, file=err)
        err.flush()
    except BaseException:  # noqa: BLE001 - an exception that cannot be printed, or no memory left
        with contextlib.suppress(BaseException):
            os.write(2, type(error).__name__.encode() + b"\n")
    return 1


def _report(text: bytes) -> None:
    with contextlib.suppress(OSError):
        os.write(_REPORT, text)


def _text(descriptor: int, mode: str, errors: str) -> Any:
    return open(descriptor, mode, encoding="utf-8", errors=errors, buffering=-1 if mode == "r" else 1, closefd=False)
