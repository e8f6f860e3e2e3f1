"""Environments behind daemon threads, with a time limit for every call."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class EnvCallTimeout(TimeoutError):
    """A reset or step did not come back in time; its environment is not used again."""


@dataclass(slots=True, eq=False)
class _Call:
    """One blocking call, its future, and when a thread began with it."""

    function: Callable[[], Any]
    future: asyncio.Future[Any]
    timeout_s: float
    began: float | None = None
    value: Any = None
    error: Exception | None = None


class EnvPool:
    """Lends environments to episodes and runs their blocking calls outside the event loop.

    A call that outlives its limit cannot be stopped: its thread is given up (it is a daemon, so it never keeps the
    process alive) and another one takes its place.

    The event loop is woken once for all calls that have ended since it looked last: with steps of a fraction of a
    millisecond a wake-up each would cost more than the steps.
    """

    def __init__(self, create: Callable[[], Any], *, num_threads: int = 2) -> None:
        """``create`` makes one environment; it is called when no idle one is left."""
        self._create = create
        self._idle: list[Any] = []
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._ended: deque[_Call] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_woken = False
        self._num_threads = num_threads
        self.abandoned = 0
        for _ in range(num_threads):
            self._add_thread()

    def _add_thread(self) -> None:
        threading.Thread(target=self._work, name="env", daemon=True).start()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call.began = time.monotonic()
            try:
                call.value = call.function()
            except Exception as error:  # noqa: BLE001  handed to the caller, who decides
                call.error = error
            self._ended.append(call)
            if not self._is_woken:
                self._is_woken = True
                self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits for what a late call brings.
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        """Hand over what has ended; the flag falls first, so that whatever ends from now on wakes the loop again."""
        self._is_woken = False
        while self._ended:
            call = self._ended.popleft()
            if call.future.done() or call.future.get_loop() is not self._loop:
                continue
            if call.error is None:
                call.future.set_result(call.value)
            else:
                call.future.set_exception(call.error)

    async def run(self, function: Callable[..., T], *args: Any, timeout_s: float, **kwargs: Any) -> T:
        """Return ``function(*args, **kwargs)``, run in a thread.

        Raises:
            EnvCallTimeout: it took longer than ``timeout_s`` once it had begun.
            Exception: whatever the function raises.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._is_woken = loop, False
        call = _Call(partial(function, *args, **kwargs), loop.create_future(), timeout_s)
        watch = loop.call_later(timeout_s, self._watch, call)
        self._calls.put(call)
        try:
            return await call.future
        finally:
            watch.cancel()

    def _watch(self, call: _Call) -> None:
        """Give up ``call`` if its time is over, else look again when it may be."""
        if call.future.done():
            return
        left_s = call.timeout_s - (0.0 if call.began is None else time.monotonic() - call.began)
        if left_s > 0:
            call.future.get_loop().call_later(left_s, self._watch, call)
            return
        self.abandoned += 1
        self._add_thread()
        call.future.set_exception(EnvCallTimeout(f"the environment did not answer within {call.timeout_s:g} s"))

    async def acquire(self, timeout_s: float) -> Any:
        """Return an idle environment or a new one."""
        return self._idle.pop() if self._idle else await self.run(self._create, timeout_s=timeout_s)

    def release(self, env: Any) -> None:
        """Take back an environment that is in working order."""
        self._idle.append(env)

    def close(self) -> None:
        """Close the idle environments and end the threads that are not stuck."""
        for env in self._idle:
            env.close()
        self._idle.clear()
        for _ in range(self._num_threads):
            self._calls.put(None)
