"""The contract of an inference engine: what it is asked, what it answers, and how engines are found by name."""

from __future__ import annotations

import importlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from arlarena_rllib.errors import ServingError, nearest

FINISH_STOP = "stop"
FINISH_LENGTH = "length"
FINISH_ABORT = "abort"
FINISH_ERROR = "error"
FINISH_REASONS = (FINISH_STOP, FINISH_LENGTH, FINISH_ABORT, FINISH_ERROR)


class EngineDiedError(ServingError):
    """The engine of one replica cannot answer any more; the replica is replaced and the request can be sent again."""


@dataclass(slots=True)
class GenerationRequest:
    """One continuation to sample.

    Attributes:
        prompt_ids: Token ids of the prompt, at least one.
        max_tokens: Most tokens to sample, at least 1.
        temperature: 0 takes the most likely token; otherwise logits are divided by it.
        seed: Makes the sampled tokens repeatable; None draws from the engine's own stream.
        stop_token_ids: Ids that end the answer, besides the end-of-sequence ids of the ``EngineSpec``.
        top_p: Nucleus filter, 1.0 is off. Train with it off: log-probs are renormalised over the kept set.
        top_k: Keeps the k most likely tokens, 0 is off.
        stop: Texts that end the answer. The token that completes one is the last of the answer and is kept whole: what
            was sampled is never cut.
    """

    prompt_ids: list[int]
    max_tokens: int
    temperature: float = 1.0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = ()


@dataclass(slots=True)
class GenerationResult:
    """The answer to one request; the three lists have one entry per sampled token.

    Attributes:
        token_ids: Sampled ids; the stop or end-of-sequence token is the last of them.
        logprobs: Natural log-probability of each sampled token under the distribution it was drawn from
            (after temperature, top-k and top-p); at temperature 0 that of the unscaled softmax.
        finish_reason: One of ``FINISH_REASONS``.
        weight_versions: Version of the weights that drew each token.
        num_cached_tokens: Prompt tokens that the engine took from its prefix cache.
        error: What went wrong when ``finish_reason`` is ``"error"``, else None.
    """

    token_ids: list[int]
    logprobs: list[float]
    finish_reason: str
    weight_versions: list[int]
    num_cached_tokens: int = 0
    error: str | None = None

    @property
    def is_error(self) -> bool:
        """True when the engine could not answer this request."""
        return self.finish_reason == FINISH_ERROR

    @classmethod
    def failed(cls, message: str) -> GenerationResult:
        """Return an empty result that carries ``message``."""
        return cls(token_ids=[], logprobs=[], finish_reason=FINISH_ERROR, weight_versions=[], error=message)


@dataclass(frozen=True)
class EngineSpec:
    """Everything that decides how an engine is built; picklable, sent to every replica.

    Attributes:
        engine: Name in the engine registry: ``"vllm"``, ``"transformers"``, or one that was registered from outside.
        model_path: Local directory in Hugging Face format.
        dtype: Torch dtype by name.
        max_model_len: Most tokens of prompt and answer together.
        max_num_seqs: Most sequences that are decoded at the same time.
        seed: Seed of the stream that unseeded requests draw from.
        engine_kwargs: Passed to the engine under its own argument names.
        eos_token_ids: Ids that end every answer; empty takes those of the model directory.
    """

    engine: str
    model_path: str
    dtype: str = "float32"
    max_model_len: int = 1024
    max_num_seqs: int = 64
    seed: int = 0
    engine_kwargs: dict[str, Any] = field(default_factory=dict)
    eos_token_ids: tuple[int, ...] = ()

    def end_token_ids(self) -> tuple[int, ...]:
        """Return the end-of-sequence ids: the given ones, else those of the model directory."""
        return self.eos_token_ids or read_eos_token_ids(self.model_path)


class Engine(ABC):
    """Samples continuations with one copy of the policy and takes new weights while it runs.

    Requests may come concurrently. A failure that concerns one request is a result with
    ``finish_reason="error"``; an exception (``EngineDiedError``) means that the engine as a whole cannot answer.

    Attributes:
        is_loop_bound: True when every call must come from the event loop that awaited ``start``; such an engine runs in
            a replica only, not in the driver process.
    """

    is_loop_bound: ClassVar[bool] = False
    dtypes: ClassVar[tuple[str, ...]] = ()
    """Values of ``EngineSpec.dtype`` that the engine takes; empty: it says so itself when it starts."""

    def __init__(self, spec: EngineSpec) -> None:
        self.check_arguments(spec)
        self.spec = spec

    @classmethod
    def check_arguments(cls, spec: EngineSpec) -> None:
        """Check what can be seen in ``spec`` before there is a model.

        Raises:
            ServingError: the engine could not start with this dtype or these ``engine_kwargs``.
        """
        if cls.dtypes and spec.dtype not in cls.dtypes:
            raise ServingError(
                f"engine_dtype={spec.dtype!r} is not known to engine={spec.engine!r}.{nearest(spec.dtype, cls.dtypes)} "
                f"Allowed: {', '.join(cls.dtypes)}."
            )

    @property
    @abstractmethod
    def weight_version(self) -> int:
        """Version of the weights that the next token is drawn with; 0 before the first push."""

    @abstractmethod
    async def start(self) -> None:
        """Load the model; returns when requests can be answered."""

    @abstractmethod
    async def generate(self, request: GenerationRequest) -> GenerationResult:
        """Return the sampled continuation of one prompt."""

    @abstractmethod
    async def update_weights(self, version: int, path: str) -> None:
        """Load a safetensors file with the names of ``named_parameters()`` and drop everything that was cached.

        Running requests go on with the new weights; their tokens keep the version that drew them.

        Raises:
            ServingError: Names or shapes do not fit the model.
        """

    @abstractmethod
    async def check_health(self) -> None:
        """Raise when the engine cannot answer any more."""

    @abstractmethod
    async def stop(self) -> None:
        """Free the model and end every thread and process of the engine."""


@dataclass(frozen=True)
class EngineEntry:
    """Where an engine lives (``"module:Class"``) and the packages that it needs."""

    target: str
    packages: tuple[str, ...] = ()


ENGINES: dict[str, EngineEntry] = {
    "transformers": EngineEntry(
        "arlarena_rllib.serving.engines.transformers_engine:TransformersEngine", ("torch", "transformers")
    ),
    "vllm": EngineEntry("arlarena_rllib.serving.engines.vllm_engine:VllmEngine", ("torch", "vllm")),
}


def register_engine(name: str, target: str, packages: tuple[str, ...] = ()) -> None:
    """Add an engine under ``name``; ``target`` is ``"module:Class"``, importable in every replica.

    Raises:
        ServingError: The name is taken by another target, or the target has no colon.
    """
    entry = EngineEntry(target, packages)
    if ":" not in target:
        raise ServingError(f"register_engine({name!r}): target={target!r} must have the form 'module:Class'.")
    if ENGINES.get(name, entry) != entry:
        raise ServingError(f"register_engine: the name {name!r} is taken by {ENGINES[name].target}; choose another.")
    ENGINES[name] = entry


def find_engine(name: str) -> EngineEntry:
    """Return the registry entry of ``name``.

    Raises:
        ServingError: Nothing is registered under it.
    """
    if name not in ENGINES:
        raise ServingError(
            f"engine={name!r} is not known.{nearest(name, ENGINES)} Allowed: {', '.join(sorted(ENGINES))}; "
            "others join through arlarena_rllib.serving.register_engine."
        )
    return ENGINES[name]


def create_engine(spec: EngineSpec, entry: EngineEntry | None = None) -> Engine:
    """Return the engine of ``spec``, not started; ``entry`` overrides the registry of this process."""
    return engine_class(entry or find_engine(spec.engine))(spec)


def engine_class(entry: EngineEntry) -> type[Engine]:
    """Return the class that an entry names; importing it may take seconds."""
    module_name, _, class_name = entry.target.partition(":")
    found: type[Engine] = getattr(importlib.import_module(module_name), class_name)
    return found


def read_eos_token_ids(model_path: str) -> tuple[int, ...]:
    """Return the end-of-sequence ids of a model directory, from generation_config.json, else config.json."""
    for name in ("generation_config.json", "config.json"):
        file = Path(model_path) / name
        ids = json.loads(file.read_text()).get("eos_token_id") if file.is_file() else None
        if ids is not None:
            return tuple(ids) if isinstance(ids, list) else (int(ids),)
    return ()


def check_request(request: GenerationRequest, max_model_len: int, vocab_size: int) -> str | None:
    """Return why ``request`` cannot be answered, or None when it can."""
    length = len(request.prompt_ids)
    if length == 0:
        return "prompt_ids is empty; at least one token is needed."
    if length >= max_model_len:
        return (
            f"The prompt has {length} tokens but max_model_len={max_model_len} leaves no room for an answer; "
            "shorten the prompt (fewer past turns) or raise max_model_len."
        )
    for token_id in (min(request.prompt_ids), max(request.prompt_ids)):
        if not 0 <= token_id < vocab_size:
            return f"prompt_ids has {token_id}, outside the vocabulary of {vocab_size}; use the model's own tokenizer."
    if request.max_tokens < 1:
        return f"max_tokens={request.max_tokens} must be at least 1."
    if request.temperature < 0.0:
        return f"temperature={request.temperature} must not be negative."
    if not 0.0 < request.top_p <= 1.0:
        return f"top_p={request.top_p} must be in (0, 1]."
    if request.top_k < 0:
        return f"top_k={request.top_k} must be 0 (off) or positive."
    return None
