"""Requests, reference log-probs from a direct forward, and perturbed weights for the serving tests."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from arlarena_rllib.serving import GenerationRequest, GenerationResult

MAX_MODEL_LEN = 192
NO_END = (10**6,)
"""End ids that are never sampled: answers have their full length."""


def make_request(index: int = 0, **changes: Any) -> GenerationRequest:
    """Return request number ``index``: its own prompt, length and seed."""
    prompt = [20 + (7 * index + 3 * position) % 200 for position in range(8 + index % 9)]
    return dataclasses.replace(GenerationRequest(prompt, max_tokens=10, seed=1000 + index), **changes)


def make_requests(count: int, **changes: Any) -> list[GenerationRequest]:
    return [make_request(index, **changes) for index in range(count)]


def reference_logprobs(model: PreTrainedModel, request: GenerationRequest, token_ids: list[int]) -> list[float]:
    """Return log softmax(logits / temperature) of given answer tokens, from one forward over the whole text."""
    text_1_T = torch.tensor([request.prompt_ids + token_ids])
    with torch.inference_mode():
        logits_T_V = model(text_1_T).logits[0, len(request.prompt_ids) - 1 : -1].float()
    logp_T_V = torch.log_softmax(logits_T_V / (request.temperature or 1.0), dim=-1)
    return logp_T_V.gather(1, torch.tensor(token_ids)[:, None])[:, 0].tolist()


def largest_difference(
    model: PreTrainedModel, requests: list[GenerationRequest], results: list[GenerationResult]
) -> float:
    """Return the largest difference between reported and reference log-probs."""
    differences = [
        abs(reported - reference)
        for request, result in zip(requests, results, strict=True)
        for reported, reference in zip(
            result.logprobs, reference_logprobs(model, request, result.token_ids), strict=True
        )
    ]
    assert differences
    return max(differences)


def perturb(model: PreTrainedModel, scale: float, seed: int = 1) -> PreTrainedModel:
    """Multiply every weight with 1 + scale x noise, in place."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.0 + scale * torch.randn(parameter.shape, generator=generator))
    return model


def stopped_by(
    tokenizer: PreTrainedTokenizerBase, request: GenerationRequest, whole: list[int]
) -> tuple[GenerationRequest, list[int]]:
    """Return ``request`` with a stop text that begins inside one token of its answer ``whole`` and ends inside a later
    one, and the tokens of the answer that is expected then."""
    decode = partial(tokenizer.decode, skip_special_tokens=True)
    for last in range(1, len(whole)):
        before, token = decode(whole[:last]), decode([whole[last]])
        pair = before[-1:] + token[:1]
        is_clear = "\ufffd" not in before[-1:] + token and len(token) > 1
        if is_clear and decode(whole[: last + 1]).find(pair) == len(before) - 1:
            return dataclasses.replace(request, stop=("never there", pair)), whole[: last + 1]
    raise AssertionError(f"no two letters of {decode(whole)!r} make a stop text")
