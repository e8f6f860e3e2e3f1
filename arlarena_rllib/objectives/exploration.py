"""Signals and decisions for exploration while sampling: branching after a tool call (ARPO), thinking control (T2PO)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from arlarena_rllib.objectives.registry import unknown_choice

_EPS = 1e-8


def entropy_change(entropy_now: float, entropy_initial: float, vocab_size: int) -> float:
    """Return ``(H_now - H_initial) / log V``, both entropies in nats. Source: ARPO 2507.19849 and its code."""
    return (entropy_now - entropy_initial) / math.log(vocab_size)


def branch_probability(change: float, *, alpha: float = 0.5, beta: float = 0.2) -> float:
    """Return ``P = alpha + beta change``, not clipped. Source: ARPO 2507.19849."""
    return alpha + beta * change


def branch_by_threshold(probability: float, tau: float) -> bool:
    """Return whether ``P > tau``. Source: ARPO 2507.19849."""
    return probability > tau


def branch_by_draw(probability: float, draw: float) -> bool:
    """Return whether a uniform draw in [0, 1) falls below P clipped to [0, 1]. Source: ARPO's released code."""
    return draw < min(max(probability, 0.0), 1.0)


@dataclass(frozen=True)
class ThinkingSignal:
    """T2PO's uncertainty signal along one reply.

    Attributes:
        entropy_T: [T] float64, Shannon entropy H of the next-token distribution [nats].
        confidence_T: [T], C = minus the mean log-prob of the top_j tokens.
        p_max_T: [T], largest probability.
        signal_T: [T], M.
        delta_T: [T], |M_t - M_{t-1}|; nan at the first token.
    """

    entropy_T: Tensor
    confidence_T: Tensor
    p_max_T: Tensor
    signal_T: Tensor
    delta_T: Tensor


def thinking_signal(probs_T_V: Tensor, *, top_j: int, alpha: float, normaliser: str) -> ThinkingSignal:
    """Return ``M = alpha H~ + (1 - alpha)(1 - C~)`` along one reply.

    Source: T2PO 2605.02178. `normaliser` says what ~ is: "offline_minmax" over the whole reply (the paper; it
    needs the future), "causal_minmax" over the tokens so far (saturates while H falls, so the change is 0 and triggers
    at any threshold), "fixed_range" H / log V and p_max in place of C~ (this project's; top_j is not used).

    Args:
        probs_T_V: [T, V] float, next-token distributions, T >= 1.
        top_j: 1..V. With 1, C falls with confidence and the two terms oppose each other.
        alpha: in [0, 1], weight of the entropy.
        normaliser: one of the three names.
    Returns:
        the signal, float64.
    Raises:
        UnknownChoiceError: the normaliser is none of the three.
    """
    if normaliser not in _NORMALISERS:
        raise unknown_choice("normaliser", normaliser, _NORMALISERS)
    probs_T_V = probs_T_V.to(torch.float64)
    entropy_T = torch.special.entr(probs_T_V).sum(-1)
    top_T_J = probs_T_V.topk(top_j, dim=-1).values
    confidence_T = -top_T_J.log().mean(-1)
    p_max_T = top_T_J[:, 0]
    high_T, sure_T = _NORMALISERS[normaliser](entropy_T, confidence_T, p_max_T, probs_T_V.shape[-1])
    signal_T = alpha * high_T + (1.0 - alpha) * (1.0 - sure_T)
    before_first = signal_T.new_full((1,), torch.nan)
    delta_T = torch.cat([before_first, signal_T.diff().abs()])
    return ThinkingSignal(entropy_T, confidence_T, p_max_T, signal_T, delta_T)


def window_means(delta_T: Tensor, window: int) -> Tensor:
    """Return the mean of the last ``window + 1`` changes at each token, nan where there are fewer. [T] float."""
    out_T = torch.full_like(delta_T, torch.nan)
    if len(delta_T) > window + 1:
        out_T[window + 1 :] = delta_T[1:].unfold(0, window + 1, 1).mean(-1)
    return out_T


def thinking_stop(window_mean_T: Tensor, *, threshold: float, min_tokens: int) -> int | None:
    """Return the first token after which thinking is cut: at least min_tokens so far, and window mean < threshold.

    Source: T2PO 2605.02178 (token-level intervention). The end-of-thinking token is forced at the next one.

    Args:
        window_mean_T: [T] float from `window_means`; nan never triggers.
        threshold: > 0.
        min_tokens: tokens, this one included, before which nothing is cut.
    Returns:
        index from 0, or None.
    """
    quiet_T = window_mean_T < threshold
    quiet_T[: max(min_tokens - 1, 0)] = False
    hits = quiet_T.nonzero().flatten()
    return int(hits[0]) if len(hits) else None


def turn_signal(signal_T: Tensor, *, floor: float = 1e-12) -> float:
    """Return the geometric mean of a turn's signal, ``exp(mean log max(M, floor))``. Source: T2PO 2605.02178.

    One token with M = 0 pulls the mean down hard, to the floor's root.
    """
    return float(signal_T.to(torch.float64).clamp(min=floor).log().mean().exp())


@dataclass(frozen=True)
class TurnChoice:
    """Which candidate of a turn is kept: its index (= resamples used), its signal, and whether it is still too close."""

    index: int
    signal: float
    is_still_below: bool


def choose_turn(
    previous: float | None, candidates: Sequence[float], *, threshold: float, max_resamples: int
) -> TurnChoice:
    """Return the first candidate turn whose signal moved at least `threshold` from the turn before, or the last tried.

    Source: T2PO 2605.02178 (turn-level resampling, at most max_resamples times).

    Args:
        previous: signal of the turn before; None at the first turn, which is never resampled.
        candidates: signals in the order of sampling; at least one, and enough for the resamples that are due.
        threshold: >= 0; a change equal to it counts as moved.
        max_resamples: >= 0.
    Returns:
        the choice.
    Raises:
        ValueError: a resample is due, but there is no candidate left.
    """
    for index, signal in enumerate(candidates):
        is_below = previous is not None and abs(signal - previous) < threshold
        if not is_below or index == max_resamples:
            return TurnChoice(index, signal, is_below)
    raise ValueError(
        f"{len(candidates)} candidates do not reach the end of {max_resamples} resamples; sample one more."
    )


def _offline(entropy_T: Tensor, confidence_T: Tensor, p_max_T: Tensor, vocab: int) -> tuple[Tensor, Tensor]:
    high_T, sure_T = ((x - x.amin()) / (x.amax() - x.amin() + _EPS) for x in (entropy_T, confidence_T))
    return high_T, sure_T


def _causal(entropy_T: Tensor, confidence_T: Tensor, p_max_T: Tensor, vocab: int) -> tuple[Tensor, Tensor]:
    def scaled(x_T: Tensor) -> Tensor:
        low_T, top_T = x_T.cummin(0).values, x_T.cummax(0).values
        return (x_T - low_T) / (top_T - low_T + _EPS)

    return scaled(entropy_T), scaled(confidence_T)


def _fixed(entropy_T: Tensor, confidence_T: Tensor, p_max_T: Tensor, vocab: int) -> tuple[Tensor, Tensor]:
    return entropy_T / math.log(vocab), p_max_T


_NORMALISERS: dict[str, Callable[[Tensor, Tensor, Tensor, int], tuple[Tensor, Tensor]]] = {
    "offline_minmax": _offline,
    "causal_minmax": _causal,
    "fixed_range": _fixed,
}
NORMALISERS: tuple[str, ...] = tuple(_NORMALISERS)
"""How `thinking_signal` brings entropy and confidence to [0, 1]."""
