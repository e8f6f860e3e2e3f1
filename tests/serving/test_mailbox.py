"""A client's newest call on a replica takes away what its earlier ones wait for."""

from __future__ import annotations

import asyncio

import pytest

from arlarena_rllib.serving import GenerationRequest, GenerationResult
from arlarena_rllib.serving.engines.base import EngineDiedError
from arlarena_rllib.serving.mailbox import Mailbox


class GatedEngine:
    """Answers a request when its gate (the first prompt id) is opened."""

    def __init__(self, count: int) -> None:
        self.gates = [asyncio.Event() for _ in range(count)]
        self.aborted: list[int] = []
        self.error: Exception | None = None

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        number = request.prompt_ids[0]
        try:
            await self.gates[number].wait()
        except asyncio.CancelledError:
            self.aborted.append(number)
            raise
        if self.error is not None:
            raise self.error
        return GenerationResult([number], [0.0], "stop", [0])


def numbered(*numbers: int) -> list[tuple[int, GenerationRequest]]:
    return [(number, GenerationRequest([number], 1)) for number in numbers]


def test_later_call_gets_the_answers_of_the_earlier_one_which_ends() -> None:
    async def run() -> None:
        engine = GatedEngine(4)
        mailbox = Mailbox(engine)
        mailbox.submit(10, numbered(0, 1))
        first = asyncio.create_task(mailbox.take(10))
        await asyncio.sleep(0)
        mailbox.submit(11, numbered(2, 3))
        assert await first == []
        for number in (0, 3):
            engine.gates[number].set()
        assert sorted(number for number, _ in await mailbox.take(11)) == [0, 3]
        assert mailbox.num_running == 2
        engine.gates[1].set()
        assert [(number, result.token_ids) for number, result in await mailbox.take(11)] == [(1, [1])]
        engine.gates[2].set()
        assert [number for number, _ in await mailbox.take(11)] == [2]
        assert await mailbox.take(11) == [] and mailbox.num_running == 0

    asyncio.run(asyncio.wait_for(run(), 10))


def test_answers_of_one_moment_come_together() -> None:
    async def run() -> None:
        engine = GatedEngine(3)
        mailbox = Mailbox(engine)
        mailbox.submit(1, numbered(0, 1, 2))
        waiting = asyncio.create_task(mailbox.take(1))
        await asyncio.sleep(0)
        for gate in engine.gates:
            gate.set()
        assert sorted(number for number, _ in await waiting) == [0, 1, 2]

    asyncio.run(asyncio.wait_for(run(), 10))


def test_error_of_the_engine_is_raised_for_the_call_that_holds() -> None:
    async def run() -> None:
        engine = GatedEngine(2)
        engine.error = EngineDiedError("gone")
        mailbox = Mailbox(engine)
        mailbox.submit(1, numbered(0, 1))
        engine.gates[0].set()
        with pytest.raises(EngineDiedError, match="gone"):
            await mailbox.take(1)
        mailbox.close()
        await asyncio.sleep(0)
        assert engine.aborted == [1]

    asyncio.run(asyncio.wait_for(run(), 10))
