"""The limit of the rollout: vLLM's AsyncLLM alone in a child process, given all prompts at once."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from arlarena_rllib.errors import ServingError
from arlarena_rllib.serving.engines import vllm_engine
from arlarena_rllib.serving.engines.base import EngineSpec
from benchmarks.processes import family

START_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 30.0
LOG_TAIL = 2000
NOT_BARE = ("weight_transfer_config", "worker_extension_cls")
"""Arguments that only serve weight updates."""


@dataclass(frozen=True)
class Generation:
    """One prompt and the number of tokens that its reply had."""

    prompt_ids: list[int]
    num_tokens: int


class BareEngine:
    """An AsyncLLM with the arguments of the served engine; a context manager.

    It samples as the rollout does (temperature, log-prob of each token, no seeds) and hands back nothing but counts.
    """

    def __init__(self, spec: EngineSpec, temperature: float, log: Path) -> None:
        """Start the child process, whose output goes to ``log``; returns when the engine answers.

        Raises:
            ServingError: the engine did not start.
        """
        self._log = log
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, spec, temperature, str(log)), name="bare-engine")
        self._process.start()
        theirs.close()
        self._answer(START_TIMEOUT_S, "start")

    @property
    def pid(self) -> int:
        """Process id of the front end."""
        assert self._process.pid is not None
        return self._process.pid

    def processes(self) -> Iterable[psutil.Process]:
        """Return the front end and its engine process."""
        return family(self.pid)

    def decode(self, generations: Sequence[Generation]) -> int:
        """Decode all ``generations``, submitted at once; return the number of tokens."""
        self._connection.send(("decode", [(g.prompt_ids, g.num_tokens) for g in generations]))
        return int(self._answer(START_TIMEOUT_S, "decode"))

    def reset(self) -> None:
        """Empty the prefix cache, as new weights do in the served engine."""
        self._connection.send(("reset", None))
        self._answer(STOP_TIMEOUT_S, "reset")

    def close(self) -> None:
        """End the child process and its engine."""
        if self._process.is_alive():
            self._connection.send(("stop", None))
        self._process.join(STOP_TIMEOUT_S)
        if self._process.is_alive():
            for process in reversed(list(self.processes())):
                process.kill()

    def __enter__(self) -> BareEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self, timeout_s: float, what: str) -> Any:
        if not self._connection.poll(timeout_s):
            raise ServingError(f"the bare engine did not answer to {what!r} within {timeout_s:g} s")
        try:
            return self._connection.recv()
        except EOFError as error:
            log = self._log.read_text(errors="replace") if self._log.is_file() else ""
            raise ServingError(f"the bare engine ended during {what!r}: {log[-LOG_TAIL:]}") from error


def _serve(connection: Connection, spec: EngineSpec, temperature: float, log: str) -> None:
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    asyncio.run(_answer_commands(connection, spec, temperature))


async def _answer_commands(connection: Connection, spec: EngineSpec, temperature: float) -> None:
    llm = _start(spec)
    try:
        connection.send("started")
        number = 0
        while True:
            command, argument = await asyncio.to_thread(connection.recv)
            if command == "stop":
                return
            if command == "reset":
                await llm.reset_prefix_cache()
                connection.send("reset")
                continue
            connection.send(await _decode_all(llm, argument, number, temperature))
            number += len(argument)
    except EOFError:
        return
    finally:
        if llm.output_handler is not None:
            llm.output_handler.cancel()
        await asyncio.to_thread(llm.shutdown, 0.0)


def _start(spec: EngineSpec) -> Any:
    is_cpu = vllm_engine.is_cpu_build()
    environment = {**vllm_engine.COMMON_ENVIRONMENT, **(vllm_engine.CPU_ENVIRONMENT if is_cpu else {})}
    for key, value in environment.items():
        os.environ.setdefault(key, value)
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    arguments = {
        "model": spec.model_path,
        **{key: getattr(spec, key) for key in vllm_engine.SPEC_ARGUMENTS},
        **{key: value for key, value in vllm_engine.COMMON_ARGUMENTS.items() if key not in NOT_BARE},
        **(vllm_engine.CPU_ARGUMENTS if is_cpu else {}),
        **spec.engine_kwargs,
    }
    return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))


async def _decode(llm: Any, request_id: str, prompt: Any, parameters: Any) -> int:
    (output,) = [output async for output in llm.generate(prompt, parameters, request_id)]
    return len(output.outputs[0].token_ids)


async def _decode_all(llm: Any, work: list[tuple[list[int], int]], first: int, temperature: float) -> int:
    """Return the number of tokens; one set of parameters serves all replies of the same length."""
    from vllm.inputs.engine import tokens_input
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    parameters = {
        num_tokens: SamplingParams(
            temperature=temperature,
            max_tokens=num_tokens,
            ignore_eos=True,
            logprobs=0,
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            skip_clone=True,
        )
        for num_tokens in {num_tokens for _, num_tokens in work}
    }
    counts = await asyncio.gather(
        *(
            _decode(llm, str(first + i), tokens_input(prompt), parameters[num_tokens])
            for i, (prompt, num_tokens) in enumerate(work)
        )
    )
    return sum(counts)
