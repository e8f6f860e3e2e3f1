"""Connects rollout code to a policy: on Ray Serve, or in the same process."""

from __future__ import annotations

import asyncio
import time

from arlarena_rllib.errors import ServingError
from arlarena_rllib.serving.client import Client, ClientSpec, ClientStats
from arlarena_rllib.serving.engines.base import Engine, GenerationRequest, GenerationResult
from arlarena_rllib.serving.policy_client import PolicyClient


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
