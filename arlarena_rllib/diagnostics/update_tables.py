"""The tables of one update, from the tensors that a learner has at hand; raw, so that any split adds up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from arlarena_rllib.diagnostics.ratio_histogram import HISTOGRAM, ratio_histogram, ratio_quantiles
from arlarena_rllib.objectives import reference_kl
from arlarena_rllib.objectives.tables import finish_tables, row_table, token_table


@dataclass(frozen=True)
class TableBands:
    """Bands of the tables; the same for every method, so that methods can be compared.

    Attributes:
        token_low, token_high: of the token ratio, [1 - low, 1 + high]. PPO's, as in ARLArena 2602.21534 fig. 4.
        seq_low, seq_high: of the sequence ratio. GSPO's in ARLArena's table S1 (ALFWorld, Sokoban, math).
        seq_mask_delta: threshold of the sequence mask in ARLArena's scripts.
    """

    token_low: float = 0.2
    token_high: float = 0.2
    seq_low: float = 3e-3
    seq_high: float = 4e-3
    seq_mask_delta: float = 3e-3


@torch.no_grad()
def update_tables(
    logp_B_T: Tensor,
    old_logp_B_T: Tensor,
    advantages: Tensor,
    mask_B_T: Tensor,
    entropy_B: Tensor,
    *,
    entropy_threshold: float,
    ref_logp_B_T: Tensor | None = None,
    bands: TableBands | None = None,
) -> dict[str, Tensor]:
    """Return the raw tables of some rows: 2x2 by token and by sequence, 8 cells, histogram of the ratio.

    Args:
        logp_B_T: [B, T] float, log-prob of each sampled token under the current policy.
        old_logp_B_T: [B, T] float, under the policy of the rollout.
        advantages: [B] or [B, T] float; the sign of a row is that of its mean over policy tokens.
        mask_B_T: [B, T] bool or 0/1, 1 = sampled by the policy; masked positions of every tensor may hold anything.
        entropy_B: [B] float, these rows' slice of `row_mean_entropy` of the whole batch.
        entropy_threshold: `entropy_threshold` of the whole batch, of all learners.
        ref_logp_B_T: [B, T] float, under the reference policy; None leaves the KL cells out. The KL is k3.
        bands: None = the defaults.
    Returns:
        raw metrics for `merge_metrics`, then `finish_update_tables`; neutral when everything is masked.
    Notes:
        Counts add up exactly over any split, sums of KL up to float64 rounding. Elementwise work on [B, T], no forward
        pass.
    """
    bands = bands or TableBands()
    mask_B_T = mask_B_T.bool()
    d_B_T = _difference(logp_B_T, old_logp_B_T, mask_B_T)
    kl_B_T = None
    if ref_logp_B_T is not None:
        kl_B_T = reference_kl("k3", _difference(ref_logp_B_T, logp_B_T, mask_B_T), d_B_T)
    adv_B_T = advantages.unsqueeze(-1).expand_as(d_B_T) if advantages.dim() == 1 else advantages
    return {
        **token_table(d_B_T, adv_B_T, mask_B_T, low=bands.token_low, high=bands.token_high),
        **row_table(
            d_B_T,
            torch.where(mask_B_T, adv_B_T, 0.0).double().sum(-1),
            mask_B_T,
            entropy_B,
            entropy_threshold=entropy_threshold,
            ref_kl_B_T=kl_B_T,
            low=bands.seq_low,
            high=bands.seq_high,
            seq_mask_delta=bands.seq_mask_delta,
        ),
        **ratio_histogram(d_B_T, mask_B_T),
    }


def finish_update_tables(raw: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the numbers to log from merged results of `update_tables`: those of `finish_tables` and the quantiles.

    Args:
        raw: merged raw tables of one update.
    Returns:
        floats; what has nothing to divide by is left out.
    """
    scalars = {key: value for key, value in raw.items() if key != HISTOGRAM}
    return {**finish_tables(scalars), **ratio_quantiles(raw)}


def _difference(logp_B_T: Tensor, other_B_T: Tensor, mask_B_T: Tensor) -> Tensor:
    dtype = torch.promote_types(logp_B_T.dtype, torch.float32)
    return torch.where(mask_B_T, logp_B_T.to(dtype) - other_B_T.to(dtype), 0.0)
