"""Advantages among equal states: similar texts for GiGPO, the hierarchy of HGPO."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from advantage_cases import rows_from
from hypothesis import given, settings
from hypothesis import strategies as st

from arlarena_rllib.objectives import AdvantageRows, ObjectiveSpec, compute_advantages

# One group. Trajectories 0 and 1 go hall -> desk, trajectory 2 goes shelf -> desk; the reward falls on the last turn.
PATHS = [
    (0, 0, 0, 0.0, "hall"),
    (0, 0, 1, 1.0, "desk"),
    (0, 1, 0, 0.0, "hall"),
    (0, 1, 1, 0.0, "desk"),
    (0, 2, 0, 0.0, "shelf"),
    (0, 2, 1, 0.5, "desk"),
]
HGPO = ObjectiveSpec(advantage="hgpo", adv_norm="mean_norm", gamma=1.0, hgpo_levels=1, hgpo_alpha=1.0)


def test_gigpo_similar_texts_share_an_anchor_that_exact_ids_split() -> None:
    """gamma 1: returns 1 and 0 of two kitchens that differ by a digit; A_episode = +-.5, A_step = +-.5 if they match."""
    rows = rows_from([(0, 0, 0, 1.0, "kitchen with fridge 1"), (0, 1, 0, 0.0, "kitchen with fridge 2")])
    exact = ObjectiveSpec(advantage="gigpo", adv_norm="mean_norm", gamma=1.0)
    similar = replace(exact, anchor_match="similar", similarity_threshold=0.9)
    assert compute_advantages(rows, exact).advantages_B.tolist() == [0.5, -0.5]
    assert compute_advantages(rows, similar).advantages_B.tolist() == [1.0, -1.0]
    strict = replace(similar, similarity_threshold=0.99)
    assert compute_advantages(rows, strict).parts["anchor_size"].tolist() == [1.0, 1.0]


def test_gigpo_similar_texts_of_two_groups_stay_apart() -> None:
    rows = rows_from([(0, 0, 0, 1.0, "hall"), (1, 1, 0, 0.0, "hall")])
    spec = ObjectiveSpec(advantage="gigpo", anchor_match="similar")
    assert compute_advantages(rows, spec).parts["anchor_size"].tolist() == [1.0, 1.0]


def test_gigpo_similar_without_texts_raises() -> None:
    spec = ObjectiveSpec(advantage="gigpo", anchor_match="similar")
    with pytest.raises(ValueError, match=r"anchor_texts.*anchor_text_B"):
        compute_advantages(replace(rows_from(PATHS), anchor_text_B=None), spec)


def test_hgpo_weighs_levels_of_common_history() -> None:
    """Returns hall 1, 0; desk 1, 0, .5.

    Level 0: hall +-.5; desk .5, -.5, 0. Level 1 (same state before): desk of trajectories 0, 1: +-.5; trajectory 2 is
    alone. Row 1: (1 * .5 + 2 * .5) / 3 = .5. Trajectory 2 has no usable level at all.
    """
    out = compute_advantages(rows_from(PATHS), HGPO)
    assert out.advantages_B.tolist() == pytest.approx([0.5, 0.5, -0.5, -0.5, 0.0, 0.0])
    assert out.parts["levels"].tolist() == [1, 2, 1, 2, 0, 0]
    assert out.counts == {"anchor_groups": 3, "singleton_anchors": 1, "rows_without_level": 2}


def test_hgpo_alpha_moves_weight_to_the_longer_history() -> None:
    """Third desk pays 2: level 0 of row 1 is 1 - 1 = 0, so only level 1 counts; row 3: -1 and -.5."""
    paths = [*PATHS[:-1], (0, 2, 1, 2.0, "desk")]
    flat = compute_advantages(rows_from(paths), replace(HGPO, hgpo_alpha=0.0)).advantages_B
    steep = compute_advantages(rows_from(paths), replace(HGPO, hgpo_alpha=2.0)).advantages_B
    assert flat.tolist() == pytest.approx([0.5, 0.5, -0.5, -0.75, 0.0, 1.0])
    assert steep.tolist() == pytest.approx([0.5, 0.5, -0.5, (-1.0 - 4 * 0.5) / 5, 0.0, 1.0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_hgpo_level_whose_advantage_is_only_rounding_does_not_count(dtype: torch.dtype) -> None:
    """Desks pay .4, .1 and .7: row 1 is their mean up to rounding, so only level 1 (.4 against .1) counts: .15."""
    rewards = {1: 0.4, 3: 0.1, 5: 0.7}
    table = [(g, t, k, rewards.get(row, 0.0), state) for row, (g, t, k, _, state) in enumerate(PATHS)]
    out = compute_advantages(rows_from(table, dtype=dtype), HGPO)
    assert out.parts["levels"][1].item() == 1
    assert out.advantages_B[1].item() == pytest.approx(0.15)


def test_hgpo_without_levels_is_the_step_advantage_of_gigpo(rows_of: Callable[..., AdvantageRows]) -> None:
    rows = rows_of(4)
    gigpo = compute_advantages(rows, ObjectiveSpec(advantage="gigpo"))
    hgpo = compute_advantages(rows, ObjectiveSpec(advantage="hgpo", hgpo_levels=0))
    assert torch.allclose(hgpo.advantages_B, gigpo.parts["step_adv"])


def test_hgpo_of_equal_returns_is_exactly_zero() -> None:
    rows = rows_from([(g, t, k, -0.1, "abc"[k]) for t, g in enumerate([0, 0, 0, 1]) for k in range(3)])
    out = compute_advantages(rows, replace(HGPO, adv_norm="mean_std_norm", adv_eps=1e-6))
    assert torch.count_nonzero(out.advantages_B) == 0


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), shift=st.integers(-64, 64))
@pytest.mark.parametrize("norm", ["mean_std_norm", "mean_norm"])
@pytest.mark.parametrize("advantage", ["gigpo", "hgpo"])
def test_constant_shift_of_all_step_returns_changes_nothing(
    rows_of: Callable[..., AdvantageRows], advantage: str, norm: str, seed: int, shift: int
) -> None:
    """gamma 0: the step return is the step reward."""
    spec = ObjectiveSpec(advantage=advantage, adv_norm=norm, gamma=0.0, format_penalty=0.125)
    rows = rows_of(seed)
    moved = replace(rows, step_reward_B=rows.step_reward_B + shift / 8.0)
    before, after = compute_advantages(rows, spec).advantages_B, compute_advantages(moved, spec).advantages_B
    assert torch.allclose(before, after, rtol=1e-9, atol=1e-12)


def test_trajectory_with_a_turn_twice_raises() -> None:
    rows = replace(rows_from(PATHS), turn_index_B=torch.tensor([0, 1, 0, 0, 0, 1]))
    with pytest.raises(ValueError, match="trajectory 1 holds turn 0 twice"):
        compute_advantages(rows, HGPO)
