"""One sandbox for all environments of a process: they hold a lease each, and open a session an episode."""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass

from env_connectors.errors import EnvConfigError
from env_connectors.tir_math.sandbox import IsolationError, Limits, Sandbox, SandboxUnavailableError, Session


@dataclass(frozen=True)
class SandboxSettings:
    """What two environments must agree on to share a sandbox."""

    limits: Limits
    packages: tuple[str, ...]
    unsafe_no_isolation: bool = False


@dataclass
class _Shared:
    sandbox: Sandbox
    leases: int = 0


_lock = threading.RLock()
_shared: dict[tuple[int, SandboxSettings], _Shared] = {}


class SandboxLease:
    """A right to sessions in the process's sandbox of these settings.

    Nothing is started before the first session. `close` of the last lease ends the sandbox; a lease that is merely
    forgotten leaves it to the next one, or to the end of the process, which ends it in any case.
    """

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings
        self._key: tuple[int, SandboxSettings] | None = None
        self._forget: weakref.finalize | None = None

    def session(self) -> Session:
        """Open a session, start the sandbox before if none of the process's environments has.

        Raises:
            EnvConfigError: programs cannot be isolated on this machine, or a package is not installed; the message says what
                could be done.
            SandboxError: the sandbox cannot be started again.
        """
        return self._sandbox().session()

    def start(self) -> None:
        """Start the sandbox if it does not run; raises what `session` raises."""
        self._sandbox()

    @property
    def pid(self) -> int | None:
        """Process id of the sandbox, None when it does not run."""
        with _lock:
            shared = _shared.get(self._key) if self._key else None
            return shared.sandbox.pid if shared else None

    def close(self) -> bool:
        """Give the lease back and return whether it was the last one, with which the sandbox ends.

        May be called twice, and a later session takes a new lease.
        """
        with _lock:
            shared = self._drop()
            if shared is None or shared.leases > 0:
                return False
            _shared.pop((os.getpid(), self._settings), None)
        shared.sandbox.close()
        return True

    def _drop(self) -> _Shared | None:
        if self._forget is not None:
            self._forget.detach()
        key, self._key, self._forget = self._key, None, None
        return _released(key) if key is not None else None

    def _sandbox(self) -> Sandbox:
        with _lock:
            key = os.getpid(), self._settings
            if self._key != key:  # the first time, or in a forked process
                shared = _shared.get(key) or _Shared(self._made())
                _shared[key] = shared
                shared.leases += 1
                self._key, self._forget = key, weakref.finalize(self, _released, key)
                self._forget.atexit = False
            sandbox = _shared[key].sandbox
        try:
            return sandbox.start()
        except (SandboxUnavailableError, IsolationError) as error:
            raise EnvConfigError(
                f"TIRMath cannot run programs on this machine: {error} Remedy: docs/sandbox.md says what namespaces need; "
                "env_config.unsafe_no_isolation=true runs programs without isolation, not as root."
            ) from error

    def _made(self) -> Sandbox:
        settings = self._settings
        return Sandbox(settings.limits, packages=settings.packages, unsafe_no_isolation=settings.unsafe_no_isolation)


def _released(key: tuple[int, SandboxSettings]) -> _Shared | None:
    with _lock:
        shared = _shared.get(key)
        if shared is not None:
            shared.leases -= 1
        return shared
