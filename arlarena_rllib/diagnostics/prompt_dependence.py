"""Template collapse: do the replies still depend on the prompts? Off by default, because it costs forward passes.

A policy may keep its entropy and yet answer every prompt from one template (RAGEN-2, 2604.06268). To see it, each of R
replies is scored under each of P prompts: P R forward passes of one prompt and reply, once per measurement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

MAX_PROMPTS, MAX_RESPONSES = 8, 16
"""Caps: 128 scored sequences, about an eighth of one forward pass over the 1,000 rows of 128 episodes of 8 turns."""


@dataclass(frozen=True)
class CrossPlan:
    """Which replies are scored under which prompts.

    Attributes:
        prompts: P different prompts, token ids.
        responses: R replies, token ids.
        own: for each reply, the index of the prompt that it was sampled under.
    """

    prompts: tuple[tuple[int, ...], ...]
    responses: tuple[tuple[int, ...], ...]
    own: tuple[int, ...]

    def sequences(self) -> list[tuple[list[int], list[int]]]:
        """Return the P R pairs of prompt and reply to score, all prompts of a reply in a row."""
        return [(list(prompt), list(response)) for response in self.responses for prompt in self.prompts]


def plan_cross_scoring(
    rows: Sequence[tuple[Sequence[int], Sequence[int]]],
    *,
    max_prompts: int = MAX_PROMPTS,
    max_responses: int = MAX_RESPONSES,
    seed: int = 0,
) -> CrossPlan | None:
    """Return a random choice of prompts and an even number of replies to each.

    Args:
        rows: prompt and reply as token ids, e.g. the first turn of every episode of an iteration.
        max_prompts: P at most, >= 2.
        max_responses: R at most, >= max_prompts.
        seed: decides the choice; equal rows in equal order and an equal seed give an equal plan.
    Returns:
        the plan; None with fewer than two different prompts that have a reply.
    Raises:
        ValueError: a cap is out of its range.
    """
    if not 2 <= max_prompts <= max_responses:
        raise ValueError(f"max_prompts={max_prompts} must be >= 2 and at most max_responses={max_responses}.")
    replies: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for prompt, response in rows:
        if len(response):
            replies.setdefault(tuple(prompt), []).append(tuple(response))
    if len(replies) < 2:
        return None
    random = np.random.default_rng(seed)
    known = list(replies)
    prompts = [known[i] for i in random.permutation(len(known))[:max_prompts]]
    each = max_responses // len(prompts)
    chosen = [
        (own, replies[prompt][i])
        for own, prompt in enumerate(prompts)
        for i in random.permutation(len(replies[prompt]))[:each]
    ]
    return CrossPlan(tuple(prompts), tuple(reply for _, reply in chosen), tuple(own for own, _ in chosen))


def cross_scores(plan: CrossPlan, token_logps: Sequence[Sequence[float]]) -> Tensor:
    """Return ``logp_R_P[i, j] = log p(response_i | prompt_j)``, summed over tokens, float64.

    Args:
        plan: what was scored.
        token_logps: log-probs of the reply's tokens, for each of `plan.sequences()` in order.
    Raises:
        ValueError: the number of scored sequences is not P R.
    """
    shape = (len(plan.responses), len(plan.prompts))
    if len(token_logps) != math.prod(shape):
        raise ValueError(f"{len(token_logps)} scored sequences for {shape[0]} responses x {shape[1]} prompts.")
    return torch.tensor([math.fsum(scores) for scores in token_logps], dtype=torch.float64).reshape(shape)


def prompt_dependence(logp_R_P: Tensor, own_R: Sequence[int], length_R: Sequence[int]) -> dict[str, float]:
    """Return how much the replies depend on the prompts of a batch.

    ``I = mean_i (L[i, own_i] - log (1/P) sum_j exp L[i, j])``, with L the log-probs (per sequence) or the log-probs
    divided by the reply's length (per token). Source: RAGEN-2 2604.06268 and its code; the prompts of the batch,
    equally weighted, stand for the distribution of prompts. Differs in: whole replies are scored, not the reasoning
    alone; ties in the retrieval are shared, so replies that ignore the prompt score exactly 1/P.

    Args:
        logp_R_P: [R, P] float, log p(response_i | prompt_j) summed over tokens, P >= 2 different prompts.
        own_R: prompt of each response, in 0..P-1.
        length_R: tokens of each response, >= 1.
    Returns:
        mutual_information_seq: nats, at most log P. Long replies reach log P as soon as they depend on the prompt at
        all, so this one only says whether they do.
        mutual_information_token: nats, at most log P; not divided information but the same formula on mean log-probs,
        which does not saturate.
        conditional_entropy_seq, conditional_entropy_token: -mean L[i, own_i], nats.
        retrieval_accuracy: share of responses whose own prompt is the most likely one (k tied prompts count 1/k).
        retrieval_chance: 1/P.
        {} without a response.
    Raises:
        ValueError: shapes or indices do not fit.
    """
    n, p = logp_R_P.shape
    own, length = torch.as_tensor(own_R, dtype=torch.int64), torch.as_tensor(length_R, dtype=torch.float64)
    if own.shape != (n,) or length.shape != (n,) or p < 2:
        raise ValueError(
            f"logp_R_P {tuple(logp_R_P.shape)} needs at least 2 prompts, and one prompt index ({tuple(own.shape)}) and "
            f"length ({tuple(length.shape)}) per response."
        )
    if n == 0:
        return {}
    if int(own.min()) < 0 or int(own.max()) >= p or float(length.min()) < 1:
        raise ValueError(f"own_R must be in 0..{p - 1} and length_R at least 1.")
    sums = logp_R_P.detach().double().cpu()
    rows = torch.arange(n)
    best = sums == sums.amax(-1, keepdim=True)
    metrics = {
        "retrieval_accuracy": float((best[rows, own] / best.sum(-1)).mean()),
        "retrieval_chance": 1.0 / p,
    }
    for unit, scores in (("seq", sums), ("token", sums / length.unsqueeze(-1))):
        matched, mixture = scores[rows, own], torch.logsumexp(scores, -1) - math.log(p)
        metrics[f"mutual_information_{unit}"] = float((matched - mixture).mean())
        metrics[f"conditional_entropy_{unit}"] = float(-matched.mean())
    return metrics
