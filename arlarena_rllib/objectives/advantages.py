"""Advantages: one number per row, computed once per iteration over all groups of the batch.

Group statistics are taken over trajectories (``adv_unit="traj"``: one sample per trajectory, its score is the mean of
its rows' scores) or over rows (``"row"``: every turn is a sample, so long episodes weigh more).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from arlarena_rllib.objectives.grouping import dense_index, group_normalise, group_statistics, sum_by_index
from arlarena_rllib.objectives.registry import Registry
from arlarena_rllib.objectives.scores import discounted_step_returns, penalised_scores

if TYPE_CHECKING:
    from arlarena_rllib.objectives.spec import ObjectiveSpec

UNITS: tuple[str, ...] = ("traj", "row")
NORMS: tuple[str, ...] = ("mean_std_norm", "mean_norm")
SINGLETONS: tuple[str, ...] = ("zero", "raw")
_BASELINE = ("adv_unit", "adv_singleton")
_NORMALISED = (*_BASELINE, "adv_norm", "adv_eps", "adv_ddof")


@dataclass(frozen=True)
class AdvantageRows:
    """What an advantage may look at: row vectors of the whole batch.

    Attributes:
        group_id_B: [B] int64, one id per started group; the same task twice in a batch has two ids.
        trajectory_id_B: [B] int64, unique in the batch.
        turn_index_B: [B] int64, >= 0.
        step_reward_B: [B] float, the environment's reward of the turn, before any penalty.
        episode_return_B: [B] float, sum of the trajectory's step rewards, equal on all its rows.
        format_valid_B: [B] bool, the reply had the demanded form.
        action_valid_B: [B] bool, the action was admissible.
        anchor_id_B: [B] int64 or None, equal = same state; compared only inside a group.

    Raises:
        ValueError: shapes or dtypes are wrong, a reward is not finite, or a trajectory spans two groups or two returns.
    """

    group_id_B: Tensor
    trajectory_id_B: Tensor
    turn_index_B: Tensor
    step_reward_B: Tensor
    episode_return_B: Tensor
    format_valid_B: Tensor
    action_valid_B: Tensor
    anchor_id_B: Tensor | None = None

    def __post_init__(self) -> None:
        vectors = {name: value for name, value in vars(self).items() if value is not None}
        shapes = {name: tuple(value.shape) for name, value in vectors.items()}
        if len(set(shapes.values())) != 1 or self.group_id_B.dim() != 1:
            raise ValueError(f"AdvantageRows needs 1-D tensors of one length, got {shapes}.")
        for name, value in vectors.items():
            floats = name in ("step_reward_B", "episode_return_B")
            if value.is_floating_point() != floats:
                raise ValueError(
                    f"{name} has dtype {value.dtype}; it must be {'float' if floats else 'int64 or bool'}."
                )
        for name in ("step_reward_B", "episode_return_B"):
            _refuse_non_finite(name, vectors[name])
        _refuse_split_trajectories(self)


@dataclass(frozen=True)
class AdvantageResult:
    """Advantages and what they were made of.

    Attributes:
        advantages_B: [B] float, dtype of the step rewards.
        score_B: [B] float64, episode score of each row after the format penalty.
        parts: named [B] float64 terms; gigpo: episode_adv, step_adv, step_return, anchor_size.
        counts: groups, singleton_groups, uniform_groups (size > 1, all scores equal); gigpo also anchor_groups,
            singleton_anchors.
    """

    advantages_B: Tensor
    score_B: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class AdvantageTerms:
    """What a registered advantage returns: the sum in float64, its named parts, and counts to log."""

    advantages_B: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


AdvantageFn = Callable[[AdvantageRows, Tensor, "ObjectiveSpec"], AdvantageTerms]
REGISTRY: Registry[AdvantageFn] = Registry("advantage")
register = REGISTRY.register


@register("grpo", reads=_NORMALISED)
def grpo(rows: AdvantageRows, score_B: Tensor, spec: ObjectiveSpec) -> AdvantageTerms:
    """Return ``A = (score - mean_group) / (std_group + eps)``; with ``adv_norm="mean_norm"`` without the division.

    Source: GRPO 2402.03300 sec. 4.1.2; mean_norm: Dr. GRPO 2503.20783. Differs from verl in: a group of one gives 0
    unless adv_singleton is "raw"; a group of equal scores gives exactly 0.

    Args:
        rows: [B] vectors; reads group and trajectory ids.
        score_B: [B] float, penalised episode score.
        spec: reads adv_unit, adv_norm, adv_eps, adv_ddof, adv_singleton.
    Returns:
        [B] float64 advantages, constant inside a trajectory for adv_unit="traj".
    """
    value_U, group_U, row_to_unit_B = _units(rows, score_B, spec)
    advantage_U = group_normalise(
        value_U,
        group_U,
        divide_by_std=spec.adv_norm == "mean_std_norm",
        ddof=spec.adv_ddof,
        eps=spec.adv_eps,
        singleton=spec.adv_singleton,
    )
    return AdvantageTerms(advantage_U[row_to_unit_B], counts=_group_counts(value_U, group_U, ""))


@register("rloo", reads=_BASELINE)
def rloo(rows: AdvantageRows, score_B: Tensor, spec: ObjectiveSpec) -> AdvantageTerms:
    """Return ``A_i = score_i - mean_{j != i} score_j = G/(G-1) (score_i - mean_group)``.

    Source: RLOO 2402.14740; the baseline of LOOP 2502.01600. A group of one gives 0, or its score with "raw".

    Args:
        rows: [B] vectors; reads group and trajectory ids.
        score_B: [B] float, penalised episode score.
        spec: reads adv_unit, adv_singleton.
    Returns:
        [B] float64 advantages.
    """
    value_U, group_U, row_to_unit_B = _units(rows, score_B, spec)
    stats = group_statistics(value_U, group_U)
    left_out_U = stats.centred_U * stats.size_U / (stats.size_U - 1.0).clamp(min=1.0)
    advantage_U = torch.where(stats.uniform_U, 0.0, left_out_U)
    if spec.adv_singleton == "raw":
        advantage_U = torch.where(stats.size_U == 1, value_U.to(torch.float64), advantage_U)
    return AdvantageTerms(advantage_U[row_to_unit_B], counts=_group_counts(value_U, group_U, ""))


@register("gigpo", reads=(*_NORMALISED, "gamma", "omega"))
def gigpo(rows: AdvantageRows, score_B: Tensor, spec: ObjectiveSpec) -> AdvantageTerms:
    """Return ``A = A_episode + omega A_step``.

    A_episode is the GRPO advantage. A_step normalises the discounted step return R_k among all rows of the same group
    with the same anchor: ``A_step = (R_k - mean_anchor) / F`` with F = std_anchor + eps, or 1 for mean_norm. The format
    penalty is taken from a row's step return after discounting. A state visited twice by one trajectory counts twice.
    Source: GiGPO 2505.10978 eq. 3, 5-8. Differs from the released code in: an episode group of one gives 0 too.

    Args:
        rows: [B] vectors; reads ids, turn index, step rewards, the penalised flag, anchor ids.
        score_B: [B] float, penalised episode score.
        spec: reads what grpo reads, gamma, omega, and the format penalty.
    Returns:
        [B] float64 advantages; parts episode_adv, step_adv, step_return, anchor_size.
    Raises:
        ValueError: the rows carry no anchor ids.
    """
    if rows.anchor_id_B is None:
        raise ValueError("advantage='gigpo' needs anchor_id_B (the state key of every turn); the batch has none.")
    episode = grpo(rows, score_B, spec)
    step_return_B = discounted_step_returns(
        rows.step_reward_B, rows.trajectory_id_B, rows.turn_index_B, gamma=spec.gamma
    ) - spec.format_penalty * (~penalised_flag(rows, spec)).to(torch.float64)
    anchor_B_2 = torch.stack([rows.group_id_B, rows.anchor_id_B], dim=1)
    rounded_B = _in_precision_of(step_return_B, rows.step_reward_B)
    step_adv_B = group_normalise(
        rounded_B,
        anchor_B_2,
        divide_by_std=spec.adv_norm == "mean_std_norm",
        ddof=spec.adv_ddof,
        eps=spec.adv_eps,
    )
    counts = _group_counts(rounded_B, anchor_B_2, "anchor")
    parts = {
        "episode_adv": episode.advantages_B,
        "step_adv": step_adv_B,
        "step_return": step_return_B,
        "anchor_size": group_statistics(step_return_B, anchor_B_2).size_U,
    }
    return AdvantageTerms(episode.advantages_B + spec.omega * step_adv_B, parts, {**episode.counts, **counts})


def compute_advantages(rows: AdvantageRows, spec: ObjectiveSpec) -> AdvantageResult:
    """Return the advantage of every row by the estimator that the spec names, format penalty included.

    Args:
        rows: [B] vectors of the whole batch (every group complete; no split by micro-batch or learner).
        spec: reads advantage and its parameters, format_penalty, penalty_scheme, penalise.
    Returns:
        advantages in the dtype of the step rewards, no gradient; empty for an empty batch.
    Raises:
        UnknownChoiceError: the advantage is not registered.
    """
    score_B = penalised_scores(
        rows.episode_return_B,
        penalised_flag(rows, spec),
        rows.trajectory_id_B,
        penalty=spec.format_penalty,
        scheme=spec.penalty_scheme,
    )
    rounded_B = _in_precision_of(score_B, rows.episode_return_B)
    terms = REGISTRY.get(spec.advantage)(rows, rounded_B, spec)
    advantages_B = terms.advantages_B.to(rows.step_reward_B.dtype).detach()
    return AdvantageResult(advantages_B, score_B, terms.parts, terms.counts)


def penalised_flag(rows: AdvantageRows, spec: ObjectiveSpec) -> Tensor:
    """Return the validity flag that the penalty looks at, [B] bool: action_valid or format_valid, by `penalise`."""
    return (rows.action_valid_B if spec.penalise == "action" else rows.format_valid_B).bool()


def _units(rows: AdvantageRows, score_B: Tensor, spec: ObjectiveSpec) -> tuple[Tensor, Tensor, Tensor]:
    """Return (value, group) of each sample of the group statistics, and the sample of each row."""
    if spec.adv_unit == "row":
        return score_B, rows.group_id_B, torch.arange(score_B.shape[0], device=score_B.device)
    index_B, n = dense_index(rows.trajectory_id_B)
    exact_B = score_B.to(torch.float64)
    size_N = sum_by_index(torch.ones_like(exact_B), index_B, n)
    value_N = _in_precision_of(sum_by_index(exact_B, index_B, n) / size_N, score_B)
    group_N = torch.zeros(n, dtype=torch.int64, device=score_B.device)
    group_N.scatter_(0, index_B, rows.group_id_B.to(torch.int64))
    return value_N, group_N, index_B


def _in_precision_of(value_B: Tensor, source_B: Tensor) -> Tensor:
    """Return values in the dtype they came from, so that "equal up to rounding" means rounding of the input."""
    return value_B.to(source_B.dtype)


def _group_counts(value_U: Tensor, group_U: Tensor, kind: str) -> dict[str, int]:
    stats = group_statistics(value_U, group_U)
    share_U = 1.0 / stats.size_U
    single_U = stats.size_U == 1
    n_single = round(float(share_U[single_U].sum()))
    if kind == "anchor":
        return {"anchor_groups": round(float(share_U.sum())), "singleton_anchors": n_single}
    n_uniform = round(float(share_U[stats.uniform_U & ~single_U].sum()))
    return {"groups": round(float(share_U.sum())), "singleton_groups": n_single, "uniform_groups": n_uniform}


def _refuse_non_finite(name: str, value_B: Tensor) -> None:
    bad = (~torch.isfinite(value_B)).nonzero().flatten().tolist()
    if bad:
        raise ValueError(f"{name} is not finite in rows {bad[:8]} ({len(bad)} in all); drop failed episodes first.")


def _refuse_split_trajectories(rows: AdvantageRows) -> None:
    index_B, n = dense_index(rows.trajectory_id_B)
    for name, value_B in (("group_id_B", rows.group_id_B), ("episode_return_B", rows.episode_return_B)):
        first_N = torch.zeros(n, dtype=value_B.dtype, device=value_B.device).scatter_(0, index_B, value_B)
        if not torch.equal(first_N[index_B], value_B):
            row = int((first_N[index_B] != value_B).nonzero()[0])
            raise ValueError(
                f"trajectory {int(rows.trajectory_id_B[row])} carries different values of {name}; "
                "every row of a trajectory must repeat the same one."
            )
