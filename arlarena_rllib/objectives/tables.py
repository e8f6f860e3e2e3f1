"""Tables of where the off-policy mass sits: sign of the advantage x side of the ratio x entropy.

`token_table` and `row_table` are raw metrics, so micro-batches and learners add up: counts exactly, sums of KL up to
float64 rounding. `finish_tables` divides. The whole-batch forms are these two with one part.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from arlarena_rllib.objectives.clipping import sequence_log_ratio
from arlarena_rllib.objectives.metrics import as_floats

BAND_CELLS = ("adv_neg_ratio_low", "adv_neg_ratio_high", "adv_pos_ratio_low", "adv_pos_ratio_high", "total")
"""Sign of A x side of the band, and both sides with any sign. A = 0 is in the total only."""
SIDE_CELLS = ("adv_neg_is_lt1", "adv_neg_is_ge1", "adv_pos_is_lt1", "adv_pos_is_ge1")
"""Sign of A x side of the sequence ratio. A = 0 is in none."""
KL_CELLS = tuple(map("|".join, itertools.product(("adv_neg", "adv_nonneg"), ("is_lt1", "is_ge1"), ("lowH", "highH"))))
"""Sign of A (0 counts as non-negative) x side of the sequence ratio x entropy of the row."""

# Counts of their own, so that tables may be merged with the metrics of an objective.
_TOKENS, _ROWS, _EMPTY_ROWS = "sum/table_tokens", "sum/table_rows", "sum/table_rows_empty"
_SEQ_MASKED = "sum/table_rows_seq_masked"


@torch.no_grad()
def token_table(
    log_ratio_B_T: Tensor, adv_B_T: Tensor, mask_B_T: Tensor, *, low: float = 0.2, high: float = 0.2
) -> dict[str, Tensor]:
    """Return raw counts of policy tokens whose ratio left [1 - low, 1 + high], by sign of A and side.

    Source: ARLArena 2602.21534 fig. 4 counts adv_neg_ratio_low and adv_pos_ratio_high; the other two cells are the
    tokens out of the band that no clip acts on.

    Args:
        log_ratio_B_T: [B, T] float, log pi - log pi_old.
        adv_B_T: [B, T] float.
        mask_B_T: [B, T] bool or 0/1; masked positions may hold anything.
        low, high: width of the band below (<= 1) and above 1.
    Returns:
        raw metrics, 0-dim int64; all 0 if everything is masked.
    """
    mask_B_T = mask_B_T.bool()
    d_B_T = torch.where(mask_B_T, log_ratio_B_T, 0.0)
    counts = _band_counts(d_B_T, adv_B_T, mask_B_T, low, high)
    return {_TOKENS: mask_B_T.sum(), **{f"sum/oob_token_{cell}": count for cell, count in counts.items()}}


@torch.no_grad()
def row_table(
    log_ratio_B_T: Tensor,
    adv_B: Tensor,
    mask_B_T: Tensor,
    entropy_B: Tensor,
    *,
    entropy_threshold: float,
    ref_kl_B_T: Tensor | None = None,
    low: float = 3e-3,
    high: float = 4e-3,
    seq_mask_delta: float = 3e-3,
) -> dict[str, Tensor]:
    """Return raw counts of rows by sign of A, side of the sequence ratio and entropy, and the reference KL they carry.

    ``log s = (1/n) sum_t m d``; out of the band when s leaves [1 - low, 1 + high]; sequence masking would drop a row
    with A < 0 and -log s > seq_mask_delta. Source: ARLArena 2602.21534 fig. 4 and table 1; band and delta are those of
    its table S1 and scripts. The entropy threshold is not published: the median of the batch is this project's choice.

    Args:
        log_ratio_B_T: [B, T] float, log pi - log pi_old.
        adv_B: [B] float.
        mask_B_T: [B, T] bool or 0/1; masked positions may hold anything.
        entropy_B: [B] float, these rows' slice of `row_mean_entropy` of the whole batch.
        entropy_threshold: of the whole batch and known before the update; rows at the threshold are low.
        ref_kl_B_T: [B, T] float, per-token KL to the reference; None leaves the KL out.
        low, high: width of the band of the sequence ratio below (<= 1) and above 1.
        seq_mask_delta: threshold of the sequence mask, >= 0.
    Returns:
        raw metrics, 0-dim; rows without policy tokens are counted as empty and nowhere else.
    """
    mask_B_T = mask_B_T.bool()
    live_B = mask_B_T.any(-1)
    # In double, so that the padding of a micro-batch cannot move a row over an edge by rounding.
    log_s_B = sequence_log_ratio(log_ratio_B_T.double(), mask_B_T).squeeze(-1)
    is_below_B, is_high_B = log_s_B < 0, entropy_B > entropy_threshold
    sides, levels = (is_below_B, ~is_below_B), (~is_high_B, is_high_B)
    raw = {
        _ROWS: live_B.sum(),
        _EMPTY_ROWS: (~live_B).sum(),
        _SEQ_MASKED: (live_B & (adv_B < 0) & (-log_s_B > seq_mask_delta)).sum(),
    }
    raw |= {f"sum/oob_seq_{c}": n for c, n in _band_counts(log_s_B, adv_B, live_B, low, high).items()}
    for cell, (sign_B, side_B) in zip(SIDE_CELLS, itertools.product((adv_B < 0, adv_B > 0), sides), strict=True):
        raw[f"sum/table_rows_{cell}"] = (sign_B & side_B & live_B).sum()
    kl_B = None if ref_kl_B_T is None else torch.where(mask_B_T, ref_kl_B_T, 0.0).double().sum(-1)
    eight = itertools.product((adv_B < 0, ~(adv_B < 0)), sides, levels)
    for cell, (sign_B, side_B, level_B) in zip(KL_CELLS, eight, strict=True):
        cell_B = sign_B & side_B & level_B & live_B
        raw[f"sum/table_rows_{_name(cell)}"] = cell_B.sum()
        if kl_B is not None:
            raw[f"sum/table_ref_kl_{_name(cell)}"] = torch.where(cell_B, kl_B, 0.0).sum()
    return raw


@torch.no_grad()
def row_mean_entropy(entropy_B_T: Tensor, mask_B_T: Tensor) -> Tensor:
    """Return the mean entropy over the policy tokens of each row, to be computed once for the whole batch.

    Args:
        entropy_B_T: [B, T] float, nats per token under the policy of the rollout.
        mask_B_T: [B, T] bool or 0/1; masked positions may hold anything.
    Returns:
        [B] float64, nan for rows without policy tokens.
    """
    mask_B_T = mask_B_T.bool()
    return torch.where(mask_B_T, entropy_B_T, 0.0).double().sum(-1) / mask_B_T.sum(-1)


def entropy_threshold(row_entropies: Iterable[Tensor]) -> float:
    """Return the median of `row_mean_entropy` over all parts of a batch, e.g. one per learner.

    Args:
        row_entropies: [B_i] float each; nan is left out.
    Returns:
        nats; the mean of the two middle values of an even number, 0 when there is no row.
    """
    values = torch.cat([part.detach().double().cpu().flatten() for part in row_entropies] or [torch.zeros(0)])
    values = values[~values.isnan()]
    return float(torch.quantile(values, 0.5)) if values.numel() else 0.0


def finish_tables(raw: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the shares to log from merged raw tables.

    Args:
        raw: merged results of `token_table`, `row_table` or both.
    Returns:
        ``oob_token_<cell>_frac`` of policy tokens, ``oob_seq_<cell>_frac`` and ``rows_<cell>_frac`` of rows with policy
        tokens, ``ref_kl_share_<cell>`` of the summed KL (all 0 if that is 0), ``rows_seq_mask_frac``,
        ``rows_empty_frac`` of all rows. What has no token or row to divide by is left out.
    """
    values = as_floats(raw)
    tokens, rows, empty = (values.get(key, 0.0) for key in (_TOKENS, _ROWS, _EMPTY_ROWS))
    done: dict[str, float] = {}
    if tokens:
        done |= {f"oob_token_{cell}_frac": values[f"sum/oob_token_{cell}"] / tokens for cell in BAND_CELLS}
    if rows + empty:
        done["rows_empty_frac"] = empty / (rows + empty)
    if not rows:
        return done
    done["rows_seq_mask_frac"] = values[_SEQ_MASKED] / rows
    done |= {f"oob_seq_{cell}_frac": values[f"sum/oob_seq_{cell}"] / rows for cell in BAND_CELLS}
    cells = [_name(cell) for cell in KL_CELLS]
    done |= {f"rows_{cell}_frac": values[f"sum/table_rows_{cell}"] / rows for cell in cells}
    if f"sum/table_ref_kl_{cells[0]}" in values:
        kl = {cell: values[f"sum/table_ref_kl_{cell}"] for cell in cells}
        done |= {f"ref_kl_share_{cell}": part / (sum(kl.values()) or 1.0) for cell, part in kl.items()}
    return done


def out_of_band_table(
    log_ratio_B_T: Tensor, adv_B_T: Tensor, mask_B_T: Tensor, *, low: float = 0.2, high: float = 0.2
) -> dict[str, float]:
    """Return the shares of a whole batch's policy tokens whose ratio left the band; see `token_table`.

    Returns:
        one share for each of `BAND_CELLS`; all 0 if everything is masked.
    """
    done = finish_tables(token_table(log_ratio_B_T, adv_B_T, mask_B_T, low=low, high=high))
    return {cell: done.get(f"oob_token_{cell}_frac", 0.0) for cell in BAND_CELLS}


@dataclass(frozen=True)
class SequenceTable:
    """Rows by sign of the advantage, side of the sequence ratio, and entropy.

    Attributes:
        counts: `SIDE_CELLS` -> number of rows.
        kl_share: `KL_CELLS` -> share of the summed reference KL; they sum to 1, all 0 if the KL is 0.
        entropy_threshold: median over rows of the mean token entropy; ties count as low.
    """

    counts: dict[str, int]
    kl_share: dict[str, float]
    entropy_threshold: float


def sequence_table(
    log_ratio_B_T: Tensor, adv_B: Tensor, mask_B_T: Tensor, ref_kl_B_T: Tensor, entropy_B_T: Tensor
) -> SequenceTable:
    """Return the table of a whole batch's rows behind a collapse: which kind of row carries the KL to the reference.

    Args:
        log_ratio_B_T, adv_B, mask_B_T, ref_kl_B_T: as in `row_table`.
        entropy_B_T: [B, T] float, per-token entropy.
    Returns:
        the table over rows with at least one policy token; the threshold is 0 when there is none.
    """
    entropy_B = row_mean_entropy(entropy_B_T, mask_B_T)
    threshold = entropy_threshold([entropy_B])
    raw = row_table(log_ratio_B_T, adv_B, mask_B_T, entropy_B, entropy_threshold=threshold, ref_kl_B_T=ref_kl_B_T)
    done = finish_tables(raw)
    return SequenceTable(
        counts={cell: int(raw[f"sum/table_rows_{cell}"]) for cell in SIDE_CELLS},
        kl_share={cell: done.get(f"ref_kl_share_{_name(cell)}", 0.0) for cell in KL_CELLS},
        entropy_threshold=threshold,
    )


def _band_counts(log_ratio: Tensor, adv: Tensor, live: Tensor, low: float, high: float) -> dict[str, Tensor]:
    """Count by comparing logarithms: exp may round differently at another position of a tensor, "<" does not."""
    is_low = log_ratio < (math.log1p(-low) if low < 1.0 else -math.inf)
    is_high = log_ratio > math.log1p(high)
    cells = (*itertools.product((adv < 0, adv > 0), (is_low, is_high)), (is_low | is_high, live))
    return {name: (one & other & live).sum() for name, (one, other) in zip(BAND_CELLS, cells, strict=True)}


def _name(cell: str) -> str:
    return cell.replace("|", "_")
