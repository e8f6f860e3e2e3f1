"""Advantages among turns taken in equal states of one group: GiGPO and HGPO."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from arlarena_rllib.objectives.advantages.group_relative import NORMALISED_READS, grpo
from arlarena_rllib.objectives.advantages.rewards import step_returns
from arlarena_rllib.objectives.advantages.rows import AdvantageRows
from arlarena_rllib.objectives.advantages.terms import AdvantageTerms, group_counts, register
from arlarena_rllib.objectives.grouping import (
    dense_index,
    group_normalise,
    group_statistics,
    neighbour_rows,
    similarity_labels,
)

if TYPE_CHECKING:
    from arlarena_rllib.objectives.spec import ObjectiveSpec

_STATE_READS = ("anchor_match", "similarity_threshold", "gamma")
_NEEDS = ("groups", "anchors", "turns")


@register("gigpo", reads=(*NORMALISED_READS, *_STATE_READS, "omega"), needs=_NEEDS)
def gigpo(rows: AdvantageRows, spec: ObjectiveSpec) -> AdvantageTerms:
    """Return ``A = A_episode + omega A_step``.

    A_episode is the GRPO advantage. A_step normalises the discounted step return R_k among all rows of the same group
    with the same anchor: ``A_step = (R_k - mean_anchor) / F`` with F = std_anchor + eps, or 1 for mean_norm. The format
    penalty is taken from a row's step return after discounting. A state visited twice by one trajectory counts twice.
    Source: GiGPO 2505.10978 eq. 3, 5-8. Differs from the released code in: an episode group of one gives 0 too.

    Args:
        rows: [B] vectors; reads ids, turn index, rewards, the penalised flag, anchor ids or texts.
        spec: reads what grpo reads, gamma, omega, anchor_match, similarity_threshold, and the costs.
    Returns:
        [B] advantages; parts score, episode_adv, step_adv, step_return, anchor_size.
    Raises:
        ValueError: the rows carry no anchors.
    """
    episode = grpo(rows, spec)
    exact_B, label_B = step_returns(rows, spec), state_labels(rows, spec)
    step_return_B = exact_B.to(rows.step_reward_B.dtype)
    step_adv_B = _normalised(step_return_B, label_B, spec)
    parts = {
        **episode.parts,
        "episode_adv": episode.advantages,
        "step_adv": step_adv_B,
        "step_return": exact_B,
        "anchor_size": group_statistics(step_return_B, label_B).size_U,
    }
    counts = {**episode.counts, **_anchor_counts(step_return_B, label_B)}
    return AdvantageTerms(episode.advantages + spec.omega * step_adv_B, parts, counts)


@register("hgpo", reads=("adv_norm", "adv_eps", "adv_ddof", *_STATE_READS, "hgpo_levels", "hgpo_alpha"), needs=_NEEDS)
def hgpo(rows: AdvantageRows, spec: ObjectiveSpec) -> AdvantageTerms:
    """Return ``A = sum_k w_k A_k``, w_k proportional to ``(k+1)^hgpo_alpha`` over the usable levels k = 0..hgpo_levels.

    A_k normalises the step return among the rows of the group with the same state and the same k states before it. A
    level is usable for a row if another row shares it and A_k is not 0; a row with fewer than k turns before it has no
    level k. There is no episode term. Source: HGPO 2602.22817, from its code as redistributed by others.

    Args:
        rows: [B] vectors; reads ids, turn index, step rewards, the penalised flag, anchor ids or texts.
        spec: reads hgpo_levels, hgpo_alpha, gamma, adv_norm, adv_eps, adv_ddof (0 in that code), anchor_match,
            similarity_threshold, and the costs.
    Returns:
        [B] advantages, 0 for a row without a usable level; parts step_return, levels (usable levels of each row).
    Raises:
        ValueError: the rows carry no anchors, or a trajectory holds a turn twice.
    """
    exact_B, state_B = step_returns(rows, spec), state_labels(rows, spec)
    step_return_B = exact_B.to(rows.step_reward_B.dtype)
    previous_B, _ = neighbour_rows(rows.trajectory_id_B, rows.turn_index_B)
    total_B, weight_B, levels_B = (torch.zeros_like(exact_B) for _ in range(3))
    label_B = state_B
    for level in range(spec.hgpo_levels + 1):
        label_B = label_B if level == 0 else _with_earlier(state_B, label_B, previous_B)
        usable_B = _is_usable(step_return_B, label_B)
        weight = float(level + 1) ** spec.hgpo_alpha
        total_B += torch.where(usable_B, weight * _normalised(step_return_B, label_B, spec), 0.0)
        weight_B += weight * usable_B
        levels_B += usable_B
    advantage_B = total_B / torch.where(weight_B > 0, weight_B, 1.0)
    parts = {"step_return": exact_B, "levels": levels_B}
    counts = _anchor_counts(step_return_B, state_B) | {"rows_without_level": int((levels_B == 0).sum())}
    return AdvantageTerms(advantage_B, parts, counts)


def state_labels(rows: AdvantageRows, spec: ObjectiveSpec) -> Tensor:
    """Return one label per row, equal = same group and same state.

    Args:
        rows: reads group ids and, by anchor_match, anchor_id_B ("exact") or anchor_text_B ("similar").
        spec: reads anchor_match, similarity_threshold.
    Returns:
        [B] int64. "similar" clusters greedily in row order, so the order of the rows counts.
    Raises:
        ValueError: the rows lack the ids or texts.
    """
    if spec.anchor_match == "similar":
        rows.require("anchor_texts", "anchor_match='similar'")
        labels = similarity_labels(
            rows.anchor_text_B,  # type: ignore[arg-type]
            rows.group_id_B.tolist(),
            spec.similarity_threshold,
        )
        return torch.tensor(labels, dtype=torch.int64, device=rows.group_id_B.device)
    rows.require("anchors", f"advantage={spec.advantage!r}")
    return dense_index(torch.stack([rows.group_id_B, rows.anchor_id_B], dim=1))[0]  # type: ignore[list-item]


def _with_earlier(state_B: Tensor, label_B: Tensor, previous_B: Tensor) -> Tensor:
    """Return labels of (own state, label of the turn before); a row without a turn before gets a label of its own."""
    alone_B = -1 - torch.arange(len(state_B), device=state_B.device)
    earlier_B = torch.where(previous_B >= 0, label_B[previous_B.clamp(min=0)], alone_B)
    return dense_index(torch.stack([state_B, earlier_B], dim=1))[0]


def _is_usable(value_B: Tensor, label_B: Tensor) -> Tensor:
    """Whether a row differs from the mean of its group, by more than rounding."""
    stats = group_statistics(value_B, label_B)
    step = 8.0 * torch.finfo(value_B.dtype).eps
    largest = value_B.abs().amax() if len(value_B) else value_B.sum()
    return ~stats.uniform_U & (stats.centred_U.abs() > step * largest)


def _normalised(value_B: Tensor, label_B: Tensor, spec: ObjectiveSpec) -> Tensor:
    is_divided = spec.adv_norm == "mean_std_norm"
    return group_normalise(value_B, label_B, divide_by_std=is_divided, ddof=spec.adv_ddof, eps=spec.adv_eps)


def _anchor_counts(value_B: Tensor, label_B: Tensor) -> dict[str, int]:
    counts = group_counts(value_B, label_B)
    return {"anchor_groups": counts["groups"], "singleton_anchors": counts["singleton_groups"]}
