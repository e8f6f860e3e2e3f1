"""Environments behind daemon threads, with a time limit for every call."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class EnvCallTimeout(TimeoutError):
    """A reset or step did not come back in time; its environment is not used again."""


class EnvPool:
    """Lends environments to episodes and runs their blocking calls outside the event loop.

    A call that outlives its limit cannot be stopped: its thread is given up (it is a daemon, so it never keeps the
    process alive) and another one takes its place.
    """

    def __init__(self, create: Callable[[], Any], *, num_threads: int = 2) -> None:
        """``create`` makes one environment; it is called when no idle one is left."""
        self._create = create
        self._idle: list[Any] = []
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._num_threads = num_threads
        self.abandoned = 0
        for _ in range(num_threads):
            self._add_thread()

    def _add_thread(self) -> None:
        threading.Thread(target=self._work, name="env", daemon=True).start()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    async def run(self, function: Callable[..., T], *args: Any, timeout_s: float, **kwargs: Any) -> T:
        """Return ``function(*args, **kwargs)``, run in a thread.

        Raises:
            EnvCallTimeout: it took longer than ``timeout_s`` once it had begun.
            Exception: whatever the function raises.
        """
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        begun = asyncio.Event()

        def finish(value: Any, error: BaseException | None) -> None:
            if result.done():
                return
            if error is None:
                result.set_result(value)
            else:
                result.set_exception(error)

        def call() -> None:
            _post(loop, begun.set)
            try:
                value, error = function(*args, **kwargs), None
            except Exception as caught:  # noqa: BLE001  handed to the caller, who decides
                value, error = None, caught
            _post(loop, finish, value, error)

        self._calls.put(call)
        await begun.wait()
        try:
            return await asyncio.wait_for(result, timeout_s)
        except TimeoutError:
            self.abandoned += 1
            self._add_thread()
            raise EnvCallTimeout(f"the environment did not answer within {timeout_s:g} s") from None

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


def _post(loop: asyncio.AbstractEventLoop, function: Callable[..., Any], *args: Any) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function, *args)
