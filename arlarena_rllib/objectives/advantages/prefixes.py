"""ARPO: advantages of trajectories that branched off each other and share the tokens before the branch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from arlarena_rllib.objectives.advantages.group_relative import NORMALISED_READS, grpo
from arlarena_rllib.objectives.advantages.rewards import policy_tokens
from arlarena_rllib.objectives.advantages.rows import AdvantageRows
from arlarena_rllib.objectives.advantages.terms import AdvantageTerms, register
from arlarena_rllib.objectives.grouping import dense_index, sum_by_index

if TYPE_CHECKING:
    from arlarena_rllib.objectives.spec import ObjectiveSpec


@register("arpo_soft", reads=NORMALISED_READS, needs=("groups",))
def arpo_soft(rows: AdvantageRows, spec: ObjectiveSpec) -> AdvantageTerms:
    """Return the GRPO advantage of the whole trajectory on all its rows, shared tokens included.

    A shared token stands in every trajectory that contains it, so its gradient is the sum over them; that is the
    sharing. Source: ARPO 2507.19849, its default. Statistics are over all trajectories of the task.

    Args:
        rows: [B] vectors as for grpo.
        spec: reads what grpo reads.
    Returns:
        [B] advantages; parts score.
    """
    return grpo(rows, spec)


@register("arpo_hard", reads=NORMALISED_READS, needs=("groups", "mask", "prefixes"), rules_out=("row_advantages",))
def arpo_hard(rows: AdvantageRows, spec: ObjectiveSpec) -> AdvantageTerms:
    """Return, per token, the mean GRPO advantage of the trajectories that share the token.

    ``A_t = (1/d) sum of A over the d trajectories of the group that hold t``; a token of one trajectory keeps its A.
    Source: ARPO 2507.19849. A duplicated trajectory counts twice.

    Args:
        rows: [B] vectors as for grpo, mask_B_T, prefix_id_B_T.
        spec: reads what grpo reads.
    Returns:
        [B, T] advantages, 0 at masked positions; parts score, trajectory_adv ([B]), sharing ([B, T], the d).
    Raises:
        ValueError: the mask or the prefix ids are missing.
    """
    rows.require("prefixes", "advantage='arpo_hard'")
    base = grpo(rows, spec)
    mask_B_T = policy_tokens(rows, "advantage='arpo_hard'")
    group_B_T = rows.group_id_B.unsqueeze(-1).expand(mask_B_T.shape)
    tokens_M_2 = torch.stack([group_B_T[mask_B_T], rows.prefix_id_B_T[mask_B_T]], dim=1)  # type: ignore[index]
    index_M, n = dense_index(tokens_M_2)
    own_M = base.advantages.unsqueeze(-1).expand(mask_B_T.shape)[mask_B_T]
    count_X = sum_by_index(torch.ones_like(own_M), index_M, n)
    advantage_B_T, sharing_B_T = (torch.zeros(mask_B_T.shape, dtype=torch.float64, device=own_M.device) for _ in "AS")
    advantage_B_T[mask_B_T] = (sum_by_index(own_M, index_M, n) / count_X)[index_M]
    sharing_B_T[mask_B_T] = count_X[index_M]
    parts = {**base.parts, "trajectory_adv": base.advantages, "sharing": sharing_B_T}
    return AdvantageTerms(advantage_B_T, parts, base.counts)
