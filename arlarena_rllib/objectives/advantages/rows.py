"""AdvantageRows: what an advantage may look at, checked on construction."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from arlarena_rllib.objectives.grouping import dense_index
from arlarena_rllib.objectives.registry import NEEDS

_FLOATS = ("step_reward_B", "episode_return_B", "bootstrap_value_B")
_TOKEN_FLOATS = ("old_logp_B_T", "ref_logp_B_T", "entropy_B_T", "value_B_T")
_TOKENS = ("mask_B_T", *_TOKEN_FLOATS, "prefix_id_B_T")
_OF_TRAJECTORY = ("group_id_B", "episode_return_B", "truncated_B", "bootstrap_value_B")
_FIELDS_OF_NEED = {
    "anchors": ("anchor_id_B",),
    "anchor_texts": ("anchor_text_B",),
    "mask": ("mask_B_T",),
    "entropy": ("mask_B_T", "entropy_B_T"),
    "old_logp": ("mask_B_T", "old_logp_B_T"),
    "ref_logp": ("mask_B_T", "ref_logp_B_T"),
    "values": ("mask_B_T", "value_B_T", "truncated_B"),
    "prefixes": ("mask_B_T", "prefix_id_B_T"),
}


@dataclass(frozen=True)
class AdvantageRows:
    """What an advantage may look at: vectors and token tensors of all rows of the batch.

    Everything after action_valid_B is optional; an advantage that needs it says so (`Registry.needs`). Masked positions
    of the float token tensors may hold anything.

    Attributes:
        group_id_B: [B] int64, one id per started group; the same task twice in a batch has two ids.
        trajectory_id_B: [B] int64, unique in the batch.
        turn_index_B: [B] int64, >= 0.
        step_reward_B: [B] float, the environment's reward of the turn, before any penalty.
        episode_return_B: [B] float, sum of the trajectory's step rewards, equal on all its rows.
        format_valid_B: [B] bool, the reply had the demanded form.
        action_valid_B: [B] bool, the action was admissible.
        anchor_id_B: [B] int64, equal = same state; compared only inside a group.
        anchor_text_B: B strings, text of the state, for comparison by similarity.
        mask_B_T: [B, T] bool, 1 = sampled by the policy; before any row is masked out of the loss.
        old_logp_B_T: [B, T] float, log-prob under the policy of the rollout.
        ref_logp_B_T: [B, T] float, log-prob under the reference policy.
        entropy_B_T: [B, T] float, entropy of the policy of the rollout.
        value_B_T: [B, T] float, critic's value of the state before the token: the output at the position that
            predicts it.
        truncated_B: [B] bool, the trajectory was cut (turn or token budget) rather than ended by the environment.
        bootstrap_value_B: [B] float, critic's value of the state after the trajectory's last turn; read where truncated.
        prefix_id_B_T: [B, T] int64, equal ids inside a group = the same sampled token, shared by several trajectories.

    Raises:
        ValueError: shapes or dtypes are wrong, a value that counts is not finite, or a trajectory spans two groups or
            carries two different values of what belongs to the whole trajectory.
    """

    group_id_B: Tensor
    trajectory_id_B: Tensor
    turn_index_B: Tensor
    step_reward_B: Tensor
    episode_return_B: Tensor
    format_valid_B: Tensor
    action_valid_B: Tensor
    anchor_id_B: Tensor | None = None
    anchor_text_B: tuple[str, ...] | None = None
    mask_B_T: Tensor | None = None
    old_logp_B_T: Tensor | None = None
    ref_logp_B_T: Tensor | None = None
    entropy_B_T: Tensor | None = None
    value_B_T: Tensor | None = None
    truncated_B: Tensor | None = None
    bootstrap_value_B: Tensor | None = None
    prefix_id_B_T: Tensor | None = None

    def __post_init__(self) -> None:
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        vectors = {name: value for name, value in tensors.items() if name not in _TOKENS}
        _check_vectors(vectors)
        if self.anchor_text_B is not None and len(self.anchor_text_B) != len(self.group_id_B):
            raise ValueError(f"anchor_text_B holds {len(self.anchor_text_B)} texts for {len(self.group_id_B)} rows.")
        _check_tokens({name: tensors[name] for name in _TOKENS if name in tensors}, len(self.group_id_B))
        _check_trajectories(self.trajectory_id_B, {name: vectors[name] for name in _OF_TRAJECTORY if name in vectors})

    def require(self, need: str, who: str) -> None:
        """Check that the rows carry what a need stands for.

        Raises:
            ValueError: names who needs what, and the fields to pass.
        """
        absent = [name for name in _FIELDS_OF_NEED.get(need, ()) if getattr(self, name) is None]
        if absent:
            raise ValueError(f"{who} needs {need} ({NEEDS[need]}), but the rows have no {', '.join(absent)}; pass it.")


def _check_vectors(vectors: dict[str, Tensor]) -> None:
    shapes = {name: tuple(value.shape) for name, value in vectors.items()}
    if len(set(shapes.values())) != 1 or vectors["group_id_B"].dim() != 1:
        raise ValueError(f"AdvantageRows needs 1-D tensors of one length, got {shapes}.")
    for name, value_B in vectors.items():
        _check_dtype(name, value_B, is_float=name in _FLOATS)
        if name in _FLOATS:
            _refuse_non_finite(name, value_B)


def _check_tokens(tokens: dict[str, Tensor], n_rows: int) -> None:
    if not tokens:
        return
    if "mask_B_T" not in tokens:
        raise ValueError(f"{', '.join(tokens)} needs mask_B_T (which tokens the policy sampled); pass it.")
    shapes = {name: tuple(value.shape) for name, value in tokens.items()}
    mask_B_T = tokens["mask_B_T"]
    if len(set(shapes.values())) != 1 or mask_B_T.dim() != 2 or mask_B_T.shape[0] != n_rows:
        raise ValueError(f"AdvantageRows needs token tensors of one shape [{n_rows}, T], got {shapes}.")
    for name, value_B_T in tokens.items():
        if name == "mask_B_T":
            continue
        _check_dtype(name, value_B_T, is_float=name in _TOKEN_FLOATS)
        if name in _TOKEN_FLOATS:
            _refuse_non_finite(name, torch.where(mask_B_T.bool(), value_B_T, 0.0).sum(-1))


def _check_dtype(name: str, value: Tensor, *, is_float: bool) -> None:
    if value.is_floating_point() != is_float:
        raise ValueError(f"{name} has dtype {value.dtype}; it must be {'float' if is_float else 'int64 or bool'}.")


def _refuse_non_finite(name: str, value_B: Tensor) -> None:
    bad = (~torch.isfinite(value_B)).nonzero().flatten().tolist()
    if bad:
        raise ValueError(f"{name} is not finite in rows {bad[:8]} ({len(bad)} in all); drop failed episodes first.")


def _check_trajectories(trajectory_id_B: Tensor, vectors: dict[str, Tensor]) -> None:
    index_B, n = dense_index(trajectory_id_B)
    for name, value_B in vectors.items():
        first_N = torch.zeros(n, dtype=value_B.dtype, device=value_B.device).scatter_(0, index_B, value_B)
        if not torch.equal(first_N[index_B], value_B):
            row = int((first_N[index_B] != value_B).nonzero()[0])
            raise ValueError(
                f"trajectory {int(trajectory_id_B[row])} carries different values of {name}; "
                "every row of a trajectory must repeat the same one."
            )
