"""The engine's processes seen from outside: started on demand, one per Python process, killed when they hang.

An engine that dies or hangs takes the episodes it holds with it: each of them raises EngineLostError at its next call,
and the next episode starts a new engine.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import itertools
import os
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from typing import TYPE_CHECKING, Any

from env_connectors.errors import EnvConfigError, EnvConnectorError

if TYPE_CHECKING:
    from env_connectors.alfworld.games import GameText
    from env_connectors.alfworld.house import House, View

START_TIMEOUT_S = 120.0
_NEEDED = ("textworld", "fast_downward", "alfworld")
_numbers = itertools.count()


class EngineError(EnvConnectorError, RuntimeError):
    """The engine refused a game or a command."""


class EngineLostError(EngineError):
    """The engine's process died or did not answer in time; the episode that was being played is lost."""


class EngineGoneError(EngineLostError):
    """The engine's process had ended before it was asked, because of another episode."""


def require_engine() -> None:
    """Raise EnvConfigError with one line if the optional packages are missing; nothing is imported."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise EnvConfigError(
            f"ALFWorld needs packages that are not installed ({', '.join(missing)}). Remedy: pip install "
            "'arlarena-rllib[alfworld]' with Python 3.11 or 3.12; building them needs g++ and make (apt-get install "
            "g++ make)."
        )


class EngineProcess:
    """One engine process and the socket to it."""

    def __init__(self) -> None:
        ours, theirs = Pipe()
        paths = os.pathsep.join(filter(None, sys.path))
        self._socket: Connection = ours
        self._lock = threading.Lock()
        self._left: deque[int] = deque()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "env_connectors.alfworld.worker", str(theirs.fileno()), str(os.getpid())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths},
        )
        theirs.close()
        self.owner = os.getpid()
        self.is_alive = True
        try:
            kind, value = self._receive(START_TIMEOUT_S, "start")
        except EngineError as error:
            kind, value = "error", error
        if kind == "error":
            self.kill()
            raise EngineError(f"the ALFWorld engine cannot start: {value}")

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def call(self, name: str, *arguments: Any, timeout_s: float) -> tuple[str, Any]:
        """Return ('ok', value) or ('need', key).

        Raises:
            EngineError: the engine refused.
            EngineGoneError: it had ended before.
            EngineLostError: it died, or did not answer in time and was killed.
        """
        with self._lock:
            if not self.is_alive:
                raise EngineGoneError(f"the engine process {self.pid} has ended")
            try:
                if left := [self._left.popleft() for _ in range(len(self._left))]:
                    self._socket.send(("forget", tuple(left)))
                    self._receive(timeout_s, "forget")
                self._socket.send((name, arguments))
                kind, value = self._receive(timeout_s, name)
            except (OSError, ValueError) as error:
                self.kill()
                raise EngineLostError(f"the engine process {self.pid} has died ({self._how()})") from error
            except BaseException:  # Ctrl-C, say: the answer on its way would be taken for that of the next question
                self.kill()
                raise
        if kind == "error":
            raise EngineError(value)
        return kind, value

    def leave(self, number: int) -> None:
        """Let an episode go with the next call; safe in a finalizer."""
        self._left.append(number)

    def _receive(self, timeout_s: float, name: str) -> tuple[str, Any]:
        try:
            if not self._socket.poll(timeout_s):
                self.kill()
                raise EngineLostError(f"the engine process {self.pid} did not answer {name!r} within {timeout_s:g} s")
            kind, value = self._socket.recv()
        except (EOFError, OSError) as error:
            self.kill()
            raise EngineLostError(f"the engine process {self.pid} has died ({self._how()})") from error
        return kind, value

    def _how(self) -> str:
        code = self._process.poll()
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

    def kill(self) -> None:
        """End the process at once and reap it."""
        self.is_alive = False
        with contextlib.suppress(OSError):
            self._socket.close()
        if self.owner != os.getpid():
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.2)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


_engine: EngineProcess | None = None
_engine_lock = threading.Lock()


def engine() -> EngineProcess:
    """Return the engine process of this Python process, started if there is none or it has ended."""
    global _engine
    with _engine_lock:
        if _engine is None or not _engine.is_alive or _engine.owner != os.getpid():
            _engine = EngineProcess()
        return _engine


@atexit.register
def close_engine() -> None:
    """End the engine process of this Python process, if there is one."""
    with _engine_lock:
        if _engine is not None and _engine.is_alive and _engine.owner == os.getpid():
            _engine.kill()


class RemoteEpisode:
    """One episode in the engine process.

    When another episode has ended that process, this one goes on in a new one, by the commands that it has had.
    """

    def __init__(self, key: str, read: Callable[[], GameText], *, timeout_s: float) -> None:
        """Begin the game `key`; `read` is called only when the engine does not hold it.

        Raises:
            EngineError: the engine cannot translate the game.
            EngineLostError: it died or hung.
            EnvConnectorError: whatever `read` raises.
        """
        self._key, self._read, self._timeout_s = key, read, timeout_s
        self._commands: list[str] = []
        self._begin()

    def _begin(self) -> None:
        self._number, self._engine = next(_numbers), engine()
        weakref.finalize(self, self._engine.leave, self._number)
        kind, view = self._engine.call("begin", self._number, self._key, timeout_s=self._timeout_s)
        if kind == "need":
            view = self._engine.call("begin", self._number, self._key, self._read(), timeout_s=self._timeout_s)[1]
        self.view: View = view
        for command in self._commands:
            self.view = self._engine.call("step", self._number, command, timeout_s=self._timeout_s)[1]

    def _ask(self, name: str, *arguments: Any) -> Any:
        try:
            return self._engine.call(name, self._number, *arguments, timeout_s=self._timeout_s)[1]
        except EngineGoneError:
            self._begin()
            return self._engine.call(name, self._number, *arguments, timeout_s=self._timeout_s)[1]

    def step(self, command: str) -> View:
        """Play one command; raises as the beginning does."""
        self.view = self._ask("step", command)
        self._commands.append(command)
        return self.view

    def house(self) -> House:
        """Return everything that is true now."""
        return self._ask("house")
