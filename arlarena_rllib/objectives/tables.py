"""Tables of where the off-policy mass sits: sign of the advantage x side of the ratio x entropy. Whole batch, offline."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from arlarena_rllib.objectives.clipping import sequence_log_ratio, token_ratio


@torch.no_grad()
def out_of_band_table(
    log_ratio_B_T: Tensor, adv_B_T: Tensor, mask_B_T: Tensor, *, low: float = 0.2, high: float = 0.2
) -> dict[str, float]:
    """Return the shares of policy tokens whose ratio left [1 - low, 1 + high], by sign of A and side.

    Source: ARLArena 2602.21534 fig. 4 counts adv_neg_ratio_low and adv_pos_ratio_high; the other two cells are the
    tokens out of the band that no clip acts on. A token with A = 0 is in no cell, but in the total.

    Args:
        log_ratio_B_T: [B, T] float.
        adv_B_T: [B, T] float.
        mask_B_T: [B, T] bool or 0/1; masked positions may hold anything.
        low, high: width of the band below and above 1.
    Returns:
        adv_neg_ratio_low, adv_neg_ratio_high, adv_pos_ratio_low, adv_pos_ratio_high, and total (any sign); all 0 if
        everything is masked.
    """
    mask_B_T = mask_B_T.bool()
    ratio_B_T = token_ratio(torch.where(mask_B_T, log_ratio_B_T, 0.0))
    n_tokens = max(int(mask_B_T.sum()), 1)
    signs = {"adv_neg": adv_B_T < 0, "adv_pos": adv_B_T > 0}
    sides = {"ratio_low": ratio_B_T < 1.0 - low, "ratio_high": ratio_B_T > 1.0 + high}
    cells = {f"{sign}_{side}": is_sign & is_side for sign, is_sign in signs.items() for side, is_side in sides.items()}
    cells["total"] = sides["ratio_low"] | sides["ratio_high"]
    return {name: int((cell_B_T & mask_B_T).sum()) / n_tokens for name, cell_B_T in cells.items()}


@dataclass(frozen=True)
class SequenceTable:
    """Rows by sign of the advantage, side of the sequence ratio, and entropy.

    Attributes:
        counts: adv_neg_is_lt1, adv_neg_is_ge1, adv_pos_is_lt1, adv_pos_is_ge1 -> number of rows; A = 0 is in no cell.
        kl_share: "adv_neg|is_lt1|lowH" to "adv_nonneg|is_ge1|highH" -> share of the summed reference KL; 8 cells that
            sum to 1, all 0 if the KL is 0.
        entropy_threshold: median over rows of the mean token entropy; ties count as low.
    """

    counts: dict[str, int]
    kl_share: dict[str, float]
    entropy_threshold: float


@torch.no_grad()
def sequence_table(
    log_ratio_B_T: Tensor, adv_B: Tensor, mask_B_T: Tensor, ref_kl_B_T: Tensor, entropy_B_T: Tensor
) -> SequenceTable:
    """Return the table of rows behind a collapse: which kind of row carries the KL to the reference.

    Source: ARLArena 2602.21534 fig. 4; the entropy threshold is not published, the median is this project's choice.

    Args:
        log_ratio_B_T: [B, T] float, log pi - log pi_old.
        adv_B: [B] float.
        mask_B_T: [B, T] bool or 0/1; masked positions may hold anything.
        ref_kl_B_T: [B, T] float, per-token KL to the reference.
        entropy_B_T: [B, T] float, per-token entropy.
    Returns:
        the table over rows with at least one policy token; the threshold is 0 when there is none.
    """
    mask_B_T = mask_B_T.bool()
    n_B = mask_B_T.sum(-1)
    live_B = n_B > 0
    kl_B = torch.where(mask_B_T, ref_kl_B_T, 0.0).sum(-1)
    entropy_B = torch.where(mask_B_T, entropy_B_T, 0.0).sum(-1) / n_B.clamp(min=1)
    threshold = float(torch.quantile(entropy_B[live_B], 0.5)) if bool(live_B.any()) else 0.0
    is_below_B = sequence_log_ratio(log_ratio_B_T, mask_B_T).squeeze(-1) < 0
    is_high_B = entropy_B > threshold
    sides = {"is_lt1": is_below_B & live_B, "is_ge1": ~is_below_B & live_B}
    counts = {
        f"{sign}_{side}": int((is_sign_B & is_side_B).sum())
        for sign, is_sign_B in {"adv_neg": adv_B < 0, "adv_pos": adv_B > 0}.items()
        for side, is_side_B in sides.items()
    }
    total = float(kl_B.sum()) or 1.0
    shares = {
        f"{sign}|{side}|{level}": float(kl_B[is_sign_B & is_side_B & is_level_B].sum()) / total
        for sign, is_sign_B in {"adv_neg": adv_B < 0, "adv_nonneg": adv_B >= 0}.items()
        for side, is_side_B in sides.items()
        for level, is_level_B in {"lowH": ~is_high_B, "highH": is_high_B}.items()
    }
    return SequenceTable(counts, shares, threshold)
