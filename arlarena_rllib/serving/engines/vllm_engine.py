"""Inference engine on vLLM's AsyncLLM, on CPU or GPU."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arlarena_rllib.errors import ServingError
from arlarena_rllib.serving.engines.base import (
    Engine,
    EngineDiedError,
    EngineSpec,
    GenerationRequest,
    GenerationResult,
    check_request,
)

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.outputs import CompletionOutput
    from vllm.v1.engine.async_llm import AsyncLLM

TRANSFER_MODULE = "arlarena_rllib.serving.engines.vllm_weight_transfer"
TRANSFER_BACKEND = "arlarena_file"

COMMON_ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING", "TOKENIZERS_PARALLELISM": "false"}
CPU_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # With executor "uni": the engine process holds the model, no extra worker.
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; without it vLLM asks for most of the memory of the machine.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "TORCHDYNAMO_DISABLE": "1",
}
COMMON_ARGUMENTS: dict[str, Any] = {
    "logprobs_mode": "processed_logprobs",
    "disable_log_stats": True,
    "weight_transfer_config": {"backend": TRANSFER_BACKEND},
    "worker_extension_cls": f"{TRANSFER_MODULE}.FileTransferWorker",
}
CPU_ARGUMENTS: dict[str, Any] = {
    "enforce_eager": True,
    "distributed_executor_backend": "uni",
    # A prompt prefilled in parts rewinds the request's generator, which CPU generators cannot: the engine would die.
    "enable_chunked_prefill": False,
}
SPEC_ARGUMENTS = ("dtype", "max_model_len", "max_num_seqs", "seed")
RESERVED_ARGUMENTS = ("model", *SPEC_ARGUMENTS, *COMMON_ARGUMENTS)


class VllmEngine(Engine):
    """One AsyncLLM and its engine process; takes token ids only. Its tokenizer just looks for the stop texts of a request.

    Environment variables that the user has set are kept. ``EngineSpec.engine_kwargs`` are arguments of
    ``AsyncEngineArgs`` by their own names.
    """

    is_loop_bound = True
    dtypes = ("float32", "bfloat16", "float16", "float", "half", "auto")

    @classmethod
    def check_arguments(cls, spec: EngineSpec) -> None:
        super().check_arguments(spec)
        for key in spec.engine_kwargs:
            if key in RESERVED_ARGUMENTS:
                reason = f"use the setting {key} itself" if key in SPEC_ARGUMENTS else "training needs its value"
                raise ServingError(f"engine_kwargs.{key} cannot be set: {reason}.")

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self._llm: AsyncLLM | None = None
        self._version = 0
        self._vocab_size = 0
        self._broken: str | None = None
        self._request_numbers = itertools.count()
        self._update_lock = asyncio.Lock()

    @property
    def weight_version(self) -> int:
        return self._version

    async def start(self) -> None:
        is_cpu = is_cpu_build()
        for key, value in {**COMMON_ENVIRONMENT, **(CPU_ENVIRONMENT if is_cpu else {})}.items():
            os.environ.setdefault(key, value)  # vLLM reads them when it is imported, and its processes inherit them.
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        arguments = {
            "model": self.spec.model_path,
            **{key: getattr(self.spec, key) for key in SPEC_ARGUMENTS},
            **COMMON_ARGUMENTS,
            **(CPU_ARGUMENTS if is_cpu else {}),
            **self.spec.engine_kwargs,
        }
        self._end_ids = self.spec.end_token_ids()
        config = AsyncEngineArgs(**arguments).create_engine_config()
        if is_cpu:
            check_head_size(config.model_config.get_head_size())
        self._vocab_size = config.model_config.get_vocab_size()
        self._llm = AsyncLLM.from_vllm_config(config, disable_log_stats=True)
        await self._warm_up()

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        llm = self._require_alive()
        problem = check_request(request, self.spec.max_model_len, self._vocab_size)
        if problem is not None:
            return GenerationResult.failed(problem)
        from vllm.exceptions import VLLMClientError
        from vllm.inputs.engine import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        stream = llm.generate(
            tokens_input(request.prompt_ids), self._sampling_params(request), str(next(self._request_numbers))
        )
        try:
            (output,) = [output async for output in stream]
        except EngineDeadError as error:
            raise EngineDiedError(f"The vLLM engine process died: {error}") from error
        except (VLLMClientError, EngineGenerateError, ValueError, TypeError) as error:
            return GenerationResult.failed(f"{type(error).__name__}: {error.__cause__ or error}")
        self._require_alive()
        return self._to_result(output.outputs[0], output.num_cached_tokens or 0)

    async def update_weights(self, version: int, path: str) -> None:
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest
        from vllm.v1.engine.exceptions import EngineDeadError

        llm = self._require_alive()
        check_weight_names(self.spec.model_path, path)
        async with self._update_lock:
            try:
                await llm.pause_generation(mode="keep", clear_cache=True)
                await llm.start_weight_update()
                await llm.update_weights(WeightTransferUpdateRequest(update_info={"path": path}))
                await llm.finish_weight_update(weight_version=str(version))
                self._version = version
                await llm.resume_generation()
            except EngineDeadError as error:
                raise EngineDiedError(f"The vLLM engine process died: {error}") from error
            except Exception as error:  # Whatever it was, the model is half-loaded now: no more answers from it.
                self._broken = f"loading weight version {version} failed: {error}"
                await llm.resume_generation()
                raise ServingError(self._broken) from error

    async def check_health(self) -> None:
        await self._require_alive().check_health()

    async def stop(self) -> None:
        if self._llm is not None:
            llm, self._llm = self._llm, None
            if llm.output_handler is not None:
                llm.output_handler.cancel()  # It would report the end of the engine process as an error.
            await asyncio.to_thread(llm.shutdown, 0.0)

    async def _warm_up(self) -> None:
        """Answer one request, so that a model that cannot be executed fails the start."""
        result = await self.generate(GenerationRequest(prompt_ids=[0], max_tokens=1))
        if result.is_error:
            raise ServingError(f"The vLLM engine cannot execute {self.spec.model_path}: {result.error}")

    def _require_alive(self) -> AsyncLLM:
        if self._broken is not None:
            raise EngineDiedError(f"The vLLM engine cannot answer any more: {self._broken}")
        if self._llm is None:
            raise EngineDiedError("The vLLM engine is not running; await start() first.")
        return self._llm

    def _sampling_params(self, request: GenerationRequest) -> SamplingParams:
        return self._shared_params(
            (*self._end_ids, *request.stop_token_ids),
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            top_k=request.top_k,
            seed=request.seed,
            stop=request.stop,
        )

    @staticmethod
    @lru_cache(maxsize=64)  # All requests of a rollout have equal ones, and making them takes a tenth of a request.
    def _shared_params(stop_token_ids: tuple[int, ...], stop: tuple[str, ...], **values: Any) -> SamplingParams:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            **values,
            stop_token_ids=list(stop_token_ids),
            stop=list(stop),
            ignore_eos=True,  # The end ids are among the stop ids: one rule for every engine.
            logprobs=0,
            flat_logprobs=True,
            detokenize=bool(stop),
            output_kind=RequestOutputKind.FINAL_ONLY,
            skip_clone=True,  # vLLM's word for: may be shared between requests.
        )

    def _to_result(self, output: CompletionOutput, num_cached_tokens: int) -> GenerationResult:
        from vllm.logprobs import FlatLogprobs

        token_ids = list(output.token_ids)
        logprobs = output.logprobs
        assert isinstance(logprobs, FlatLogprobs)
        versions: list[int] = []
        for span in output.weight_versions or ():
            versions += [_to_number(span.version)] * (span.end - span.start)
        return GenerationResult(
            token_ids=token_ids,
            logprobs=[logprobs.logprobs[start] for start in logprobs.start_indices],
            finish_reason=output.finish_reason or "abort",
            weight_versions=versions or [self._version] * len(token_ids),
            num_cached_tokens=num_cached_tokens,
        )


def is_cpu_build() -> bool:
    """Return whether the installed vLLM runs on the CPU; by its version, without importing it (as vLLM does)."""
    try:
        return "cpu" in metadata.version("vllm")
    except metadata.PackageNotFoundError:
        return True  # The distribution is called vllm-cpu.


def check_head_size(head_size: int) -> None:
    """Raise ServingError for a head size without an attention kernel: on CPU the engine process would die later."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    supported = CPUAttentionBackend.get_supported_head_sizes()
    if head_size not in supported:
        raise ServingError(
            f"The model has head_dim={head_size}; vLLM on CPU supports {supported}. "
            "Use a model with one of these, or engine='transformers'."
        )


def check_weight_names(model_path: str, path: str) -> None:
    """Raise ServingError when a pushed file lacks weights that the model directory has.

    vLLM itself would go on with the old values of what is missing. A tied output layer is stored in some directories
    and never pushed, so its absence is accepted.
    """
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        pushed = set(file.keys())
    missing = sorted(checkpoint_names(model_path) - pushed - _tied_names(model_path))
    if missing:
        raise ServingError(
            f"Pushed weights do not fit {model_path}: missing {missing[:5]} ({len(missing)} of "
            f"{len(missing) + len(pushed)}); push module.named_parameters() of the same architecture."
        )


def checkpoint_names(model_path: str) -> set[str]:
    """Return the weight names of a model directory in safetensors format; empty for other formats."""
    from safetensors import safe_open

    names: set[str] = set()
    for file_path in sorted(Path(model_path).glob("*.safetensors")):
        with safe_open(str(file_path), framework="pt") as file:
            names.update(file.keys())
    return names


def _tied_names(model_path: str) -> set[str]:
    config = json.loads((Path(model_path) / "config.json").read_text())
    return {"lm_head.weight"} if config.get("tie_word_embeddings", False) else set()


def _to_number(version: str) -> int:
    """Return the weight version as a number; vLLM calls the one from the model directory "default"."""
    return 0 if version == "default" else int(version)
