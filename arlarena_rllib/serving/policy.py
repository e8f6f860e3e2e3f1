"""One face for a policy that answers requests, on Ray Serve or in this process."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from arlarena_rllib.errors import ServingError
from arlarena_rllib.serving.client import ClientSpec
from arlarena_rllib.serving.connect import LOCAL_ENGINES
from arlarena_rllib.serving.engines.base import (
    Engine,
    EngineSpec,
    GenerationRequest,
    GenerationResult,
    create_engine,
)
from arlarena_rllib.serving.startup import check_spec
from arlarena_rllib.serving.weights import serialize_weights

if TYPE_CHECKING:
    from arlarena_rllib.serving.weights import NamedTensors

T = TypeVar("T")


class Policy(Protocol):
    """What an algorithm needs from the inference side; every method blocks and raises ServingError."""

    client_spec: ClientSpec

    def publish(self, version: int, named_tensors: NamedTensors) -> list[int]:
        """Bring every replica to new weights; returns their versions."""

    def probe(self, requests: Sequence[GenerationRequest]) -> list[list[GenerationResult]]:
        """Return the answers of every replica, [replica][request]."""

    def status(self) -> list[dict[str, Any]]:
        """Return one dictionary per replica."""

    def stop(self) -> None:
        """Free everything; calling it again does nothing."""


class LocalPolicy:
    """An engine in the driver process: no actors, no Serve; for debuggers and small tests."""

    def __init__(self, engine: Engine, client_spec: ClientSpec) -> None:
        self.client_spec = client_spec
        self._engine = engine
        self._is_stopped = False

    @classmethod
    def start(cls, spec: EngineSpec, *, app_name: str, request_timeout_s: float = 300.0) -> LocalPolicy:
        """Load the engine; returns when it answers.

        Raises:
            ServingError: The engine cannot run in this process, the name is taken, or the model cannot be loaded.
        """
        if app_name in LOCAL_ENGINES:
            raise ServingError(f"A local policy {app_name!r} exists already in this process; stop it first.")
        entry = check_spec(spec)
        engine = create_engine(spec, entry)
        if engine.is_loop_bound:
            raise ServingError(f"engine={spec.engine!r} cannot run inside the driver process: set num_replicas >= 1.")
        try:
            run_blocking(engine.start())
        except (OSError, ValueError, RuntimeError, KeyError, AttributeError) as error:
            raise ServingError(f"The local engine did not start: {type(error).__name__}: {error}") from error
        LOCAL_ENGINES[app_name] = engine
        return cls(engine, ClientSpec(app_name, is_local=True, request_timeout_s=request_timeout_s))

    def publish(self, version: int, named_tensors: NamedTensors) -> list[int]:
        self._require_running()
        data_N = serialize_weights(named_tensors)
        with tempfile.TemporaryDirectory(prefix="arlarena-weights-") as directory:
            path = Path(directory) / "weights.safetensors"
            data_N.tofile(path)
            run_blocking(self._engine.update_weights(version, str(path)))
        return [self._engine.weight_version]

    def probe(self, requests: Sequence[GenerationRequest]) -> list[list[GenerationResult]]:
        self._require_running()
        return [run_blocking(_generate_all(self._engine, requests))]

    def status(self) -> list[dict[str, Any]]:
        self._require_running()
        return [
            {
                "version": self._engine.weight_version,
                "startup_error": None,
                "engine": self._engine.spec.engine,
                "replica_id": "local",
                "pid": os.getpid(),
            }
        ]

    def stop(self) -> None:
        if not self._is_stopped:
            self._is_stopped = True
            LOCAL_ENGINES.pop(self.client_spec.app_name, None)
            run_blocking(self._engine.stop())

    def _require_running(self) -> None:
        if self._is_stopped:
            raise ServingError(f"The local policy {self.client_spec.app_name!r} was stopped.")


def start_policy(
    spec: EngineSpec,
    *,
    app_name: str,
    num_replicas: int = 1,
    num_cpus_per_replica: float = 1.0,
    num_gpus_per_replica: float = 0.0,
    startup_timeout_s: float = 600.0,
    request_timeout_s: float = 300.0,
    retry_budget_s: float = 180.0,
) -> Policy:
    """Start a policy: on Ray Serve, or in this process when ``num_replicas`` is 0; see ``ServedPolicy.start``."""
    if num_replicas == 0:
        return LocalPolicy.start(spec, app_name=app_name, request_timeout_s=request_timeout_s)
    from arlarena_rllib.serving.served_policy import ServedPolicy

    return ServedPolicy.start(
        spec,
        app_name=app_name,
        num_replicas=num_replicas,
        num_cpus_per_replica=num_cpus_per_replica,
        num_gpus_per_replica=num_gpus_per_replica,
        startup_timeout_s=startup_timeout_s,
        request_timeout_s=request_timeout_s,
        retry_budget_s=retry_budget_s,
    )


async def _generate_all(engine: Engine, requests: Sequence[GenerationRequest]) -> list[GenerationResult]:
    return list(await asyncio.gather(*(engine.generate(request) for request in requests)))


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; works as well where an event loop is running already, e.g. in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    outcome: list[T | BaseException] = []
    thread = threading.Thread(target=lambda: outcome.append(_run_in_thread(coroutine)), name="run-blocking")
    thread.start()
    thread.join()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def _run_in_thread(coroutine: Coroutine[Any, Any, T]) -> T | BaseException:
    try:
        return asyncio.run(coroutine)
    except BaseException as error:  # noqa: BLE001  Handed to the thread that waits, which raises it.
        return error
