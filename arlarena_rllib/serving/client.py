"""How rollout code asks for answers: one awaitable call per request, many of them travel together."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from arlarena_rllib.errors import ServingError
from arlarena_rllib.serving.engines.base import Engine, EngineDiedError, GenerationRequest, GenerationResult
from arlarena_rllib.serving.wire import pack_requests, unpack_results

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

logger = logging.getLogger(__name__)

COALESCE_WINDOW_S = 0.001
"""How long the first request of a call waits for others that are made in the same moment."""


@dataclass(frozen=True)
class ClientSpec:
    """What a process needs to reach a policy; picklable.

    Attributes:
        app_name: Name of the Serve app, or of the local policy.
        is_local: True for a policy that lives in the driver process.
        num_replicas: Requests made together are spread over this many replicas.
        request_timeout_s: Longest wait for one answer, retries included.
        retry_budget_s: Longest time that a request is retried after its replica has died.
    """

    app_name: str
    is_local: bool = False
    num_replicas: int = 1
    request_timeout_s: float = 300.0
    retry_budget_s: float = 180.0


class Client(Protocol):
    """What rollout code sees of a policy."""

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        """Return the answer to one request; ServingError when there is none in time."""

    async def close(self) -> None:
        """Drop what is still running; the client can be used again, also in a new event loop."""

    def stats(self) -> dict[str, float]:
        """Return counters since the last call of this method."""


class ClientStats:
    """Counters of a client: plain numbers, reset when read."""

    KEYS = ("requests", "handle_calls", "retries", "timeouts", "prompt_tokens", "response_tokens", "wait_s")

    def __init__(self) -> None:
        self.values = dict.fromkeys(self.KEYS, 0.0)

    def add(self, request: GenerationRequest, result: GenerationResult, wait_s: float) -> None:
        """Count one answered request."""
        self.values["requests"] += 1
        self.values["prompt_tokens"] += len(request.prompt_ids)
        self.values["response_tokens"] += len(result.token_ids)
        self.values["wait_s"] += wait_s

    def take(self) -> dict[str, float]:
        """Return the counters and start again at zero."""
        values, self.values = self.values, dict.fromkeys(self.KEYS, 0.0)
        return values


@dataclass(slots=True, eq=False)
class _Pending:
    """A request whose answer somebody awaits; ``failing_since`` is the time of its first infrastructure error."""

    request: GenerationRequest
    future: asyncio.Future[GenerationResult]
    failing_since: float | None = None


class PolicyClient:
    """Client of a served policy, for the private event loop of a rollout actor.

    Requests of the same moment become one streaming call per replica; each answer is delivered when it is finished.
    """

    def __init__(self, spec: ClientSpec) -> None:
        self._spec = spec
        self._handle: DeploymentHandle[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[_Pending] = []
        self._calls: set[asyncio.Task[None]] = set()
        self._stats = ClientStats()

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        started = time.monotonic()
        self._get_handle()  # A missing app is an error at once, not something to retry.
        pending = _Pending(request, asyncio.get_running_loop().create_future())
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
        self._stats.add(request, result, time.monotonic() - started)
        return result

    async def close(self) -> None:
        for pending in self._waiting:
            pending.future.cancel()
        calls, self._calls, self._waiting, self._loop = self._calls, set(), [], None
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    def stats(self) -> dict[str, float]:
        return self._stats.take()

    def _enqueue(self, pending: _Pending) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._waiting, self._calls = loop, [], set()
        if not self._waiting:
            loop.call_later(COALESCE_WINDOW_S, self._flush)
        self._waiting.append(pending)

    def _flush(self) -> None:
        """Send what has been collected, in equal parts for the replicas."""
        collected = [pending for pending in self._waiting if not pending.future.done()]
        self._waiting = []
        if not collected:
            return
        part_size = -(-len(collected) // max(1, self._spec.num_replicas))
        for start in range(0, len(collected), part_size):
            call = asyncio.get_running_loop().create_task(self._answer_part(collected[start : start + part_size]))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def _answer_part(self, part: list[_Pending]) -> None:
        """Make one call, and leave nobody waiting when it is cancelled."""
        try:
            await self._call(part)
        finally:
            for pending in part:
                if not pending.future.done() and pending not in self._waiting:
                    pending.future.cancel()

    async def _call(self, part: list[_Pending]) -> None:
        """Deliver the answers of one streaming call; requests that it loses are sent again."""
        try:
            async for index, result in self._stream(part):
                if not part[index].future.done():
                    part[index].future.set_result(result)
            lost: Exception = EngineDiedError("the stream ended early")
        except infrastructure_errors() as error:
            lost = error
        except Exception as error:  # noqa: BLE001  A fault of the code, not of the machines: the callers get it.
            for pending in part:
                if not pending.future.done():
                    pending.future.set_exception(error)
            return
        unanswered = [pending for pending in part if not pending.future.done()]
        if unanswered:
            await self._retry(unanswered, lost)

    async def _stream(self, part: list[_Pending]) -> AsyncIterator[tuple[int, GenerationResult]]:
        self._stats.values["handle_calls"] += 1
        packed = pack_requests([pending.request for pending in part])
        stream = self._get_handle().generate_stream.remote(packed)
        try:
            async for packed_results in stream:
                for index, result in unpack_results(packed_results):
                    yield index, result
                if all(pending.future.done() for pending in part):
                    return
        finally:
            if not all(pending.future.done() and not pending.future.cancelled() for pending in part):
                stream.cancel()

    async def _retry(self, unanswered: list[_Pending], error: Exception) -> None:
        """Wait and enqueue again; fail the requests whose budget is spent."""
        now = time.monotonic()
        for pending in unanswered:
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
                self._handle = serve.get_app_handle(self._spec.app_name).options(stream=True)
            except RayServeException as error:
                raise ServingError(f"There is no Serve app {self._spec.app_name!r} in this cluster: {error}") from error
        return self._handle


class LocalPolicyClient:
    """Client of an engine in this process."""

    def __init__(self, engine: Engine, spec: ClientSpec) -> None:
        self._engine = engine
        self._spec = spec
        self._stats = ClientStats()

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._spec.request_timeout_s):
                result = await self._engine.generate(request)
        except TimeoutError as error:
            self._stats.values["timeouts"] += 1
            raise ServingError(
                f"The local engine did not answer within request_timeout_s={self._spec.request_timeout_s:g}."
            ) from error
        self._stats.add(request, result, time.monotonic() - started)
        return result

    async def close(self) -> None:
        """Nothing is kept between calls."""

    def stats(self) -> dict[str, float]:
        return self._stats.take()


LOCAL_ENGINES: dict[str, Engine] = {}
"""Engines of this process by app name, see ``LocalPolicy``."""


def connect(spec: ClientSpec) -> Client:
    """Return a client for the policy of ``spec``; nothing is sent yet.

    Raises:
        ServingError: A local policy is not in this process.
    """
    if not spec.is_local:
        return PolicyClient(spec)
    if spec.app_name not in LOCAL_ENGINES:
        raise ServingError(
            f"The local policy {spec.app_name!r} is not in this process: num_replicas=0 works with "
            "num_env_runners=0 only; set num_replicas >= 1 for remote runners."
        )
    return LocalPolicyClient(LOCAL_ENGINES[spec.app_name], spec)


def root_cause(error: BaseException) -> BaseException:
    """Return what was raised in a remote process without the remote traceback that Ray puts around it."""
    return getattr(error, "cause", None) or error


def infrastructure_errors() -> tuple[type[Exception], ...]:
    """Return the errors after which the same request can succeed on another or a restarted replica."""
    from ray import exceptions
    from ray.serve.exceptions import RayServeException

    return (
        exceptions.RayActorError,
        exceptions.WorkerCrashedError,
        exceptions.NodeDiedError,
        exceptions.ObjectLostError,
        exceptions.RpcError,
        exceptions.TaskCancelledError,
        RayServeException,
        EngineDiedError,
    )
