"""The requests of one client on one replica, whose answers the newest of its calls takes away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from arlarena_rllib.serving.engines.base import Engine, GenerationRequest, GenerationResult

Answer = tuple[int, GenerationResult]


class Mailbox:
    """Runs requests and keeps what has ended until it is taken.

    Requests that come together do not end together. Were each call to stream its own answers, nearly every answer would
    travel alone, and a message costs as much as the decoding of several tokens. So a client's newest call takes over
    all that its earlier ones are waiting for, and one message per engine step carries every answer of that step.

    Attributes:
        holder: number of the call that takes the answers.
        num_running: requests without an answer.
    """

    def __init__(self, engine: Engine) -> None:
        self.holder = -1
        self._engine = engine
        self._running: dict[int, asyncio.Task[None]] = {}
        self._ended: list[Answer] = []
        self._error: Exception | None = None
        self._news = asyncio.Event()

    @property
    def num_running(self) -> int:
        return len(self._running)

    def submit(self, call: int, requests: Iterable[tuple[int, GenerationRequest]]) -> None:
        """Start ``requests``, each with the number that its answer will carry, and make ``call`` the holder."""
        self.holder = call
        self._news.set()
        for number, request in requests:
            self._running[number] = asyncio.create_task(self._answer(number, request))

    async def take(self, call: int) -> list[Answer]:
        """Return what has ended since the last time, at least one answer; [] when ``call`` need not wait any more.

        Raises:
            Exception: what the engine raised; it concerns every request.
        """
        while self.holder == call:
            if self._error is not None:
                raise self._error
            if self._ended:
                ended, self._ended = self._ended, []
                return ended
            if not self._running:
                return []
            self._news.clear()
            await self._news.wait()
        return []

    def close(self) -> None:
        """Abort what is still running."""
        for task in self._running.values():
            task.cancel()

    async def _answer(self, number: int, request: GenerationRequest) -> None:
        try:
            result = await self._engine.generate(request)
            self._ended.append((number, result))
        except Exception as error:  # noqa: BLE001  Of any engine; raised again by the call that takes the answers.
            self._error = error
        del self._running[number]
        self._news.set()
