"""The Ray Serve deployment around one inference engine: streams answers, follows the newest weights."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from arlarena_rllib.errors import ServingError
from arlarena_rllib.serving.engines.base import (
    Engine,
    EngineDiedError,
    EngineEntry,
    EngineSpec,
    create_engine,
)
from arlarena_rllib.serving.mailbox import Answer, Mailbox
from arlarena_rllib.serving.weights import WeightStore, clean_stale_files, remove_app_files, write_local_file
from arlarena_rllib.serving.wire import PackedRequests, PackedResults, pack_results, unpack_requests

logger = logging.getLogger(__name__)

_ENGINE_PROCESS_ERROR = re.compile(r"EngineCore.*?\] (\w*(?:Error|Exception): .+)$", re.MULTILINE)

STARTUP_ERROR_GRACE_S = 60.0
"""How long a replica whose engine did not start stays up so that the driver can read why."""


class PolicyServer:
    """One replica: an engine, the weights it serves, and counters.

    An engine that does not start is kept as ``startup_error`` instead of raised: Serve would otherwise retry the
    constructor without telling the driver the reason.
    """

    async def __init__(  # type: ignore[misc]  # Serve awaits it.
        self, spec: EngineSpec, entry: EngineEntry, app_name: str
    ) -> None:
        self._spec = spec
        self._app_name = app_name
        self._engine: Engine | None = None
        self._startup_error: str | None = None
        self._store = WeightStore.find(app_name)
        self._serial = 0
        self._pull_lock = asyncio.Lock()
        self._counts = {"num_requests": 0, "num_tokens": 0, "num_calls": 0}
        self._mailboxes: dict[str, Mailbox] = {}
        self._follower: asyncio.Task[None] | None = None
        clean_stale_files()
        try:
            await self._start_engine(entry)
        except Exception as error:  # The boundary to engines of any kind: whatever it is must reach the driver.
            logger.exception("The engine of app %s did not start.", app_name)
            self._startup_error = describe_startup_error(error)
        self._ready_at = time.monotonic()

    async def _start_engine(self, entry: EngineEntry) -> None:
        engine = create_engine(self._spec, entry)
        await engine.start()
        self._engine = engine
        gc.collect()
        gc.freeze()  # What was imported stays: the collector need not walk through it again and again.
        if self._store is not None:
            await self._pull()
            self._follower = asyncio.create_task(self._follow_store(self._store))

    async def generate_stream(self, packed: PackedRequests, client: str, call: int) -> AsyncIterator[PackedResults]:
        """Answer requests; yields numbered results of all calls of ``client`` on this replica as they end.

        A later call of the same client takes over: this one ends then.

        Args:
            packed: The requests, each with a number that no other request of the client has.
            client: Who asks.
            call: Number of this call among those of the client.

        Raises:
            EngineDiedError: The engine as a whole cannot answer.
        """
        engine = self._require_engine()
        mailbox = self._mailboxes.setdefault(client, Mailbox(engine))
        self._counts["num_calls"] += 1
        mailbox.submit(call, unpack_requests(packed))
        try:
            while ended := await self._take(mailbox, call):
                yield pack_results(ended)
        finally:
            if mailbox.holder == call:
                mailbox.close()
                del self._mailboxes[client]

    async def probe(self, packed: PackedRequests) -> PackedResults:
        """Answer requests with this replica and return all results at once."""
        engine = self._require_engine()
        requests = unpack_requests(packed)
        results = await asyncio.gather(*(engine.generate(request) for _, request in requests))
        return pack_results((number, result) for (number, _), result in zip(requests, results, strict=True))

    async def update_weights(self, version: int) -> dict[str, Any]:
        """Load the newest weights of the store unless they are loaded already; returns the status.

        Raises:
            ServingError: The store holds another version than the expected one, or they do not fit the model.
        """
        self._require_engine()
        await self._pull()
        status = await self.status()
        if status["version"] != version:
            raise ServingError(
                f"Replica {status['replica_id']} of app {self._app_name!r} has weight version {status['version']} "
                f"after a push of version {version}; two publishers for one app are not allowed."
            )
        return status

    async def status(self) -> dict[str, Any]:
        """Return version, start-up error, process, memory and counters of this replica."""
        import psutil
        from ray import get_runtime_context, serve

        process = psutil.Process()
        family = [process, *process.children(recursive=True)]
        return {
            "version": self._engine.weight_version if self._engine is not None else -1,
            "startup_error": self._startup_error,
            "engine": self._spec.engine,
            "replica_id": serve.get_replica_context().replica_tag,
            "node_id": get_runtime_context().get_node_id(),
            "pid": os.getpid(),
            "rss_mb": sum(_rss_bytes(member) for member in family) / 1e6,
            "num_running": sum(mailbox.num_running for mailbox in self._mailboxes.values()),
            **self._counts,
        }

    async def check_health(self) -> None:
        """Raise when the replica should be replaced."""
        if self._startup_error is not None:
            if time.monotonic() - self._ready_at > STARTUP_ERROR_GRACE_S:
                raise ServingError(self._startup_error)
            return
        await self._require_engine().check_health()

    async def __del__(self) -> None:
        """Stop the engine; Serve awaits this when the replica is shut down."""
        if self._follower is not None:
            self._follower.cancel()
        if self._engine is not None:
            await self._engine.stop()

    def _require_engine(self) -> Engine:
        if self._engine is None or self._startup_error is not None:
            raise EngineDiedError(f"The engine of app {self._app_name!r} did not start: {self._startup_error}")
        return self._engine

    async def _take(self, mailbox: Mailbox, call: int) -> list[Answer]:
        """Return the next answers for ``call`` and count them."""
        try:
            ended = await mailbox.take(call)
        except Exception as error:
            raise EngineDiedError(f"The engine of app {self._app_name!r} cannot answer: {error}") from error
        self._counts["num_requests"] += len(ended)
        self._counts["num_tokens"] += sum(len(result.token_ids) for _, result in ended)
        return ended

    async def _pull(self) -> None:
        """Bring the engine to the newest weights of the store."""
        async with self._pull_lock:
            if self._store is None:
                raise ServingError(f"App {self._app_name!r} has no weight store; start it with ServedPolicy.start.")
            serial, version, data_N = await self._store.newest()
            if data_N is None or serial <= self._serial:
                return
            assert self._engine is not None
            path = await asyncio.to_thread(write_local_file, self._app_name, serial, data_N)
            try:
                await self._engine.update_weights(version, str(path))
            finally:
                path.unlink(missing_ok=True)
            self._serial = serial

    async def _follow_store(self, store: WeightStore) -> None:
        """Pull whatever is published for as long as the store lives.

        The driver's broadcast reaches the replicas that it knows of; this reaches one that starts at that moment. When
        the store dies the owner of the app is gone: the app is deleted so that it does not hold resources for ever.
        """
        from ray.exceptions import ActorUnavailableError, RayActorError

        while True:
            try:
                await store.actor.wait_newer.remote(self._serial)
                await self._pull()
            except ActorUnavailableError:
                await asyncio.sleep(1.0)
            except RayActorError:
                break
            except Exception as error:  # noqa: BLE001  Of any engine; the publisher gets it through update_weights.
                logger.error("App %s could not load new weights: %s", self._app_name, error)
                await asyncio.sleep(5.0)
        logger.warning("The owner of app %s is gone; deleting the app.", self._app_name)
        remove_app_files(self._app_name)
        await asyncio.to_thread(_delete_app, self._app_name)


def describe_startup_error(error: Exception) -> str:
    """Return an error as text; when the cause is in an engine process, with the last error that this one logged."""
    text = f"{type(error).__name__}: {error}"
    for descriptor in (1, 2):
        log = Path(f"/proc/{os.getpid()}/fd/{descriptor}").resolve()
        lines = _ENGINE_PROCESS_ERROR.findall(log.read_text(errors="replace")) if log.is_file() else []
        if lines:
            return f"{text} Engine process: {lines[-1]} (log: {log})"
    return text


def _rss_bytes(process: Any) -> int:
    import psutil

    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def _delete_app(app_name: str) -> None:
    from ray import serve

    serve.delete(app_name, _blocking=False)
