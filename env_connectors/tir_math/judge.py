"""Is an answer equivalent to the right one? Exact comparison first, then math-verify in a process under a wall clock.

One worker serves all environments and threads of a process, one check at a time; it starts with the first answer that needs it
and ends with the process, or by `close`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from env_connectors.errors import AnswerCheckError, EnvConfigError
from env_connectors.tir_math import exact

TIMEOUT_S = 3.0
_START_S = 120.0
_TRIES = 2
_GRACE_S = 10.0  # beyond the worker's own clock; only a machine that stands still needs it
_WORKER = Path(__file__).with_name("judge_worker.py")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Verdict:
    """What was found.

    Attributes:
        is_equal: the answer is equivalent to the right one.
        by: 'exact', 'math_verify', 'timeout' (the check was given up) or 'unread' (it is no mathematics).
    """

    is_equal: bool
    by: str


class Judge:
    """Compares answers; may be used from any threads."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        """Prepare; `timeout_s` is the wall clock of one check by math-verify."""
        self.timeout_s = timeout_s
        self._lock = threading.Lock()
        self._worker: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._rest = b""

    @property
    def pid(self) -> int | None:
        """Process id of the worker, None when there is none."""
        return self._worker.pid if self._worker and self._worker.poll() is None else None

    def compare(self, gold: str, given: str, *, is_strict: bool = False) -> Verdict:
        """Return whether an answer is equivalent to the right one.

        Args:
            gold: the right answer.
            given: to compare with it.
            is_strict: what was asked is to work something out, so '2 + 3' is no answer where 5 is, nor a product of
                polynomials where the expanded form is.

        Raises:
            EnvConfigError: math-verify is needed and not installed.
        """
        gold, given = exact.with_powers(gold), exact.with_powers(given)
        found = exact.compare(gold, given)
        if found is None and is_strict and not exact.is_worked_out(gold, given):
            found = False
        if found is not None:
            return Verdict(found, "exact")
        return _remembered(self, gold, given)

    def ask(self, gold: str, given: str) -> Verdict:
        """Return what math-verify says, without the exact comparison.

        A worker that its own clock ended has given the check up. One that died otherwise (killed, out of memory) says nothing
        about the answer: another one is asked once.

        Raises:
            EnvConfigError: math-verify is not installed.
            AnswerCheckError: the worker cannot be started.
        """
        require_math_verify()
        with self._lock:
            if self._owner != os.getpid():  # a forked process has a worker of its own
                self._worker, self._owner, self._rest = None, os.getpid(), b""
            request = json.dumps({"gold": gold, "given": given, "timeout_s": self.timeout_s}).encode() + b"\n"
            for _ in range(_TRIES):
                self._start_if_needed()
                try:
                    told = json.loads(self._exchange(request, self.timeout_s + _GRACE_S))
                    return Verdict(told["equal"], "math_verify" if told["read"] or told["equal"] else "unread")
                except (OSError, EOFError, ValueError) as error:  # a TimeoutError is an OSError
                    _log.info("an answer could not be checked: %s %s", type(error).__name__, error)
                    is_given_up = isinstance(error, TimeoutError) or self._stop() == -signal.SIGALRM
                    self._stop()
                    if is_given_up:
                        break
        return Verdict(False, "timeout")

    def close(self) -> None:
        """End the worker; a later check starts another one."""
        with self._lock:
            self._stop()

    def _start_if_needed(self) -> None:
        error: Exception | None = None
        for _ in range(_TRIES):
            if self.pid is not None:
                return
            try:
                self._start()
                return
            except (OSError, EOFError) as caught:
                error = caught
                self._stop()
        raise AnswerCheckError(
            f"the process that compares answers cannot be started: {type(error).__name__} {error}. Is there memory left? "
            f"Remedy: see what `{sys.executable} -P {_WORKER}` says."
        ) from error

    def _start(self) -> None:
        self._stop()
        self._worker = subprocess.Popen(
            [sys.executable, "-P", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        if self._exchange(b"", _START_S) != b"ready":
            raise EOFError("the worker did not start")

    def _exchange(self, request: bytes, timeout_s: float) -> bytes:
        """Send a line and return the next one."""
        worker = self._worker
        assert worker is not None and worker.stdin is not None and worker.stdout is not None, (
            "it was started with pipes"
        )
        if request:
            worker.stdin.write(request)
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            ready, _, _ = select.select([worker.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"no answer within {timeout_s:g} s")
            if not (chunk := os.read(worker.stdout.fileno(), 1 << 16)):
                raise EOFError("the worker has ended")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _stop(self) -> int | None:
        """End the worker; return how it ended, None when there is none."""
        worker, self._worker, self._rest = self._worker, None, b""
        if worker is None or self._owner != os.getpid():
            return None
        with contextlib.suppress(OSError):
            worker.kill()  # does nothing to one that has ended
        worker.wait()
        for pipe in (worker.stdin, worker.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        return worker.returncode


@lru_cache(maxsize=8192)
def _remembered(judge: Judge, gold: str, given: str) -> Verdict:
    return judge.ask(gold, given)


def require_math_verify() -> None:
    """Raise EnvConfigError where math-verify is not installed."""
    for module in ("math_verify", "latex2sympy2_extended", "antlr4"):
        if importlib.util.find_spec(module) is None:
            raise EnvConfigError(
                f"answers are checked with math-verify, and there is no module {module!r}. Remedy: pip install "
                "'arlarena-rllib[tir_math]'."
            )


@lru_cache(maxsize=8)
def process_judge(timeout_s: float = TIMEOUT_S) -> Judge:
    """Return the judge that the environments of this process share."""
    return Judge(timeout_s)
