"""Inference engine on plain Hugging Face transformers: for tests, debugging and machines without vLLM."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from arlarena_rllib.errors import ModelError, ServingError, nearest
from arlarena_rllib.models.load import load_tokenizer
from arlarena_rllib.serving.engines.base import (
    Engine,
    EngineDiedError,
    EngineSpec,
    GenerationRequest,
    GenerationResult,
    check_request,
)
from arlarena_rllib.serving.engines.decoding import DecodeBatch, DecodeRow
from arlarena_rllib.serving.engines.stop_texts import StopTexts

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Job:
    """A request on its way through the worker thread."""

    request: GenerationRequest
    future: Future[GenerationResult] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class _Update:
    """New weights on their way to the worker thread."""

    version: int
    path: str
    future: Future[None] = field(default_factory=Future)


@dataclass(frozen=True)
class TransformersOptions:
    """What ``EngineSpec.engine_kwargs`` may hold for this engine.

    Attributes:
        device: Torch device; empty takes ``cuda`` when there is one, else ``cpu``.
        attn_implementation: As in ``from_pretrained``.
        batch_window_s: How long an idle engine waits for more requests after the first one, seconds.
        max_live_batches: Batches that are decoded in turns: requests that arrive while one is running form the next.
    """

    device: str = ""
    attn_implementation: str = "sdpa"
    batch_window_s: float = 0.002
    max_live_batches: int = 2

    @classmethod
    def from_kwargs(cls, kwargs: dict[str, Any]) -> TransformersOptions:
        """Return the options of ``engine_kwargs``; an unknown key raises ServingError."""
        allowed = cls.__dataclass_fields__
        for key in kwargs:
            if key not in allowed:
                raise ServingError(
                    f"engine_kwargs.{key} is not known to engine='transformers'.{nearest(key, allowed)} "
                    f"Allowed: {', '.join(allowed)}."
                )
        return cls(**kwargs)


class TransformersEngine(Engine):
    """Decodes in one worker thread, so that event loops stay free; usable from several loops."""

    dtypes = ("float32", "bfloat16", "float16", "float64")

    @classmethod
    def check_arguments(cls, spec: EngineSpec) -> None:
        super().check_arguments(spec)
        TransformersOptions.from_kwargs(spec.engine_kwargs)

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self._options = TransformersOptions.from_kwargs(spec.engine_kwargs)
        self._inbox: queue.SimpleQueue[_Job | _Update | None] = queue.SimpleQueue()
        self._waiting: list[_Job] = []
        self._batches: list[tuple[DecodeBatch, dict[DecodeRow, _Job]]] = []
        self._version = 0
        self._num_unseeded = 0
        self._vocab_size = 0
        self._broken: str | None = None
        self._thread: threading.Thread | None = None
        self._model: PreTrainedModel | None = None

    @property
    def weight_version(self) -> int:
        return self._version

    async def start(self) -> None:
        await asyncio.to_thread(self._load_model)
        self._end_ids = frozenset(self.spec.end_token_ids())
        self._thread = threading.Thread(target=self._work, name="transformers-engine", daemon=True)
        self._thread.start()

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        self._require_alive()
        problem = check_request(request, self.spec.max_model_len, self._vocab_size)
        if problem is not None:
            return GenerationResult.failed(problem)
        if request.stop:
            try:
                self._tokenizer  # noqa: B018  (loaded here, where a failure is this request's alone)
            except ModelError as error:
                return GenerationResult.failed(f"stop={list(request.stop)} needs the model's tokenizer: {error}")
        job = _Job(request)
        self._inbox.put(job)
        return await asyncio.wrap_future(job.future)

    async def update_weights(self, version: int, path: str) -> None:
        self._require_alive()
        update = _Update(version, path)
        self._inbox.put(update)
        await asyncio.wrap_future(update.future)

    async def check_health(self) -> None:
        self._require_alive()

    async def stop(self) -> None:
        if self._thread is not None:
            self._inbox.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None
        self._model = None

    def _load_model(self) -> None:
        device = self._options.device or ("cuda" if torch.cuda.is_available() else "cpu")
        model: Any = AutoModelForCausalLM.from_pretrained(
            self.spec.model_path,
            dtype=getattr(torch, self.spec.dtype),
            attn_implementation=self._options.attn_implementation,
        )
        self._vocab_size = model.config.get_text_config().vocab_size
        self._model = model.to(device).eval().requires_grad_(False)

    def _require_alive(self) -> None:
        if self._broken is not None:
            raise EngineDiedError(f"The transformers engine cannot answer any more: {self._broken}")
        if self._thread is None or not self._thread.is_alive():
            raise EngineDiedError("The transformers engine is not running; await start() first.")

    # Everything below runs in the worker thread.

    def _work(self) -> None:
        reason = "the engine was stopped"
        try:
            while self._take_inbox():
                self._admit()
                for entry in list(self._batches):
                    self._advance(entry)
        except Exception as error:  # The thread must not end without telling those who wait.
            reason = self._broken = f"{type(error).__name__}: {error}"
            logger.exception("The decoding thread ended.")
        self._fail_all(reason)

    def _take_inbox(self) -> bool:
        """Move what has arrived to its place; waits only when nothing is being decoded. False means stop."""
        is_idle = not self._batches and not self._waiting
        while True:
            try:
                item = self._inbox.get(block=is_idle)
            except queue.Empty:
                return True
            if item is None:
                return False
            if isinstance(item, _Update):
                self._apply(item)
            else:
                self._waiting.append(item)
                if is_idle:
                    time.sleep(self._options.batch_window_s)
                is_idle = False

    def _admit(self) -> None:
        """Form a batch of the waiting requests when there is room."""
        room = self.spec.max_num_seqs - sum(len(batch.rows) for batch, _ in self._batches)
        if not self._waiting or room <= 0 or len(self._batches) >= self._options.max_live_batches:
            return
        taken, self._waiting = self._waiting[:room], self._waiting[room:]
        jobs = [job for job in taken if not job.future.cancelled()]
        if not jobs:
            return
        rows = [self._new_row(job.request) for job in jobs]
        try:
            assert self._model is not None
            batch = DecodeBatch(self._model, rows)
        except (RuntimeError, ValueError, IndexError) as error:
            self._fail(jobs, error)
            return
        self._batches.append((batch, {row: job for row, job in zip(rows, jobs, strict=True)}))

    def _new_row(self, request: GenerationRequest) -> DecodeRow:
        if request.seed is not None:
            rng = np.random.default_rng(request.seed)
        else:
            self._num_unseeded += 1
            rng = np.random.default_rng([self.spec.seed, self._num_unseeded])
        max_tokens = min(request.max_tokens, self.spec.max_model_len - len(request.prompt_ids))
        stop_texts = StopTexts(self._tokenizer, request.stop) if request.stop else None
        return DecodeRow(request, rng, self._end_ids.union(request.stop_token_ids), max_tokens, stop_texts)

    @cached_property
    def _tokenizer(self) -> PreTrainedTokenizerBase:
        """Only requests with stop texts need it."""
        return load_tokenizer(self.spec.model_path)

    def _advance(self, entry: tuple[DecodeBatch, dict[DecodeRow, _Job]]) -> None:
        """Sample one token for every row of a batch and hand out what has ended."""
        batch, jobs = entry
        unwanted = [row for row in batch.rows if jobs[row].future.cancelled()]
        if unwanted:
            batch.discard(unwanted)
        try:
            finished = batch.step(self._version) if batch.rows else []
        except (RuntimeError, ValueError, IndexError) as error:
            self._fail([jobs[row] for row in batch.rows], error)
            batch.rows, finished = [], []
        for row in finished:
            _settle(jobs[row].future, row.result())
        if not batch.rows:
            self._batches.remove(entry)

    def _apply(self, update: _Update) -> None:
        """Load new weights and compute the caches of running rows again."""
        try:
            self._load_weights(update.path)
            self._version = update.version
            for batch, _ in self._batches:
                batch.rebuild()
        except (OSError, RuntimeError, ValueError, ServingError) as error:
            _settle(update.future, error)
        else:
            _settle(update.future, None)

    def _load_weights(self, path: str) -> None:
        assert self._model is not None
        parameters = dict(self._model.named_parameters(remove_duplicate=False))
        tensors = load_file(path)
        _check_names(self._model, parameters, tensors)
        try:
            with torch.inference_mode():
                for name, tensor in tensors.items():
                    parameters[name].copy_(tensor)
        except RuntimeError as error:
            self._broken = f"loading {path} stopped half-way: {error}"
            raise

    def _fail(self, jobs: list[_Job], error: Exception) -> None:
        message = f"{type(error).__name__} while decoding a batch of {len(jobs)}: {error}"
        logger.error(message)
        for job in jobs:
            _settle(job.future, GenerationResult.failed(message))

    def _fail_all(self, reason: str) -> None:
        running = [jobs[row] for batch, jobs in self._batches for row in batch.rows]
        queued = [item for item in _drain(self._inbox) if item is not None]
        self._batches = []
        for item in [*running, *self._waiting, *queued]:
            _settle(item.future, EngineDiedError(f"Request not answered: {reason}."))
        self._waiting = []


def _settle(future: Future[Any], outcome: Any) -> None:
    """Complete a future with a result or an exception unless its owner has gone away."""
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _drain(inbox: queue.SimpleQueue[Any]) -> list[Any]:
    items = []
    while not inbox.empty():
        items.append(inbox.get())
    return items


def _check_names(
    model: PreTrainedModel, parameters: dict[str, torch.nn.Parameter], tensors: dict[str, torch.Tensor]
) -> None:
    """Raise ServingError unless the file covers every parameter once and all shapes fit."""
    missing = sorted({name for name, _ in model.named_parameters()} - tensors.keys())
    unknown = sorted(tensors.keys() - parameters.keys())
    if missing or unknown:
        raise ServingError(
            f"Pushed weights do not fit {type(model).__name__}: missing {missing[:5]} ({len(missing)}), "
            f"unknown {unknown[:5]} ({len(unknown)}); push module.named_parameters() of the same architecture."
        )
    for name, tensor in tensors.items():
        if tensor.shape != parameters[name].shape:
            raise ServingError(
                f"Pushed weight {name} has shape {tuple(tensor.shape)}, the model has {tuple(parameters[name].shape)}."
            )
