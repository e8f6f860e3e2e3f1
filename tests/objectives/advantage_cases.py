"""Rows for the tests of advantages: written as tables, drawn from a seed, permuted, put together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from arlarena_rllib.objectives import AdvantageRows, anchor_ids, episode_returns

WIDTH = 4
"""Tokens per row of drawn rows."""


def rows_from(
    table: list[tuple[int, int, int, float, str]],
    invalid: tuple[int, ...] = (),
    dtype: torch.dtype = torch.float64,
    **more: Any,
) -> AdvantageRows:
    """Rows (group, trajectory, turn, reward, state); `invalid` lists rows whose action was not admissible."""
    group, trajectory, turn, reward, state = zip(*table, strict=True)
    trajectory_id_B = torch.tensor(trajectory)
    reward_B = torch.tensor(reward, dtype=dtype)
    valid_B = torch.tensor([row not in invalid for row in range(len(table))])
    return AdvantageRows(
        group_id_B=torch.tensor(group),
        trajectory_id_B=trajectory_id_B,
        turn_index_B=torch.tensor(turn),
        step_reward_B=reward_B,
        episode_return_B=episode_returns(reward_B, trajectory_id_B),
        format_valid_B=torch.ones_like(valid_B),
        action_valid_B=valid_B,
        anchor_id_B=anchor_ids(state),
        anchor_text_B=tuple(state),
        **more,
    )


def drawn_rows(seed: int, *, n_groups: int = 3, group_size: int = 3, max_turns: int = 3) -> AdvantageRows:
    """Rows with every optional field; rewards are multiples of 1/8, so that sums and shifts by such numbers are exact.

    The mask has holes and empty rows; masked positions hold nan.
    """
    generator = torch.Generator().manual_seed(seed)

    def whole(high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=generator)

    turns_N = 1 + whole(max_turns, n_groups * group_size)
    trajectory_id_B = torch.repeat_interleave(torch.arange(len(turns_N)), turns_N)
    turn_index_B = torch.cat([torch.arange(int(n)) for n in turns_N])
    n_rows = len(trajectory_id_B)
    step_reward_B = whole(9, n_rows).to(torch.float64) / 8.0 - 0.5
    format_valid_B, action_valid_B, anchor_id_B = whole(4, n_rows) > 0, whole(3, n_rows) > 0, whole(3, n_rows)
    mask_B_T = whole(4, n_rows, WIDTH) > 0
    mask_B_T[whole(8, n_rows) == 0] = False

    def tokens() -> Tensor:
        value_B_T = torch.randn(n_rows, WIDTH, generator=generator, dtype=torch.float64)
        return torch.where(mask_B_T, value_B_T, torch.nan)

    return AdvantageRows(
        group_id_B=trajectory_id_B // group_size,
        trajectory_id_B=trajectory_id_B,
        turn_index_B=turn_index_B,
        step_reward_B=step_reward_B,
        episode_return_B=episode_returns(step_reward_B, trajectory_id_B),
        format_valid_B=format_valid_B,
        action_valid_B=action_valid_B,
        anchor_id_B=anchor_id_B,
        anchor_text_B=tuple(f"room {'abc'[int(label)]}" for label in anchor_id_B),
        mask_B_T=mask_B_T,
        old_logp_B_T=tokens(),
        ref_logp_B_T=tokens(),
        entropy_B_T=tokens().abs(),
        value_B_T=tokens(),
        truncated_B=(whole(2, len(turns_N)) > 0)[trajectory_id_B],
        bootstrap_value_B=whole(5, len(turns_N)).to(torch.float64)[trajectory_id_B],
        prefix_id_B_T=whole(6, n_rows, WIDTH),
    )


def permuted(rows: AdvantageRows, index: Tensor) -> AdvantageRows:
    """The rows in another order, or some of them."""

    def moved(value: Any) -> Any:
        return tuple(value[i] for i in index.tolist()) if isinstance(value, tuple) else value[index]

    return AdvantageRows(**{name: moved(value) for name, value in vars(rows).items() if value is not None})


def joined(one: AdvantageRows, other: AdvantageRows) -> AdvantageRows:
    """The rows of two batches as one; groups and trajectories of the second are numbered after those of the first."""
    other = replace(other, group_id_B=other.group_id_B + 100, trajectory_id_B=other.trajectory_id_B + 100)
    pairs = {name: (value, vars(other)[name]) for name, value in vars(one).items() if value is not None}
    return AdvantageRows(
        **{name: a + b if isinstance(a, tuple) else torch.cat([a, b]) for name, (a, b) in pairs.items()}
    )


def in_single_precision(rows: AdvantageRows) -> AdvantageRows:
    floats = {n: v.float() for n, v in vars(rows).items() if isinstance(v, Tensor) and v.is_floating_point()}
    return replace(rows, **floats)
