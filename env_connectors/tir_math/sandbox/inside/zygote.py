"""The fork server: `python -m inside.zygote FD CONFIG` imports what calls need once, then forks a session on request.

It is process 1 of the sandbox and ends when the owner's socket closes; the kernel then ends everything else in there. No
byte that a model wrote ever reaches it.
"""

from __future__ import annotations

import _sitebuiltins
import builtins
import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
from typing import Any

from . import kernel, wire
from .session import Session

_STANDARD = """
    math cmath fractions decimal statistics random itertools functools collections heapq bisect operator string re
    json datetime time calendar typing dataclasses enum abc copy pprint textwrap io csv hashlib struct array numbers
    types contextlib traceback linecache threading atexit asyncio queue concurrent.futures unicodedata tempfile uuid
    secrets encodings.idna encodings.latin_1
"""
_MORE = {
    "numpy": ("numpy.random", "numpy.linalg", "numpy.fft", "numpy.polynomial"),
    "sympy": ("sympy.stats", "sympy.ntheory"),
}


def warm_up() -> None:
    """Use sympy once: much of it is imported, and its caches are filled, at the first use."""
    import sympy

    x, n = sympy.symbols("x n")
    sympy.solve(x**2 - 3 * x + 2, x)
    sympy.solve([x + n - 3, x - n - 1], [x, n])
    sympy.simplify(sympy.sin(x) ** 2 + sympy.cos(x) ** 2)
    sympy.factor(x**4 - 1)
    sympy.integrate(x * sympy.exp(x), x)
    sympy.limit(sympy.sin(x) / x, x, 0)
    sympy.diff(sympy.log(x) / x, x)
    sympy.Matrix([[1, 2], [3, 4]]).eigenvals()
    sympy.latex(sympy.Rational(1, 3) * sympy.sqrt(2))
    sympy.summation(n, (n, 1, x))
    sympy.sympify("x**2 + 1").subs(x, 2).evalf()
    sympy.factorint(360)
    sympy.isprime(97)


def preload(packages: list[str]) -> dict[str, str]:
    """Import the packages and the usual standard library; return the versions."""
    for name in _STANDARD.split():
        importlib.import_module(name)
    for name in ("exit", "quit"):  # as site, which is not imported here, would
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    versions = {}
    for name in packages:
        module = importlib.import_module(name)
        versions[name] = str(getattr(module, "__version__", "?"))
        for part in _MORE.get(name, ()):
            importlib.import_module(part)
    if "sympy" in packages:
        warm_up()
    gc.collect()
    gc.freeze()  # forked processes need not copy what the collector would touch
    return versions


def start_session(control: socket.socket, channel: socket.socket, limits: dict[str, Any], *, is_isolated: bool) -> None:
    """Fork a session into namespaces of its own; the process in between ends at once."""
    if os.fork() != 0:
        channel.close()
        return
    try:
        control.close()
        if is_isolated:
            kernel.leave_namespaces()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            Session(channel, limits, is_isolated=is_isolated).serve()
    except BaseException as error:  # noqa: BLE001 - the owner tells it to the user in one line
        with contextlib.suppress(OSError):
            wire.send(channel, {"error": f"{type(error).__name__}: {error}"})
    os._exit(0)


def main() -> None:
    """Serve the socket whose number is given."""
    control = socket.socket(fileno=int(sys.argv[1]))
    config = json.loads(sys.argv[2])
    versions = preload(config["packages"])
    sys.path[:] = [path for path in sys.path if path != os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)
    for number in signal.valid_signals() - {
        signal.SIGKILL,
        signal.SIGSTOP,
        signal.SIGPIPE,
        signal.SIGXFSZ,
        signal.SIGINT,
    }:
        with contextlib.suppress(OSError):
            signal.signal(number, signal.SIG_DFL)  # an owner under nohup ignores some
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # sessions need no reaping
    control.send(json.dumps({"ready": True, "versions": versions}).encode())
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 4)
        if not data:
            os._exit(0)
        channel = socket.socket(fileno=descriptors[0])
        start_session(control, channel, json.loads(data), is_isolated=config["is_isolated"])


if __name__ == "__main__":
    main()
