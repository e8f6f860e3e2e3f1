"""EMPG: a turn's signal is scaled by how sure the policy was in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from arlarena_rllib.objectives.advantages.group_relative import NORMALISED_READS, grpo
from arlarena_rllib.objectives.advantages.rewards import policy_tokens
from arlarena_rllib.objectives.advantages.rows import AdvantageRows
from arlarena_rllib.objectives.advantages.terms import AdvantageTerms, register
from arlarena_rllib.objectives.grouping import neighbour_rows

if TYPE_CHECKING:
    from arlarena_rllib.objectives.spec import ObjectiveSpec

_EPS = 1e-8


@register(
    "empg",
    reads=(*NORMALISED_READS, "empg_k", "empg_k_future", "empg_zeta"),
    needs=("groups", "mask", "entropy", "turns"),
)
def empg(rows: AdvantageRows, spec: ObjectiveSpec) -> AdvantageTerms:
    """Return ``A_i = g_i A_grpo_i + zeta f_{next turn of i}``, centred over the rows.

    With H~ the min-max normalised mean entropy of a row: ``g = exp(-k H~) / mean exp(-k H~)``, ``f = exp(-k' H~)``; the
    bonus is 0 at a trajectory's last turn, and positive for failed trajectories too. All statistics are over the rows
    of the batch that have policy tokens. Source: EMPG 2509.09265. Differs from the released code in: a row
    without policy tokens is left out (its entropy of 0 would be the minimum).

    Args:
        rows: [B] vectors as for grpo, turn index, mask_B_T, entropy_B_T (of the full distribution).
        spec: reads what grpo reads, empg_k, empg_k_future, empg_zeta.
    Returns:
        [B] advantages, 0 for rows without policy tokens; parts score, step_entropy, norm_entropy, scale, bonus,
        uncentred.
    Raises:
        ValueError: mask or entropy are missing, or a trajectory holds a turn twice.
    Notes:
        Equal entropies give H~ = 0 up to rounding over 1e-8: g = f = 1.
    """
    rows.require("entropy", "advantage='empg'")
    base = grpo(rows, spec)
    entropy_B, live_B = _mean_entropy(rows)
    norm_B = _min_max(entropy_B, live_B)
    weight_B = (-spec.empg_k * norm_B).exp()
    scale_B = weight_B / (_mean(weight_B, live_B) + _EPS)
    bonus_B = torch.where(live_B, (-spec.empg_k_future * norm_B).exp(), 0.0)
    _, next_B = neighbour_rows(rows.trajectory_id_B, rows.turn_index_B)
    future_B = torch.where(next_B >= 0, bonus_B[next_B.clamp(min=0)], 0.0)
    uncentred_B = scale_B * base.advantages + spec.empg_zeta * future_B
    advantage_B = torch.where(live_B, uncentred_B - _mean(uncentred_B, live_B), 0.0)
    parts = {
        **base.parts,
        "step_entropy": entropy_B,
        "norm_entropy": norm_B,
        "scale": scale_B,
        "bonus": bonus_B,
        "uncentred": uncentred_B,
    }
    return AdvantageTerms(advantage_B, parts, base.counts)


def _mean_entropy(rows: AdvantageRows) -> tuple[Tensor, Tensor]:
    """Return the mean entropy over each row's policy tokens (0 if there is none), and whether there is one."""
    mask_B_T = policy_tokens(rows, "advantage='empg'")
    entropy_B_T = rows.entropy_B_T.to(torch.float64).detach()  # type: ignore[union-attr]
    n_B = mask_B_T.sum(-1)
    return torch.where(mask_B_T, entropy_B_T, 0.0).sum(-1) / n_B.clamp(min=1), n_B > 0


def _min_max(value_B: Tensor, live_B: Tensor) -> Tensor:
    if not bool(live_B.any()):
        return torch.zeros_like(value_B)
    low, high = value_B[live_B].amin(), value_B[live_B].amax()
    return torch.where(live_B, (value_B - low) / (high - low + _EPS), 0.0)


def _mean(value_B: Tensor, live_B: Tensor) -> Tensor:
    return torch.where(live_B, value_B, 0.0).sum() / live_B.sum().clamp(min=1)
