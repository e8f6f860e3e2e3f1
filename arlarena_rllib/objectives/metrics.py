"""Metrics of an update as sums, counts and extremes, so that micro-batches and learners add up exactly.

Keys of raw metrics say how two of them merge: ``sum/...`` add, ``min/...`` and ``max/...`` take the extreme.
`finish_metrics` turns merged raw metrics into the numbers that are logged. All are token weighted over policy tokens,
unless a name says rows or seq.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from arlarena_rllib.objectives.clipping import MAX_LOG_RATIO, ClipResult, sequence_log_ratio, token_ratio

TOKENS, ROWS = "sum/tokens", "sum/rows"
LOSSES = ("policy_loss", "kl_loss", "entropy_loss", "value_loss", "total_loss")
"""Losses, weighted by the global denominators already: they add up, nothing is divided."""

_MISMATCH_TOKENS, _MISMATCH_ROWS = "sum/mismatch_tokens", "sum/mismatch_rows"
_COUNTS = (TOKENS, ROWS, _MISMATCH_TOKENS, _MISMATCH_ROWS)
_MEANS = {
    "approx_kl_k1": ("sum/approx_kl_k1", TOKENS),
    "approx_kl_k3": ("sum/approx_kl_k3", TOKENS),
    "ratio_mean": ("sum/ratio", TOKENS),
    "clip_frac": ("sum/clip", TOKENS),
    "clip_low_frac": ("sum/clip_low", TOKENS),
    "clip_high_frac": ("sum/clip_high", TOKENS),
    "clip_rows_frac": ("sum/clip_rows", ROWS),
    "cov_selected_frac": ("sum/cov_selected", TOKENS),
    "masked_rows_frac": ("sum/masked_rows", ROWS),
    "advantages_mean": ("sum/advantages", TOKENS),
    "ref_kl": ("sum/ref_kl", TOKENS),
    "entropy": ("sum/entropy", TOKENS),
    "mismatch_kl_k1": ("sum/mismatch_kl_k1", _MISMATCH_TOKENS),
    "mismatch_kl_k3": ("sum/mismatch_kl_k3", _MISMATCH_TOKENS),
    "mismatch_abs_logp_diff_mean": ("sum/mismatch_abs_logp_diff", _MISMATCH_TOKENS),
    "mismatch_prob_diff_mean": ("sum/mismatch_prob_diff", _MISMATCH_TOKENS),
    "mismatch_weight_mean": ("sum/mismatch_weight", TOKENS),
    "mismatch_masked_tokens_frac": ("sum/mismatch_masked_tokens", TOKENS),
    "mismatch_masked_rows_frac": ("sum/mismatch_masked_rows", ROWS),
    "mismatch_truncated_tokens_frac": ("sum/mismatch_truncated_tokens", TOKENS),
}
_EXTREMES = {
    "ratio_min": ("min/ratio", TOKENS),
    "ratio_max": ("max/ratio", TOKENS),
    "mismatch_abs_logp_diff_max": ("max/mismatch_abs_logp_diff", _MISMATCH_TOKENS),
}
_EFFECTIVE_SAMPLES = {
    "ess_token_frac": ("sum/ratio", "sum/ratio_squared", TOKENS),
    "ess_seq_frac": ("sum/seq_ratio", "sum/seq_ratio_squared", ROWS),
    "mismatch_ess_token_frac": ("sum/mismatch_ratio", "sum/mismatch_ratio_squared", _MISMATCH_TOKENS),
}
_CHI_SQUARES = {
    "mismatch_chi2_token": ("sum/mismatch_ratio_squared", _MISMATCH_TOKENS),
    "mismatch_chi2_seq": ("sum/mismatch_seq_ratio_squared", _MISMATCH_ROWS),
}


@torch.no_grad()
def importance_metrics(log_ratio_B_T: Tensor, adv_B_T: Tensor, mask_B_T: Tensor, clip: ClipResult) -> dict[str, Tensor]:
    """Return raw importance-sampling metrics of some rows.

    k1 = mean(-d), k3 = mean(r - 1 - d) of the step away from the old policy (k1 may be negative, k3 not);
    ESS = (sum w)^2 / (n sum w^2), per token with w = r, per row with w = prod_t r. Source: 2602.21534 fig. 4; verl.

    Args:
        log_ratio_B_T: [B, T] float, d = log pi - log pi_old, 0 at masked positions.
        adv_B_T: [B, T] float, 0 at masked positions.
        mask_B_T: [B, T] bool.
        clip: indicators of the clipping function, and the tokens it picked by covariance, if any.
    Returns:
        raw metrics, 0-dim tensors on the device of the input; neutral values when everything is masked.
    """
    low_B_T, high_B_T = clip.clipped_low_B_T & mask_B_T, clip.clipped_high_B_T & mask_B_T
    clipped_B_T = low_B_T | high_B_T
    ratio_B_T = token_ratio(log_ratio_B_T)
    selected = {} if clip.selected_B_T is None else {"sum/cov_selected": (clip.selected_B_T & mask_B_T).sum()}
    return {
        **selected,
        TOKENS: mask_B_T.sum(),
        ROWS: mask_B_T.any(-1).sum(),
        **_weight_sums("", ratio_B_T, mask_B_T),
        **_sequence_sums("", log_ratio_B_T, mask_B_T),
        **_divergence_sums("approx_", log_ratio_B_T, mask_B_T),
        "min/ratio": torch.where(mask_B_T, ratio_B_T, torch.inf).amin() if mask_B_T.numel() else _inf(ratio_B_T),
        "max/ratio": torch.where(mask_B_T, ratio_B_T, -torch.inf).amax() if mask_B_T.numel() else -_inf(ratio_B_T),
        "sum/clip": clipped_B_T.sum(),
        "sum/clip_low": low_B_T.sum(),
        "sum/clip_high": high_B_T.sum(),
        "sum/clip_rows": clipped_B_T.any(-1).sum(),
        "sum/advantages": _masked_sum(adv_B_T, mask_B_T),
    }


@torch.no_grad()
def mismatch_metrics(train_logp_B_T: Tensor, rollout_logp_B_T: Tensor, mask_B_T: Tensor) -> dict[str, Tensor]:
    """Return raw metrics of the gap between the trainer's and the engine's log-probs of the same tokens.

    With rho = pi_train / pi_rollout: k1 = mean(-log rho), k3 = mean(rho - 1 - log rho), |log rho| mean and max,
    |p - q| mean, chi2 = mean(w^2) - 1 for w = rho per token and prod_t rho per row, ESS per token.

    Args:
        train_logp_B_T: [B, T] float, recomputed by the learner.
        rollout_logp_B_T: [B, T] float, reported by the engine.
        mask_B_T: [B, T] bool or 0/1; masked positions may hold anything.
    Returns:
        raw metrics; merge them with `merge_metrics`, read them with `finish_metrics`. They have counts of their own, so
        they may be merged with those of the objective.
    """
    mask_B_T = mask_B_T.bool()
    train_B_T = torch.where(mask_B_T, train_logp_B_T.detach(), 0.0)
    rollout_B_T = torch.where(mask_B_T, rollout_logp_B_T.detach(), 0.0)
    gap_B_T = train_B_T - rollout_B_T
    ratio_B_T = token_ratio(gap_B_T)
    gap_max = gap_B_T.abs().amax() if mask_B_T.numel() else -_inf(gap_B_T)
    return {
        _MISMATCH_TOKENS: mask_B_T.sum(),
        _MISMATCH_ROWS: mask_B_T.any(-1).sum(),
        **_weight_sums("mismatch_", ratio_B_T, mask_B_T),
        **_sequence_sums("mismatch_", gap_B_T, mask_B_T),
        **_divergence_sums("mismatch_", gap_B_T, mask_B_T),
        "sum/mismatch_abs_logp_diff": _masked_sum(gap_B_T.abs(), mask_B_T),
        "max/mismatch_abs_logp_diff": gap_max,
        "sum/mismatch_prob_diff": _masked_sum((train_B_T.exp() - rollout_B_T.exp()).abs(), mask_B_T),
    }


def merge_metrics(parts: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return one dict of raw metrics for several micro-batches or learners: sums add, extremes are compared.

    Args:
        parts: raw metrics; a key may be absent in some of them.
    Returns:
        raw metrics; the order of the parts does not matter up to rounding.
    Raises:
        ValueError: a key does not start with "sum/", "min/" or "max/".
    """
    merged: dict[str, Tensor] = {}
    for part in parts:
        for key, value in part.items():
            how = key.split("/", 1)[0]
            if how not in _MERGE:
                raise ValueError(f"raw metric {key!r} must start with one of {', '.join(_MERGE)} and a slash.")
            merged[key] = _MERGE[how](merged[key], value) if key in merged else value
    return merged


def finish_metrics(raw: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the numbers to log from merged raw metrics.

    Args:
        raw: merged raw metrics of one update.
    Returns:
        floats; a metric whose parts are absent, or that has no policy token to average over, is left out. One transfer
        from the device.
    """
    values = as_floats(raw)
    done = {name: values[f"sum/{name}"] for name in LOSSES if f"sum/{name}" in values}
    done |= {name: values[key] for name, key in (("num_tokens", TOKENS), ("num_rows", ROWS)) if key in values}
    measured = {key for key, value in values.items() if key not in _COUNTS or value > 0}
    for name, (total, count) in _MEANS.items():
        if {total, count} <= measured:
            done[name] = values[total] / values[count]
    for name, (extreme, count) in _EXTREMES.items():
        if {extreme, count} <= measured:
            done[name] = values[extreme]
    for name, (total, squares, count) in _EFFECTIVE_SAMPLES.items():
        if {total, squares, count} <= measured:
            done[name] = values[total] ** 2 / (values[count] * values[squares])
    for name, (squares, count) in _CHI_SQUARES.items():
        if {squares, count} <= measured:
            done[name] = values[squares] / values[count] - 1.0
    return done


_MERGE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"sum": torch.add, "min": torch.minimum, "max": torch.maximum}


def as_floats(raw: Mapping[str, Tensor]) -> dict[str, float]:
    """Return 0-dim raw metrics as Python numbers, with one transfer from the device."""
    if not raw:
        return {}
    packed = torch.stack([torch.as_tensor(value).to(torch.float64) for value in raw.values()])
    return dict(zip(raw, packed.tolist(), strict=True))


def _masked_sum(value_B_T: Tensor, mask_B_T: Tensor) -> Tensor:
    return torch.where(mask_B_T, value_B_T, 0.0).sum()


def _divergence_sums(prefix: str, log_ratio_B_T: Tensor, mask_B_T: Tensor) -> dict[str, Tensor]:
    """Sums of k1 = -d and k3 = exp(d) - 1 - d, by expm1 because both are tiny near d = 0."""
    d_B_T = log_ratio_B_T.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return {
        f"sum/{prefix}kl_k1": _masked_sum(-d_B_T, mask_B_T),
        f"sum/{prefix}kl_k3": _masked_sum(d_B_T.expm1() - d_B_T, mask_B_T),
    }


def _weight_sums(prefix: str, ratio_B_T: Tensor, mask_B_T: Tensor) -> dict[str, Tensor]:
    return {
        f"sum/{prefix}ratio": _masked_sum(ratio_B_T, mask_B_T),
        f"sum/{prefix}ratio_squared": _masked_sum(ratio_B_T.square(), mask_B_T),
    }


def _sequence_sums(prefix: str, log_ratio_B_T: Tensor, mask_B_T: Tensor) -> dict[str, Tensor]:
    """Sums of w and w^2 over rows with tokens, w = product of the row's token ratios."""
    n_B = mask_B_T.sum(-1)
    product_B = token_ratio(sequence_log_ratio(log_ratio_B_T, mask_B_T).squeeze(-1) * n_B)
    return _weight_sums(f"{prefix}seq_", product_B, n_B > 0)


def _inf(like: Tensor) -> Tensor:
    return torch.tensor(torch.inf, dtype=like.dtype, device=like.device)
