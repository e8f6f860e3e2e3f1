"""Client of a policy on Ray Serve: one awaitable call per request, many of them travel together."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arlarena_rllib.errors import ServingError
from arlarena_rllib.serving.client import ClientSpec, ClientStats, infrastructure_errors, root_cause
from arlarena_rllib.serving.engines.base import GenerationRequest, GenerationResult
from arlarena_rllib.serving.wire import pack_requests, unpack_results

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

logger = logging.getLogger(__name__)

COALESCE_WINDOW_S = 0.001
"""How long the first request of a call waits for others that are made in the same moment."""

TAKEN_OVER = -1
"""In place of a call: some later one brings the answer. Which one is not told, so the loss of any sends it again."""


@dataclass(slots=True, eq=False)
class _Pending:
    """A request whose answer somebody awaits.

    Attributes:
        number: What its answer carries.
        call: The call that waits for the answer, TAKEN_OVER when another one does, None while it is not sent.
        failing_since: Time of its first infrastructure error.
    """

    number: int
    request: GenerationRequest
    future: asyncio.Future[GenerationResult]
    call: int | None = None
    failing_since: float | None = None


class PolicyClient:
    """Client of a served policy, for the private event loop of a rollout actor.

    Requests of the same moment become one streaming call per replica. The newest call at a replica also brings the
    answers that earlier ones wait for, see ``Mailbox``.
    """

    def __init__(self, spec: ClientSpec) -> None:
        self._spec = spec
        self._handle: DeploymentHandle[Any] | None = None
        self._stats = ClientStats()
        self._numbers = itertools.count()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._forget()

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        started = time.monotonic()
        self._get_handle()  # A missing app is an error at once, not something to retry.
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._forget()
            self._loop = loop
        pending = _Pending(next(self._numbers), request, loop.create_future())
        self._enqueue(pending)
        try:
            async with asyncio.timeout(self._spec.request_timeout_s):
                result = await pending.future
        except TimeoutError as error:
            self._stats.values["timeouts"] += 1
            raise ServingError(
                f"App {self._spec.app_name!r} did not answer within request_timeout_s={self._spec.request_timeout_s:g} "
                f"(prompt {len(request.prompt_ids)} tokens, max_tokens {request.max_tokens}); raise the limit or "
                "lower the number of concurrent episodes."
            ) from error
        finally:
            self._pending.pop(pending.number, None)
        self._stats.add(request, result, time.monotonic() - started)
        return result

    async def close(self) -> None:
        for pending in self._pending.values():
            pending.future.cancel()
        calls = list(self._calls.values())
        self._forget()
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    def stats(self) -> dict[str, float]:
        return self._stats.take()

    def _forget(self) -> None:
        """Start anew: replicas see another client, so that nothing of earlier calls reaches later ones."""
        self._name = uuid.uuid4().hex
        self._loop = None
        self._pending: dict[int, _Pending] = {}
        self._waiting: list[_Pending] = []
        self._calls: dict[int, asyncio.Task[None]] = {}

    def _enqueue(self, pending: _Pending) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_later(COALESCE_WINDOW_S, self._flush)
        pending.call = None
        self._pending[pending.number] = pending
        self._waiting.append(pending)

    def _flush(self) -> None:
        """Send what has been collected, in equal parts for the replicas."""
        collected = [pending for pending in self._waiting if not pending.future.done()]
        self._waiting = []
        if not collected:
            return
        part_size = -(-len(collected) // max(1, self._spec.num_replicas))
        for start in range(0, len(collected), part_size):
            call, part = next(self._numbers), collected[start : start + part_size]
            for pending in part:
                pending.call = call
            self._calls[call] = asyncio.get_running_loop().create_task(self._run_call(call, part))

    async def _run_call(self, call: int, part: Sequence[_Pending]) -> None:
        """Deliver what one call brings; requests that it loses are sent again.

        A call that ends without an error has answered everything or was taken over by a later one.
        """
        try:
            await self._stream(call, part)
            for pending in self._unanswered(call):
                pending.call = TAKEN_OVER
            return
        except infrastructure_errors() as error:
            lost = error
        except Exception as error:  # noqa: BLE001  A fault of the code, not of the machines: the callers get it.
            for pending in self._unanswered(call):
                pending.future.set_exception(error)
            return
        finally:
            self._calls.pop(call, None)
        await self._retry([*self._unanswered(call), *self._unanswered(TAKEN_OVER)], lost)

    async def _stream(self, call: int, part: Sequence[_Pending]) -> None:
        self._stats.values["handle_calls"] += 1
        packed = pack_requests((pending.number, pending.request) for pending in part)
        stream = self._get_handle().generate_stream.remote(packed, self._name, call)
        try:
            async for packed_results in stream:
                for number, result in unpack_results(packed_results):
                    pending = self._pending.get(number)
                    if pending is not None and not pending.future.done():
                        pending.future.set_result(result)
        except asyncio.CancelledError:
            stream.cancel()
            raise

    def _unanswered(self, call: int) -> list[_Pending]:
        return [pending for pending in self._pending.values() if pending.call == call and not pending.future.done()]

    async def _retry(self, unanswered: Sequence[_Pending], error: Exception) -> None:
        """Wait and enqueue again; fail the requests whose budget is spent."""
        if not unanswered:
            return
        now = time.monotonic()
        for pending in unanswered:
            pending.call = None
            pending.failing_since = pending.failing_since or now
            failing_s = now - pending.failing_since
            if failing_s > self._spec.retry_budget_s:
                pending.future.set_exception(
                    ServingError(
                        f"App {self._spec.app_name!r} has not answered for {failing_s:.0f} s "
                        f"(retry_budget_s={self._spec.retry_budget_s:g}); last error: {root_cause(error)}"
                    )
                )
        again = [pending for pending in unanswered if not pending.future.done()]
        if not again:
            return
        failing_s = now - min(pending.failing_since or now for pending in again)
        delay_s = min(5.0, 0.25 + 0.5 * failing_s) * random.uniform(0.75, 1.25)
        logger.warning(
            "App %s lost %d requests (%s); sending them again in %.1f s.",
            self._spec.app_name,
            len(again),
            type(root_cause(error)).__name__,
            delay_s,
        )
        await asyncio.sleep(delay_s)
        self._stats.values["retries"] += len(again)
        for pending in again:
            if not pending.future.done():
                self._enqueue(pending)

    def _get_handle(self) -> DeploymentHandle[Any]:
        if self._handle is None:
            from ray import serve
            from ray.serve.exceptions import RayServeException

            try:
                handle = serve.get_app_handle(self._spec.app_name)
                # By gRPC from here to the replica, as RAY_SERVE_USE_GRPC_BY_DEFAULT does: half the cost of a message.
                self._handle = handle.options(stream=True, _by_reference=False)
            except RayServeException as error:
                raise ServingError(f"There is no Serve app {self._spec.app_name!r} in this cluster: {error}") from error
        return self._handle
