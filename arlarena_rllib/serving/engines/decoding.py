"""Batched decoding with a plain Hugging Face causal language model: left padding, KV cache, per-request draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel

from arlarena_rllib.serving.engines.base import FINISH_LENGTH, FINISH_STOP, GenerationRequest, GenerationResult
from arlarena_rllib.serving.engines.stop_texts import StopTexts


@dataclass(slots=True, eq=False)
class DecodeRow:
    """One request while it is decoded.

    Attributes:
        request: What was asked.
        rng: Source of the one uniform number that each token costs.
        stop_ids: Every id that ends the answer.
        max_tokens: Most tokens to sample, the model's length limit included.
        stop_texts: Looks for the request's stop texts, or None.
    """

    request: GenerationRequest
    rng: np.random.Generator
    stop_ids: frozenset[int]
    max_tokens: int
    stop_texts: StopTexts | None = None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    weight_versions: list[int] = field(default_factory=list)
    finish_reason: str | None = None

    def append(self, token_id: int, logprob: float, version: int) -> None:
        """Add a sampled token and decide whether the row ends with it."""
        self.token_ids.append(token_id)
        self.logprobs.append(logprob)
        self.weight_versions.append(version)
        if token_id in self.stop_ids or (self.stop_texts is not None and self.stop_texts.is_reached(token_id)):
            self.finish_reason = FINISH_STOP
        elif len(self.token_ids) >= self.max_tokens:
            self.finish_reason = FINISH_LENGTH

    def result(self) -> GenerationResult:
        """Return the finished row as the answer to its request."""
        assert self.finish_reason is not None
        return GenerationResult(self.token_ids, self.logprobs, self.finish_reason, self.weight_versions)


class DecodeBatch:
    """Rows that are decoded together; each ``step`` samples one token for every row.

    The sampled tokens of a row depend on its own prompt, parameters and generator; the other rows only change the
    last bits of its logits (padding and matrix sizes).
    """

    def __init__(self, model: PreTrainedModel, rows: Sequence[DecodeRow]) -> None:
        self._model = model
        self._logits_B_V = torch.empty(0)
        self.rows = list(rows)
        self.rebuild()

    @torch.inference_mode()
    def rebuild(self) -> None:
        """Compute the cache and the next logits from the full sequences, e.g. after the weights have changed."""
        sequences = [row.request.prompt_ids + row.token_ids for row in self.rows]
        width = max(map(len, sequences))
        input_ids_B_T = torch.zeros(len(sequences), width, dtype=torch.long)
        mask_B_T = torch.zeros(len(sequences), width, dtype=torch.long)
        for index, sequence in enumerate(sequences):
            input_ids_B_T[index, width - len(sequence) :] = torch.tensor(sequence)
            mask_B_T[index, width - len(sequence) :] = 1
        self._cache = DynamicCache(config=self._model.config)
        self._mask_B_T = mask_B_T.to(self._model.device)
        self._forward(input_ids_B_T.to(self._model.device), (self._mask_B_T.cumsum(1) - 1).clamp(min=0))

    @torch.inference_mode()
    def step(self, version: int) -> list[DecodeRow]:
        """Sample one token per row, drop the rows that ended and return them."""
        token_ids_B, logprobs_B = sample_tokens(self._logits_B_V, self.rows)
        for row, token_id, logprob in zip(self.rows, token_ids_B.tolist(), logprobs_B.tolist(), strict=True):
            row.append(token_id, logprob, version)
        finished = [row for row in self.rows if row.finish_reason is not None]
        if finished:
            token_ids_B = token_ids_B[self._keep([row.finish_reason is None for row in self.rows])]
        if self.rows:
            device = self._model.device
            ones_B_1 = torch.ones(len(self.rows), 1, dtype=torch.long, device=device)
            self._mask_B_T = torch.cat([self._mask_B_T, ones_B_1], dim=1)
            position_ids_B_1 = self._mask_B_T.sum(1, keepdim=True) - 1
            self._forward(token_ids_B.to(device)[:, None], position_ids_B_1)
        return finished

    def discard(self, unwanted: Sequence[DecodeRow]) -> None:
        """Drop rows whose answer nobody waits for any more."""
        gone = set(map(id, unwanted))
        kept = self._keep([id(row) not in gone for row in self.rows])
        self._logits_B_V = self._logits_B_V[kept]

    def _keep(self, keep: list[bool]) -> torch.Tensor:
        """Drop the rows whose flag is False; returns the kept row indices, int64 on the CPU."""
        index = torch.tensor([i for i, flag in enumerate(keep) if flag], dtype=torch.long)
        self.rows = [row for row, flag in zip(self.rows, keep, strict=True) if flag]
        if self.rows:
            self._cache.batch_select_indices(index.to(self._model.device))
        self._mask_B_T = self._mask_B_T[index.to(self._model.device)]
        return index

    def _forward(self, input_ids_B_T: torch.Tensor, position_ids_B_T: torch.Tensor) -> None:
        model: Any = self._model
        output = model(
            input_ids=input_ids_B_T,
            attention_mask=self._mask_B_T,
            position_ids=position_ids_B_T,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._logits_B_V = output.logits[:, -1].float().cpu()


def sample_tokens(logits_B_V: torch.Tensor, rows: Sequence[DecodeRow]) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw one token per row by the inverse of its cumulative distribution.

    Args:
        logits_B_V: [B, V] float32, of the last position.
        rows: B rows; the generator of each one gives exactly one uniform number per call when its temperature is
            positive, so that its draws do not depend on the rows beside it.

    Returns:
        Token ids [B] int64 and their log-probs [B] float32 under softmax(logits / temperature) after top-k and top-p
        (renormalised); temperature 0 takes the argmax and reports the unscaled softmax.
    """
    greedy_B = torch.tensor([row.request.temperature == 0.0 for row in rows])
    scale_B = torch.tensor([row.request.temperature or 1.0 for row in rows], dtype=torch.float32)
    logits_B_V = logits_B_V / scale_B[:, None]
    for index, row in enumerate(rows):
        if row.request.top_k or row.request.top_p < 1.0:
            logits_B_V[index] = keep_top(logits_B_V[index], row.request.top_k, row.request.top_p)
    logp_B_V = torch.log_softmax(logits_B_V, dim=-1)
    uniform_B = torch.tensor(
        [0.0 if row.request.temperature == 0.0 else row.rng.random() for row in rows], dtype=torch.float64
    )
    cdf_B_V = logp_B_V.double().exp().cumsum(-1)
    drawn_B = torch.searchsorted(cdf_B_V, (uniform_B * cdf_B_V[:, -1])[:, None], right=True)[:, 0]
    token_ids_B = torch.where(greedy_B, logits_B_V.argmax(-1), drawn_B.clamp(max=logits_B_V.shape[1] - 1))
    return token_ids_B, logp_B_V.gather(1, token_ids_B[:, None])[:, 0]


def keep_top(logits_V: torch.Tensor, top_k: int, top_p: float) -> torch.Tensor:
    """Set everything outside the top-k, then outside the nucleus of mass ``top_p``, to -inf; keeps at least one."""
    sorted_V, order_V = logits_V.sort(descending=True)
    drop_V = torch.zeros_like(sorted_V, dtype=torch.bool)
    if top_k:
        drop_V[top_k:] = True
    probs_V = torch.softmax(sorted_V.masked_fill(drop_V, -torch.inf), dim=-1)
    drop_V |= probs_V.cumsum(-1) - probs_V >= top_p
    drop_V[0] = False
    return logits_V.masked_fill(torch.zeros_like(drop_V).scatter(0, order_V, drop_V), -torch.inf)
