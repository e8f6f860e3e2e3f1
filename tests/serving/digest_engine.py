"""An engine that a third party could register: its answer is a checksum of the weights and the prompt."""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path

from arlarena_rllib.errors import ServingError
from arlarena_rllib.serving import Engine, EngineSpec, GenerationRequest, GenerationResult


class DigestEngine(Engine):
    """Needs no tensor library, so that a replica is up in a moment."""

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self._version = 0
        self._weights = b""

    @property
    def weight_version(self) -> int:
        return self._version

    async def start(self) -> None:
        if self.spec.engine_kwargs:
            raise ValueError(f"the digest engine takes no arguments, not {sorted(self.spec.engine_kwargs)}")

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        await asyncio.sleep(0.001)
        digest = zlib.crc32(self._weights + bytes(token % 256 for token in request.prompt_ids)) % 2**31
        return GenerationResult([digest], [-1.0], "length", [self._version])

    async def update_weights(self, version: int, path: str) -> None:
        self._weights = Path(path).read_bytes()
        self._version = version

    async def check_health(self) -> None:
        if self._weights == b"broken":
            raise ServingError("broken")

    async def stop(self) -> None:
        self._weights = b"stopped"
