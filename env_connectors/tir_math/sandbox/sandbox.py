"""The sandbox seen from outside: a fork server in namespaces of its own, and sessions in which programs run.

    with Sandbox() as sandbox, sandbox.session() as session:
        result = session.run("print(2 + 2)")

A session is an episode: its calls share the files in /tmp and nothing else. Sessions may be used from any threads, one call
at a time each. Everything ends with the process that started it, however that ends.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import platform
import queue
import socket
import subprocess
import threading
import warnings
import weakref
from collections.abc import Sequence
from typing import Any, Self

from env_connectors.errors import EnvConfigError
from env_connectors.tir_math.sandbox import bwrap, selftest
from env_connectors.tir_math.sandbox.errors import IsolationError, SandboxError, SandboxUnavailableError
from env_connectors.tir_math.sandbox.inside import syscalls, wire
from env_connectors.tir_math.sandbox.limits import Limits
from env_connectors.tir_math.sandbox.result import RunResult, Status, result_of

PACKAGES = ("numpy", "sympy", "mpmath")
START_TIMEOUT_S = 120.0
_ANSWER_GRACE_S = 20.0  # beyond a call's own limit; only a machine that stands still needs it
_LOST = (
    "The sandbox broke down: the program was stopped and its files are gone. Nothing is known about the program itself."
)
_log = logging.getLogger(__name__)


class Sandbox:
    """Runs programs that nobody has read."""

    def __init__(
        self, limits: Limits | None = None, *, packages: Sequence[str] = PACKAGES, unsafe_no_isolation: bool = False
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            limits: Of every call; defaults of Limits.
            packages: Importable inside besides the standard library, with everything they need; imported once at the start.
            unsafe_no_isolation: Run programs with limits and the filter, but without namespaces: they can read what this
                account can read. Refused for root.
        """
        self.limits = limits or Limits()
        self.packages = tuple(packages)
        self.versions: dict[str, str] = {}
        self.report: list[selftest.Finding] = []
        """What the self-test tried at the start, and what stopped it."""
        self.is_isolated = not unsafe_no_isolation
        self._lock = threading.RLock()
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the sandbox's outermost process, None when it does not run."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> Self:
        """Start and prove the isolation; do nothing if it runs.

        Raises:
            SandboxUnavailableError: programs cannot be isolated here.
            IsolationError: the self-test reached what must be out of reach.
            EnvConfigError: a package is not installed.
        """
        with self._lock:
            self._check_owner()
            if self._is_closed:
                raise SandboxError("This sandbox is closed.")
            if self.pid is not None:
                return self
            self._stop()  # what is left of one that broke down
            self._refuse_or_warn()
            try:
                self._start()
                if self.is_isolated:
                    self._prove()
            except BaseException:
                self._stop()
                raise
            return self

    def _check_owner(self) -> None:
        if self._owner != os.getpid():
            raise SandboxError("This sandbox belongs to another process; make one here.")

    def _refuse_or_warn(self) -> None:
        machine = platform.machine()
        if platform.system() != "Linux" or machine not in syscalls.ARCHITECTURES:
            raise SandboxUnavailableError(
                f"The sandbox runs on Linux on x86_64 and aarch64, not {platform.system()} {machine}."
            )
        if self.is_isolated:
            return
        if os.geteuid() == 0:
            raise SandboxUnavailableError(
                "unsafe_no_isolation=True is refused for root: a program could read and change everything. Run as "
                f"another user, or with namespaces. {bwrap.REMEDY}"
            )
        text = (
            "unsafe_no_isolation=True: model-written programs run WITHOUT isolation and can read every file, and delete every "
            "file, that this account can. Only limits and a system call filter hold them."
        )
        warnings.warn(text, RuntimeWarning, stacklevel=4)
        _log.warning(text)

    def _start(self) -> None:
        errors = ""
        for proc in (True, False):
            if self._launch(proc=proc):
                return
            errors = self._stop() or errors
            if not self.is_isolated or "proc" not in errors:
                break
        raise SandboxUnavailableError(
            f"The sandbox cannot start: {errors.strip()[-600:] or 'its process ended without a word'}. Programs are never run "
            "without isolation. Namespaces need user namespaces for this account: sysctl user.max_user_namespaces and "
            "kernel.apparmor_restrict_unprivileged_userns, and in a container a seccomp profile that allows them."
        )

    def _launch(self, *, proc: bool) -> bool:
        """Start the fork server and wait for its first word; False if it ended instead."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        config = json.dumps({"packages": self.packages, "is_isolated": self.is_isolated})
        environment: dict[str, str] = {}
        if self.is_isolated:
            line = bwrap.command(bwrap.find_bwrap(), self.packages, theirs.fileno(), config, proc=proc)
        else:
            line, environment = bwrap.unsafe_command(self.packages, theirs.fileno(), config)
        started: queue.Queue[subprocess.Popen[bytes] | OSError] = queue.Queue()
        arguments: dict[str, Any] = {"pass_fds": [theirs.fileno()], "env": environment, "cwd": "/"}
        threading.Thread(target=_keep, args=(line, arguments, started), name="sandbox", daemon=True).start()
        process = started.get()
        theirs.close()
        self._control = ours
        if isinstance(process, OSError):
            raise SandboxUnavailableError(f"bwrap cannot be run: {process}") from process
        self._process = process
        ours.settimeout(START_TIMEOUT_S)
        try:
            word = ours.recv(1 << 16)
        except TimeoutError:
            raise SandboxUnavailableError(f"The sandbox did not start within {START_TIMEOUT_S:g} s.") from None
        except OSError:
            word = b""
        if not word:
            return False
        self.versions = json.loads(word)["versions"]
        return True

    def _prove(self) -> None:
        with self._open() as session:
            self.report = selftest.run(session.run)
        if failed := [finding for finding in self.report if not finding.is_contained]:
            raise IsolationError(
                "The sandbox is NOT isolated; no program was run. Reached: "
                + "; ".join(f"{finding.name}: {finding.seen}" for finding in failed)
            )

    def session(self) -> Session:
        """Open a session; starts the sandbox if it does not run.

        Raises:
            SandboxError: as `start`, or no session could be opened.
        """
        self.start()
        return self._open()

    def _open(self) -> Session:
        session = Session(self)
        self._sessions.add(session)
        try:
            session._connect()
        except BaseException:
            session.close()
            raise
        return session

    def _channel(self) -> socket.socket:
        """Return a socket to a new session inside."""
        ours, theirs = socket.socketpair()
        message = json.dumps(self.limits.as_message()).encode()
        with self._lock, theirs:
            try:
                if self._control is None:
                    raise SandboxError("This sandbox is not running.")
                socket.send_fds(self._control, [message], [theirs.fileno()])
            except OSError as error:
                ours.close()
                raise SandboxError(f"The sandbox has ended: {error}") from error
        ours.settimeout(_ANSWER_GRACE_S)
        try:
            header, _ = wire.receive(ours, 1 << 16)
        except (OSError, EOFError, wire.WireError) as error:
            ours.close()
            raise SandboxError(f"The sandbox opens no session: {type(error).__name__} {error}") from error
        if "error" in header:
            ours.close()
            raise SandboxUnavailableError(f"The sandbox opens no session: {header['error']}")
        return ours

    def _stop(self) -> str:
        """End the processes; return what they wrote to standard error."""
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_RDWR)  # also where a forked process holds a copy
            self._control.close()
            self._control = None
        process, self._process = self._process, None
        if process is None:
            return ""
        try:
            process.wait(2.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stderr is None:
            return ""
        with process.stderr:
            return process.stderr.read().decode("utf-8", "replace")

    def close(self) -> None:
        """End every session and every process; nothing is left. May be called twice."""
        self._is_closed = True
        if self._owner != os.getpid():
            return
        for session in list(self._sessions):  # without the lock: a call that waits for a start holds its session's
            session.close()
        with self._lock:
            self._stop()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


class Session:
    """One episode's private /tmp and the programs that share it; made by Sandbox.session."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_closed = False

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox that this session is in."""
        return self._sandbox

    def _connect(self) -> None:
        self._socket = self._sandbox._channel()

    def run(self, code: str, stdin: str = "", *, timeout_s: float | None = None) -> RunResult:
        """Run a program as a script of its own.

        Args:
            code: Python source.
            stdin: What it can read from standard input.
            timeout_s: Wall clock; the sandbox's limit by default.

        Raises:
            SandboxError: the session is closed, or the sandbox is lost and cannot be started again. Whatever the program
                does is a result.
        """
        self._sandbox._check_owner()
        limits = self._sandbox.limits
        time_s = limits.timeout_s if timeout_s is None else timeout_s
        if not 0 < time_s < 1e6:
            raise EnvConfigError(f"Session.run: timeout_s={timeout_s!r} must be positive seconds.")
        blobs = [text.encode("utf-8", "surrogatepass") for text in (code, stdin)]
        for name, blob in zip(("program", "input"), blobs, strict=True):
            if len(blob) > limits.input_bytes:
                note = f"The {name} was not taken: it has {len(blob)} bytes, at most {limits.input_bytes} are allowed."
                return RunResult("", "", Status.REJECTED, note)
        with self._lock:
            if self._is_closed:
                raise SandboxError("This session is closed.")
            if self._socket is None:
                self._sandbox.start()
                self._connect()
            channel = self._socket
            assert channel is not None
            try:
                channel.settimeout(time_s + _ANSWER_GRACE_S)
                wire.send(channel, {"timeout_s": time_s}, *blobs)
                header, parts = wire.receive(channel, limits.output_bytes + 1024)
                if parts[2][:1] == b"S":
                    raise wire.WireError(f"the program could not be confined and was not run: {parts[2][1:]!r}")
                return result_of(header, parts, limits, time_s, self._sandbox.packages)
            except (OSError, EOFError, wire.WireError, KeyError, ValueError) as error:
                self._drop()
                if self._is_closed:
                    raise SandboxError("This session was closed while a program ran.") from error
                _log.warning("a sandbox session was lost: %s %s", type(error).__name__, error)
                return RunResult("", "", Status.LOST, _LOST)

    def _drop(self) -> None:
        channel, self._socket = self._socket, None
        if channel is not None:
            with contextlib.suppress(OSError):
                channel.shutdown(socket.SHUT_WR)
                if not self._sandbox.is_isolated:  # its folder is on the host: wait until it is gone
                    channel.settimeout(_ANSWER_GRACE_S)
                    while channel.recv(1 << 16):
                        pass
                channel.shutdown(socket.SHUT_RDWR)
            channel.close()

    def close(self) -> None:
        """End the session, also in the midst of a call; its files are gone. May be called twice."""
        self._is_closed = True
        if self._sandbox._owner != os.getpid():
            return
        if (channel := self._socket) is not None:
            with contextlib.suppress(OSError):
                channel.shutdown(socket.SHUT_WR)  # the session ends, which wakes a call that waits in another thread
        with self._lock:
            self._drop()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


def _keep(line: list[str], arguments: dict[str, Any], started: queue.Queue[subprocess.Popen[bytes] | OSError]) -> None:
    """Start the process and stay until it ends: the kernel kills it with the thread that started it."""
    try:
        null = subprocess.DEVNULL
        process = subprocess.Popen(line, stdin=null, stdout=null, stderr=subprocess.PIPE, **arguments)
    except OSError as error:
        started.put(error)
        return
    started.put(process)
    process.wait()
