"""Advantages relative to the group: GRPO, Dr. GRPO (GRPO with adv_norm="mean_norm") and leave-one-out.

Group statistics are taken over trajectories (``adv_unit="traj"``: one sample per trajectory, its score is the mean of
its rows' scores) or over rows (``"row"``: every turn is a sample, so long episodes weigh more).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from arlarena_rllib.objectives.advantages.rewards import Samples, episode_samples
from arlarena_rllib.objectives.advantages.rows import AdvantageRows
from arlarena_rllib.objectives.advantages.terms import AdvantageTerms, group_counts, register
from arlarena_rllib.objectives.grouping import group_normalise, group_statistics

if TYPE_CHECKING:
    from arlarena_rllib.objectives.spec import ObjectiveSpec

BASELINE_READS = ("adv_unit", "adv_singleton", "penalty_scheme")
NORMALISED_READS = (*BASELINE_READS, "adv_norm", "adv_eps", "adv_ddof")


@register("grpo", reads=NORMALISED_READS, needs=("groups",))
def grpo(rows: AdvantageRows, spec: ObjectiveSpec) -> AdvantageTerms:
    """Return ``A = (score - mean_group) / (std_group + eps)``; with ``adv_norm="mean_norm"`` without the division.

    Source: GRPO 2402.03300 sec. 4.1.2; mean_norm: Dr. GRPO 2503.20783. Differs from verl in: a group of one gives 0
    unless adv_singleton is "raw"; a group of equal scores gives exactly 0.

    Args:
        rows: [B] vectors; reads group and trajectory ids, returns, validity.
        spec: reads adv_unit, adv_norm, adv_eps, adv_ddof, adv_singleton, and what scores read.
    Returns:
        [B] advantages, constant inside a trajectory for adv_unit="traj"; parts score.
    """
    samples = episode_samples(rows, spec)
    advantage_U = group_normalise(
        samples.value_U,
        samples.group_U,
        divide_by_std=spec.adv_norm == "mean_std_norm",
        ddof=spec.adv_ddof,
        eps=spec.adv_eps,
        singleton=spec.adv_singleton,
    )
    return _terms(advantage_U, samples)


@register("rloo", reads=BASELINE_READS, needs=("groups",))
def rloo(rows: AdvantageRows, spec: ObjectiveSpec) -> AdvantageTerms:
    """Return ``A_i = score_i - mean_{j != i} score_j = G/(G-1) (score_i - mean_group)``.

    Source: RLOO 2402.14740; the baseline of LOOP 2502.01600. A group of one gives 0, or its score with "raw".

    Args:
        rows: [B] vectors; reads group and trajectory ids, returns, validity.
        spec: reads adv_unit, adv_singleton, and what scores read.
    Returns:
        [B] advantages; parts score.
    """
    samples = episode_samples(rows, spec)
    stats = group_statistics(samples.value_U, samples.group_U)
    left_out_U = stats.centred_U * stats.size_U / (stats.size_U - 1.0).clamp(min=1.0)
    advantage_U = torch.where(stats.uniform_U, 0.0, left_out_U)
    if spec.adv_singleton == "raw":
        advantage_U = torch.where(stats.size_U == 1, samples.value_U.to(torch.float64), advantage_U)
    return _terms(advantage_U, samples)


def _terms(advantage_U: Tensor, samples: Samples) -> AdvantageTerms:
    index_B = samples.unit_of_row_B
    score_B = samples.value_U[index_B]
    return AdvantageTerms(
        advantage_U[index_B], {"score": score_B}, counts=group_counts(samples.value_U, samples.group_U)
    )
