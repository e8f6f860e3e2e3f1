"""Aggregation: how the losses of all tokens become one number, written as one weight per row.

Every mode is ``loss = sum_i w_i sum_t m_it l_it`` with a weight w_i that depends only on token counts of the whole
batch. The weights are computed once, over all micro-batches and learners; summing the parts of any split of the rows
then gives exactly the loss and the gradient of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from arlarena_rllib.objectives.grouping import dense_index, sum_by_index
from arlarena_rllib.objectives.registry import Registry

if TYPE_CHECKING:
    from arlarena_rllib.objectives.spec import ObjectiveSpec


@dataclass(frozen=True)
class RowCounts:
    """Token counts of the whole batch; only rows and trajectories with at least one policy token are counted.

    Attributes:
        tokens_B: [B] float64, n_i, policy tokens of row i (0 for an empty row).
        trajectory_tokens_B: [B] float64, policy tokens of the row's whole trajectory.
        trajectory_rows_B: [B] float64, K, non-empty rows (turns) of the row's trajectory.
        n_tokens: sum of n_i.
        n_rows: rows with n_i > 0.
        n_trajectories: trajectories with at least one policy token.
    """

    tokens_B: Tensor
    trajectory_tokens_B: Tensor
    trajectory_rows_B: Tensor
    n_tokens: int
    n_rows: int
    n_trajectories: int


@dataclass(frozen=True)
class Denominators:
    """Loss weight of each row, and the global counts behind them.

    Attributes:
        weight_B: [B] float64, >= 0; exactly 0 for rows without policy tokens.
        n_tokens: policy tokens of the batch.
        n_rows: rows with at least one policy token.
        n_trajectories: trajectories with at least one policy token.
    """

    weight_B: Tensor
    n_tokens: int
    n_rows: int
    n_trajectories: int


AggregationFn = Callable[[RowCounts, "ObjectiveSpec"], Tensor]
REGISTRY: Registry[AggregationFn] = Registry("aggregation")
register = REGISTRY.register


@register("token-mean")
def token_mean(counts: RowCounts, spec: ObjectiveSpec) -> Tensor:
    """Weights of ``sum_it m l / sum_it m``: every token of the batch weighs the same.

    Source: DAPO 2503.14476 eq. 8; SAMPO 2602.21534 eq. 8. Long rows and long episodes weigh more.

    Args:
        counts: token counts of the whole batch.
        spec: not read.
    Returns:
        [B] float64 weight 1 / n_tokens.
    """
    return torch.full_like(counts.tokens_B, 1.0 / counts.n_tokens)


@register("seq-mean-token-mean")
def seq_mean_token_mean(counts: RowCounts, spec: ObjectiveSpec) -> Tensor:
    """Weights of ``(1/N+) sum_i (sum_t m l)/n_i``, N+ = rows with tokens: every row weighs the same.

    Source: GRPO 2402.03300 eq. 3; GSPO 2507.18071 eq. 5. A row is one turn when episodes are split into turns.

    Args:
        counts: token counts of the whole batch.
        spec: not read.
    Returns:
        [B] float64 weight 1 / (n_rows n_i).
    """
    return 1.0 / (counts.n_rows * counts.tokens_B)


@register("seq-mean-token-sum")
def seq_mean_token_sum(counts: RowCounts, spec: ObjectiveSpec) -> Tensor:
    """Weights of ``(1/N+) sum_i sum_t m l``: token sums, averaged over rows.

    Source: verl ``agg_loss``; rows without tokens are not counted.

    Args:
        counts: token counts of the whole batch.
        spec: not read.
    Returns:
        [B] float64 weight 1 / n_rows.
    """
    return torch.full_like(counts.tokens_B, 1.0 / counts.n_rows)


@register("seq-mean-token-sum-norm", reads=("length_norm", "norm_by_rows"))
def seq_mean_token_sum_norm(counts: RowCounts, spec: ObjectiveSpec) -> Tensor:
    """Weights of ``sum_it m l / (L_max N+)``: a constant length instead of n_i, so no length bias.

    Source: Dr. GRPO 2503.20783 sec. 3; with `norm_by_rows=False` as verl's ``agg_loss`` (no 1/N).

    Args:
        counts: token counts of the whole batch.
        spec: reads `length_norm` (L_max, tokens) and `norm_by_rows`.
    Returns:
        [B] float64 weight 1 / (length_norm n_rows).
    Raises:
        ValueError: `length_norm` is not set.
    """
    if spec.length_norm is None:
        raise ValueError("aggregation='seq-mean-token-sum-norm' needs length_norm [tokens]; set it.")
    rows = counts.n_rows if spec.norm_by_rows else 1
    return torch.full_like(counts.tokens_B, 1.0 / (spec.length_norm * rows))


@register("traj-mean-token-mean", needs=("trajectories",))
def traj_mean_token_mean(counts: RowCounts, spec: ObjectiveSpec) -> Tensor:
    """Weights of ``(1/N_traj) sum_tau (sum_{rows in tau, t} m l)/(sum_{rows in tau} n_i)``: episodes weigh the same.

    Source: LOOP 2502.01600 eq. 10.

    Args:
        counts: token counts of the whole batch.
        spec: not read.
    Returns:
        [B] float64 weight 1 / (n_trajectories tokens of the trajectory).
    """
    return 1.0 / (counts.n_trajectories * counts.trajectory_tokens_B)


@register("traj-mean-turn-mean-token-mean", needs=("trajectories",))
def traj_mean_turn_mean_token_mean(counts: RowCounts, spec: ObjectiveSpec) -> Tensor:
    """Weights of ``(1/N_traj) sum_tau (1/K_tau) sum_k (sum_t m l)/n_k``: episodes, then turns weigh the same.

    Source: this project's; a turn is a row, K counts the rows with tokens.

    Args:
        counts: token counts of the whole batch.
        spec: not read.
    Returns:
        [B] float64 weight 1 / (n_trajectories K n_i).
    """
    return 1.0 / (counts.n_trajectories * counts.trajectory_rows_B * counts.tokens_B)


def global_denominators_from_counts(tokens_B: Tensor, trajectory_id_B: Tensor, spec: ObjectiveSpec) -> Denominators:
    """Return the loss weights of all rows of a batch from their numbers of policy tokens.

    Call it once per iteration with every row of the batch, and let `weight_B` travel with the rows.

    Args:
        tokens_B: [B] integer or float, policy tokens of each row, >= 0.
        trajectory_id_B: [B] int64, equal ids = same trajectory.
        spec: names the aggregation and its parameters.
    Returns:
        weights, 0 for empty rows; all 0 when the batch has no policy token.
    Raises:
        ValueError: the two vectors differ in shape or are not 1-D.
    """
    if tokens_B.dim() != 1 or tokens_B.shape != trajectory_id_B.shape:
        raise ValueError(
            f"tokens_B {tuple(tokens_B.shape)} and trajectory_id_B {tuple(trajectory_id_B.shape)} must be equal 1-D shapes."
        )
    counts = _row_counts(tokens_B.to(torch.float64), trajectory_id_B)
    live_B = counts.tokens_B > 0
    if counts.n_tokens == 0:
        weight_B = torch.zeros_like(counts.tokens_B)
    else:
        weight_B = torch.where(live_B, REGISTRY.get(spec.aggregation)(counts, spec), 0.0)
    return Denominators(weight_B, counts.n_tokens, counts.n_rows, counts.n_trajectories)


def global_denominators(mask_B_T: Tensor, trajectory_id_B: Tensor, spec: ObjectiveSpec) -> Denominators:
    """Return the loss weights of all rows of a batch from its loss mask; see `global_denominators_from_counts`.

    Args:
        mask_B_T: [B, T] bool or 0/1, 1 = sampled by the policy.
        trajectory_id_B: [B] int64.
        spec: names the aggregation and its parameters.
    Returns:
        weights that do not depend on the width T.
    Raises:
        ValueError: the mask is not 2-D, or has another number of rows.
    """
    if mask_B_T.dim() != 2:
        raise ValueError(f"mask_B_T has shape {tuple(mask_B_T.shape)}; it must be [rows, tokens].")
    return global_denominators_from_counts(mask_B_T.bool().sum(-1), trajectory_id_B, spec)


def _row_counts(tokens_B: Tensor, trajectory_id_B: Tensor) -> RowCounts:
    live_B = (tokens_B > 0).to(torch.float64)
    index_B, n = dense_index(trajectory_id_B)
    tokens_N = sum_by_index(tokens_B, index_B, n)
    rows_N = sum_by_index(live_B, index_B, n)
    return RowCounts(
        tokens_B=tokens_B,
        trajectory_tokens_B=tokens_N[index_B],
        trajectory_rows_B=rows_N[index_B],
        n_tokens=int(tokens_B.sum()),
        n_rows=int(live_B.sum()),
        n_trajectories=int((tokens_N > 0).sum()),
    )
