"""Groups of rows: dense indices, order of turns, statistics inside a group, anchor ids, clusters of similar texts."""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


def dense_index(label_B: Tensor) -> tuple[Tensor, int]:
    """Return the labels renumbered to 0..n-1, and n.

    Args:
        label_B: [B] integer, or [B, k] integer (equal rows = same label).
    Returns:
        index_B [B] int64 and the number of different labels (0 for B = 0).
    """
    if label_B.shape[0] == 0:
        return torch.zeros(0, dtype=torch.int64, device=label_B.device), 0
    if label_B.dim() == 1:
        unique, index_B = torch.unique(label_B, return_inverse=True)
    else:
        unique, index_B = torch.unique(label_B, return_inverse=True, dim=0)
    return index_B, int(unique.shape[0])


def sum_by_index(value_B: Tensor, index_B: Tensor, n: int) -> Tensor:
    """Return ``out[j] = sum of value_B over rows with index_B == j``.

    Args:
        value_B: [B] float.
        index_B: [B] int64 in 0..n-1.
        n: number of groups.
    Returns:
        [n] float, 0 for a group without rows.
    """
    return torch.zeros(n, dtype=value_B.dtype, device=value_B.device).index_add_(0, index_B, value_B)


def turn_order(sequence_B: Tensor, turn_index_B: Tensor) -> Tensor:
    """Return the rows sorted by sequence and, inside one, by turn.

    Args:
        sequence_B: [B] int64.
        turn_index_B: [B] int64; numbers may be missing.
    Returns:
        [B] int64 row numbers.
    Raises:
        ValueError: a sequence holds the same turn twice.
    """
    by_turn_B = torch.argsort(turn_index_B, stable=True)
    order_B = by_turn_B[torch.argsort(sequence_B[by_turn_B], stable=True)]
    pair_B_2 = torch.stack([sequence_B, turn_index_B], dim=1)[order_B]
    twice = (pair_B_2[1:] == pair_B_2[:-1]).all(-1).nonzero().flatten()
    if len(twice):
        sequence, turn = pair_B_2[int(twice[0])].tolist()
        raise ValueError(f"trajectory {sequence} holds turn {turn} twice; give each row its own turn_index.")
    return order_B


def neighbour_rows(trajectory_id_B: Tensor, turn_index_B: Tensor) -> tuple[Tensor, Tensor]:
    """Return the row of the turn before and of the turn after each row in its trajectory, -1 where there is none.

    Args:
        trajectory_id_B: [B] int64.
        turn_index_B: [B] int64; a missing number is skipped.
    Returns:
        previous_B and next_B, [B] int64.
    Raises:
        ValueError: a trajectory holds the same turn twice.
    """
    order_B = turn_order(trajectory_id_B, turn_index_B)
    sorted_B = trajectory_id_B[order_B]
    joined = sorted_B[1:] == sorted_B[:-1]
    earlier, later = order_B[:-1][joined], order_B[1:][joined]
    previous_B, next_B = torch.full_like(order_B, -1), torch.full_like(order_B, -1)
    previous_B[later] = earlier
    next_B[earlier] = later
    return previous_B, next_B


@dataclass(frozen=True)
class GroupStatistics:
    """Statistics of each sample's group, spread back over the samples (U = samples, turns or trajectories).

    Attributes:
        centred_U: [U] float64, value minus the group's mean.
        std_U: [U] float64, standard deviation of the group (0 for a group of one).
        size_U: [U] float64, samples in the group.
        uniform_U: [U] bool, all values of the group are equal (up to rounding of their own precision).
    """

    centred_U: Tensor
    std_U: Tensor
    size_U: Tensor
    uniform_U: Tensor


def group_statistics(value_U: Tensor, group_U: Tensor, *, ddof: int = 1) -> GroupStatistics:
    """Return mean-free values, standard deviation, size and uniformity inside each group.

    Values are shifted by the group's minimum first, so adding a constant to a group changes nothing, and computed in
    float64. Values that differ by no more than 8 rounding steps of their own dtype count as equal.

    Args:
        value_U: [U] float, finite.
        group_U: [U] integer or [U, k] integer, equal = same group.
        ddof: 1 unbiased, 0 population standard deviation.
    Returns:
        statistics, one entry per sample.
    """
    index_U, n = dense_index(group_U)
    exact_U = value_U.to(torch.float64)
    low_G = torch.full((n,), torch.inf, dtype=torch.float64, device=value_U.device)
    low_G = low_G.scatter_reduce(0, index_U, exact_U, "amin")
    high_G = torch.full_like(low_G, -torch.inf).scatter_reduce(0, index_U, exact_U, "amax")
    step = 8.0 * torch.finfo(value_U.dtype).eps
    uniform_G = (high_G - low_G) <= step * torch.maximum(low_G.abs(), high_G.abs())
    size_G = sum_by_index(torch.ones_like(exact_U), index_U, n)
    above_U = exact_U - low_G[index_U]
    centred_U = above_U - (sum_by_index(above_U, index_U, n) / size_G)[index_U]
    variance_G = sum_by_index(centred_U.square(), index_U, n) / (size_G - ddof).clamp(min=1.0)
    return GroupStatistics(centred_U, variance_G.sqrt()[index_U], size_G[index_U], uniform_G[index_U])


def group_normalise(
    value_U: Tensor,
    group_U: Tensor,
    *,
    divide_by_std: bool = True,
    ddof: int = 1,
    eps: float = 1e-6,
    singleton: str = "zero",
) -> Tensor:
    """Return ``(value - mean_group) / (std_group + eps)``, or without the division.

    Source: GRPO 2402.03300 sec. 4.1.2; without std: Dr. GRPO 2503.20783. Differs from verl in: a uniform group gives
    exactly 0 (rounding noise over a tiny eps would not), and a group of one gives 0 unless `singleton` is "raw".

    Args:
        value_U: [U] float, finite, one per sample.
        group_U: [U] or [U, k] integer.
        divide_by_std: False subtracts the mean only.
        ddof: 1 unbiased, 0 population standard deviation.
        eps: added to the standard deviation.
        singleton: "zero", or "raw": value / (1 + eps), or the value itself without std.
    Returns:
        [U] float64.
    """
    stats = group_statistics(value_U, group_U, ddof=ddof)
    scaled_U = stats.centred_U / (stats.std_U + eps) if divide_by_std else stats.centred_U
    scaled_U = torch.where(stats.uniform_U, 0.0, scaled_U)
    if singleton == "raw":
        raw_U = value_U.to(torch.float64) / (1.0 + eps if divide_by_std else 1.0)
        scaled_U = torch.where(stats.size_U == 1, raw_U, scaled_U)
    return scaled_U


def whiten(value_U: Tensor) -> Tensor:
    """Return ``(value - mean) / sqrt(var + 1e-8)`` over all samples, var with ddof 1.

    Source: REINFORCE++ 2501.03262, verl's masked whitening. Differs in: equal values, also a single one, give exactly 0.

    Args:
        value_U: [U] float, finite; "equal" means up to rounding of its dtype.
    Returns:
        [U] float64.
    """
    stats = group_statistics(value_U, torch.zeros_like(value_U, dtype=torch.int64))
    return torch.where(stats.uniform_U, 0.0, stats.centred_U / (stats.std_U.square() + 1e-8).sqrt())


def anchor_ids(keys: Sequence[Hashable]) -> Tensor:
    """Return one integer per key, equal keys = equal integers, numbered in order of first appearance.

    Args:
        keys: one state key per row, usually a string.
    Returns:
        [B] int64.
    """
    seen: dict[Hashable, int] = {}
    return torch.tensor([seen.setdefault(key, len(seen)) for key in keys], dtype=torch.int64)


def similarity_labels(texts: Sequence[str], group_ids: Sequence[int], threshold: float) -> list[int]:
    """Return cluster labels of texts: greedy first fit, ``ratio(text, representative) >= threshold``.

    Source: released GiGPO code; ratio = Ratcliff-Obershelp (`difflib`), not symmetric, so the argument order counts.
    The representative of a cluster is its first member; clusters never cross groups; labels are numbered over all
    groups in order of first appearance. Cost: rows x clusters x length squared, equal pairs are computed once.

    Args:
        texts: one observation per row.
        group_ids: the row's group.
        threshold: in (0, 1].
    Returns:
        one label per row.
    Raises:
        ValueError: lengths differ, or the threshold is outside (0, 1].
    """
    if len(texts) != len(group_ids):
        raise ValueError(f"{len(texts)} texts but {len(group_ids)} group ids; give one group id per text.")
    if not 0.0 < threshold <= 1.0:
        raise ValueError(f"threshold={threshold!r} must be in (0, 1].")
    clusters: dict[int, list[tuple[str, int]]] = {}
    known: dict[tuple[str, str], float] = {}
    labels: list[int] = []
    count = 0
    for text, group in zip(texts, group_ids, strict=True):
        members = clusters.setdefault(group, [])
        label = next((label for rep, label in members if _ratio(text, rep, known) >= threshold), None)
        if label is None:
            label, count = count, count + 1
            members.append((text, label))
        labels.append(label)
    return labels


def text_similarity(text: str, representative: str) -> float:
    """Return the Ratcliff-Obershelp ratio in [0, 1] of a text and a cluster representative (1 = equal)."""
    return difflib.SequenceMatcher(None, text, representative).ratio()


def _ratio(text: str, representative: str, known: dict[tuple[str, str], float]) -> float:
    pair = (text, representative)
    if pair not in known:
        known[pair] = text_similarity(text, representative)
    return known[pair]
