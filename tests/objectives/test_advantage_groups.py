"""Advantages: hand-computed numbers, groups of one, equal groups, shifts, orders, duplicated tasks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from advantage_cases import WIDTH, in_single_precision, joined, permuted, rows_from
from hypothesis import given, settings
from hypothesis import strategies as st

from arlarena_rllib.objectives import (
    AXES,
    AdvantageRows,
    ObjectiveSpec,
    anchor_ids,
    compute_advantages,
    discounted_step_returns,
    group_normalise,
    group_statistics,
    penalised_scores,
    similarity_labels,
)

SPECS = [
    ObjectiveSpec(
        advantage=name, adv_unit=unit, adv_norm=norm, penalty_scheme="turn" if unit == "row" else "episode_any"
    )
    for name in ("grpo", "rloo", "gigpo", "arpo_soft")
    for unit in ("traj", "row")
    for norm in ("mean_std_norm", "mean_norm")
]
ALL_SPECS = [
    *SPECS,
    *(ObjectiveSpec(advantage=name) for name in AXES["advantage"].names() if name not in {s.advantage for s in SPECS}),
    ObjectiveSpec(advantage="hgpo", adv_norm="mean_norm"),
    ObjectiveSpec(advantage="gae_token", adv_unit="row"),
    ObjectiveSpec(advantage="grpo", kl_in="reward", kl_coef=0.1, overlong_buffer=2, overlong_max_len=4),
]
GROUP_LOCAL = [s for s in ALL_SPECS if s.advantage not in ("reinforce_pp", "reinforce_pp_baseline", "empg")]
"""No statistic reaches over groups, once whitening is off."""
SQRT_HALF = math.sqrt(0.5)


def name_of(spec: ObjectiveSpec) -> str:
    return f"{spec.advantage}-{spec.adv_unit}-{spec.adv_norm}-kl_{spec.kl_in}"


# One group: trajectory 0 wins 1 in two turns, trajectory 1 gets 0 in one turn.
PAIR = [(5, 0, 0, 0.0, "hall"), (5, 0, 1, 1.0, "desk"), (5, 1, 0, 0.0, "hall")]


def test_grpo_traj_unit_standardises_over_trajectories() -> None:
    """Scores 1 and 0: mean .5, std sqrt(.5), so A = +-.5 / sqrt(.5) = +-sqrt(.5)."""
    spec = ObjectiveSpec(adv_eps=0.0)
    out = compute_advantages(rows_from(PAIR), spec)
    assert out.advantages_B.tolist() == pytest.approx([SQRT_HALF, SQRT_HALF, -SQRT_HALF])
    assert out.counts == {"groups": 1, "singleton_groups": 0, "uniform_groups": 0}


def test_grpo_row_unit_weighs_long_episodes_more() -> None:
    """Scores 1, 1, 0 of three rows: mean 2/3."""
    spec = ObjectiveSpec(adv_unit="row", adv_norm="mean_norm")
    assert compute_advantages(rows_from(PAIR), spec).advantages_B.tolist() == pytest.approx([1 / 3, 1 / 3, -2 / 3])


def test_grpo_population_std_and_eps_enter_as_written() -> None:
    """ddof 0: std = .5; eps .5: A = .5 / (.5 + .5)."""
    spec = ObjectiveSpec(adv_ddof=0, adv_eps=0.5)
    assert compute_advantages(rows_from(PAIR), spec).advantages_B.tolist() == pytest.approx([0.5, 0.5, -0.5])


def test_rloo_subtracts_the_mean_of_the_others() -> None:
    table = [(0, 0, 0, 3.0, "s"), (0, 1, 0, 1.0, "s"), (0, 2, 0, 2.0, "s")]
    out = compute_advantages(rows_from(table), ObjectiveSpec(advantage="rloo"))
    assert out.advantages_B.tolist() == pytest.approx([3 - 1.5, 1 - 2.5, 2 - 2.0])


def test_gigpo_adds_step_advantage_among_equal_states_of_the_group() -> None:
    """gamma .5: step returns .5, 1, 0. Anchor hall: rows 0, 2 (mean .25); desk is alone, so 0. Episode A = +-.5."""
    spec = ObjectiveSpec(advantage="gigpo", adv_norm="mean_norm", gamma=0.5, omega=2.0)
    out = compute_advantages(rows_from(PAIR), spec)
    assert out.parts["step_return"].tolist() == [0.5, 1.0, 0.0]
    assert out.parts["anchor_size"].tolist() == [2.0, 1.0, 2.0]
    assert out.parts["step_adv"].tolist() == [0.25, 0.0, -0.25]
    assert out.advantages_B.tolist() == [0.5 + 2 * 0.25, 0.5, -0.5 - 2 * 0.25]
    assert out.counts["anchor_groups"] == 2
    assert out.counts["singleton_anchors"] == 1


def test_gigpo_state_visited_twice_by_one_trajectory_counts_twice() -> None:
    table = [(0, 0, 0, 0.0, "hall"), (0, 0, 1, 0.0, "hall"), (0, 0, 2, 1.0, "x"), (0, 1, 0, 0.0, "hall")]
    spec = ObjectiveSpec(advantage="gigpo", adv_norm="mean_norm", gamma=0.5)
    out = compute_advantages(rows_from(table), spec)
    assert out.parts["anchor_size"].tolist() == [3.0, 3.0, 1.0, 3.0]
    assert out.parts["step_adv"].tolist() == pytest.approx([0.0, 0.25, 0.0, -0.25])


def test_gigpo_penalty_hits_the_step_return_after_discounting() -> None:
    spec = ObjectiveSpec(advantage="gigpo", gamma=0.5, format_penalty=0.1)
    out = compute_advantages(rows_from(PAIR, invalid=(1,)), spec)
    assert out.parts["step_return"].tolist() == pytest.approx([0.5, 0.9, 0.0])
    assert out.parts["score"].tolist() == pytest.approx([0.9, 0.9, 0.0])


def test_gigpo_without_anchor_ids_raises() -> None:
    with pytest.raises(ValueError, match="anchor_id_B"):
        compute_advantages(replace(rows_from(PAIR), anchor_id_B=None), ObjectiveSpec(advantage="gigpo"))


@pytest.mark.parametrize(
    ("scheme", "scores"),
    [("turn", [0.5, 1.0, 0.5, 0.0]), ("episode_sum", [0.0, 0.0, 0.0, 0.0]), ("episode_any", [0.5, 0.5, 0.5, 0.0])],
)
def test_format_penalty_lands_where_the_scheme_says(scheme: str, scores: list[float]) -> None:
    """Trajectory 0 returns 1 with two invalid turns of three, trajectory 1 returns 0; penalty .5."""
    returns, valid = torch.tensor([1.0, 1.0, 1.0, 0.0]), torch.tensor([False, True, False, True])
    trajectory = torch.tensor([0, 0, 0, 1])
    score_B = penalised_scores(returns, valid, trajectory, penalty=0.5, scheme=scheme)
    assert score_B.tolist() == scores


def test_format_penalty_looks_at_the_flag_that_is_penalised() -> None:
    rows = rows_from(PAIR, invalid=(2,))
    for flag, last in (("action", -0.1), ("format", 0.0)):
        assert compute_advantages(rows, ObjectiveSpec(penalise=flag)).parts["score"][2].item() == pytest.approx(last)


def test_step_returns_follow_the_turn_index_not_the_row_order() -> None:
    reward, turn = torch.tensor([4.0, 1.0, 2.0]), torch.tensor([2, 0, 1])
    returns = discounted_step_returns(reward, torch.zeros(3, dtype=torch.int64), turn, gamma=0.5)
    assert returns.tolist() == [4.0, 1 + 0.5 * 4.0, 2 + 0.5 * 4.0]


def test_step_returns_with_a_missing_turn_discount_by_the_gap() -> None:
    returns = discounted_step_returns(
        torch.tensor([1.0, 4.0]), torch.zeros(2, dtype=torch.int64), torch.tensor([0, 2]), gamma=0.5
    )
    assert returns.tolist() == [2.0, 4.0]


@pytest.mark.parametrize("spec", SPECS, ids=name_of)
def test_group_of_one_has_no_signal(spec: ObjectiveSpec) -> None:
    rows = rows_from([(0, 0, 0, 3.0, "s"), (1, 1, 0, 1.0, "s"), (1, 2, 0, 0.0, "t")])
    out = compute_advantages(rows, spec)
    assert out.advantages_B[0].item() == 0.0
    assert out.counts["singleton_groups"] == 1


@pytest.mark.parametrize(
    ("advantage", "norm", "value"),
    [("grpo", "mean_std_norm", 3.0 / (1 + 1e-6)), ("grpo", "mean_norm", 3.0), ("rloo", "mean_norm", 3.0)],
)
def test_group_of_one_keeps_its_score_if_asked(advantage: str, norm: str, value: float) -> None:
    spec = ObjectiveSpec(advantage=advantage, adv_norm=norm, adv_singleton="raw")
    rows = rows_from([(0, 0, 0, 3.0, "s"), (1, 1, 0, 1.0, "s"), (1, 2, 0, 1.0, "t")])
    assert compute_advantages(rows, spec).advantages_B.tolist() == pytest.approx([value, 0.0, 0.0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spec", SPECS, ids=name_of)
def test_group_of_equal_returns_is_exactly_zero(spec: ObjectiveSpec, dtype: torch.dtype) -> None:
    """-0.1 a turn summed in different ways differs by rounding only; a tiny eps must not blow that up."""
    steps = [(0, 0, k, -0.1, "s") for k in range(12)] + [
        (0, 1, 0, -1.2, "t"),
        (0, 2, 0, -0.3, "u"),
        (0, 2, 1, -0.9, "v"),
    ]
    out = compute_advantages(rows_from(steps, dtype=dtype), replace(spec, omega=0.0))
    assert out.advantages_B.dtype == dtype
    assert torch.count_nonzero(out.advantages_B) == 0
    assert out.counts["uniform_groups"] == 1


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), shift=st.integers(-64, 64))
@pytest.mark.parametrize("norm", ["mean_std_norm", "mean_norm"])
@pytest.mark.parametrize("unit", ["traj", "row"])
@pytest.mark.parametrize("advantage", ["grpo", "rloo"])
def test_constant_shift_of_all_returns_changes_nothing(
    rows_of: Callable[..., AdvantageRows], advantage: str, unit: str, norm: str, seed: int, shift: int
) -> None:
    spec = ObjectiveSpec(advantage=advantage, adv_unit=unit, adv_norm=norm, format_penalty=0.125)
    rows = rows_of(seed)
    moved = replace(rows, episode_return_B=rows.episode_return_B + shift / 8.0)
    before, after = compute_advantages(rows, spec).advantages_B, compute_advantages(moved, spec).advantages_B
    assert torch.allclose(before, after, rtol=1e-9, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), salt=st.integers(0, 100))
@pytest.mark.parametrize("spec", ALL_SPECS, ids=name_of)
def test_order_of_rows_and_names_of_ids_do_not_matter(
    rows_of: Callable[..., AdvantageRows], spec: ObjectiveSpec, seed: int, salt: int
) -> None:
    rows = rows_of(seed)
    index = torch.randperm(len(rows.group_id_B), generator=torch.Generator().manual_seed(salt))
    renamed = replace(
        permuted(rows, index),
        group_id_B=(1000 - 7 * rows.group_id_B)[index],
        trajectory_id_B=(5 * rows.trajectory_id_B - 3)[index],
        anchor_id_B=(40 - rows.anchor_id_B)[index],
        prefix_id_B_T=(40 - rows.prefix_id_B_T)[index],
    )
    before, after = compute_advantages(rows, spec), compute_advantages(renamed, spec)
    assert torch.allclose(before.advantages[index], after.advantages, rtol=1e-9, atol=1e-12)
    assert before.counts == after.counts


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
@pytest.mark.parametrize("spec", GROUP_LOCAL, ids=name_of)
def test_task_twice_in_a_batch_stays_two_groups(
    rows_of: Callable[..., AdvantageRows], spec: ObjectiveSpec, seed: int
) -> None:
    """The same states appear in both groups; each group's advantages are those it has alone."""
    spec = replace(spec, adv_whiten=False)
    one, other = rows_of(seed, n_groups=1), rows_of(seed + 1, n_groups=1)
    together = compute_advantages(joined(one, other), spec).advantages
    alone = torch.cat([compute_advantages(rows, spec).advantages for rows in (one, other)])
    assert torch.allclose(together, alone, rtol=1e-9, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
@pytest.mark.parametrize("advantage", ["grpo", "rloo", "gigpo", "arpo_soft"])
def test_unnormalised_advantages_of_a_group_sum_to_zero(
    rows_of: Callable[..., AdvantageRows], advantage: str, seed: int
) -> None:
    rows = rows_of(seed)
    spec = ObjectiveSpec(advantage=advantage, adv_unit="row", adv_norm="mean_norm", penalty_scheme="turn")
    advantages_B = compute_advantages(rows, spec).advantages_B
    for group in rows.group_id_B.unique():
        assert float(advantages_B[rows.group_id_B == group].sum()) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("spec", ALL_SPECS, ids=name_of)
def test_float32_rows_agree_with_float64(rows_of: Callable[..., AdvantageRows], spec: ObjectiveSpec) -> None:
    rows = rows_of(1)
    exact = compute_advantages(rows, spec).advantages
    rounded = compute_advantages(in_single_precision(rows), spec).advantages
    assert rounded.dtype == torch.float32
    assert torch.allclose(rounded.double(), exact, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("spec", ALL_SPECS, ids=name_of)
def test_masked_positions_and_empty_rows_have_no_advantage_per_token(
    rows_of: Callable[..., AdvantageRows], spec: ObjectiveSpec
) -> None:
    """Masked positions of the rows hold nan; what comes out is finite, and 0 wherever the policy chose nothing."""
    for seed in range(5):
        rows = rows_of(seed)
        for mask_B_T in (rows.mask_B_T, torch.zeros_like(rows.mask_B_T)):
            out = compute_advantages(replace(rows, mask_B_T=mask_B_T), spec)
            assert torch.isfinite(out.advantages).all()
            if out.is_per_token:
                assert torch.count_nonzero(out.advantages[~mask_B_T]) == 0
            if spec.advantage in ("gae_turn", "empg"):
                assert torch.count_nonzero(out.advantages[~mask_B_T.any(-1)]) == 0


@pytest.mark.parametrize("factor", [0.25, 8.0])
@pytest.mark.parametrize("spec", ALL_SPECS, ids=name_of)
def test_scaling_all_rewards_and_values_scales_advantages_or_leaves_them(
    rows_of: Callable[..., AdvantageRows], spec: ObjectiveSpec, factor: float
) -> None:
    """Division by a standard deviation (eps 0) cancels the factor; without it advantages are linear."""
    spec = replace(spec, adv_eps=0.0, format_penalty=0.0, kl_coef=0.0, overlong_buffer=0, empg_zeta=0.0)
    rows = rows_of(2)
    names = ("step_reward_B", "episode_return_B", "value_B_T", "bootstrap_value_B")
    scaled = replace(rows, **{name: factor * getattr(rows, name) for name in names})
    before, after = compute_advantages(rows, spec).advantages, compute_advantages(scaled, spec).advantages
    whitens = spec.advantage in ("reinforce_pp", "reinforce_pp_baseline", "gae_token", "gae_turn")
    is_linear = not whitens and (spec.adv_norm == "mean_norm" or spec.advantage == "rloo")
    assert torch.count_nonzero(before) > 0
    assert torch.allclose(after, before * factor if is_linear else before, rtol=1e-6, atol=1e-9)


def test_group_statistics_of_large_close_values_keep_their_digits() -> None:
    stats = group_statistics(torch.tensor([1e8, 1e8 + 1], dtype=torch.float64), torch.tensor([3, 3]))
    assert stats.centred_U.tolist() == [-0.5, 0.5]
    assert stats.std_U.tolist() == pytest.approx([SQRT_HALF, SQRT_HALF])
    assert not stats.uniform_U.any()


@pytest.mark.parametrize("spec", ALL_SPECS, ids=name_of)
def test_empty_batch_gives_empty_advantages(rows_of: Callable[..., AdvantageRows], spec: ObjectiveSpec) -> None:
    out = compute_advantages(permuted(rows_of(0), torch.tensor([], dtype=torch.int64)), spec)
    assert out.advantages.shape == ((0, WIDTH) if out.is_per_token else (0,))


def test_group_normalise_of_nothing_is_empty() -> None:
    assert group_normalise(torch.zeros(0), torch.zeros(0, dtype=torch.int64)).shape == (0,)


def test_advantages_per_token_are_not_handed_out_as_a_row_vector(rows_of: Callable[..., AdvantageRows]) -> None:
    out = compute_advantages(rows_of(0), ObjectiveSpec(advantage="reinforce_pp"))
    with pytest.raises(ValueError, match="per token"):
        _ = out.advantages_B


@pytest.mark.parametrize("name", AXES["advantage"].names())
def test_advantage_without_what_it_needs_raises_and_names_it(rows_of: Callable[..., AdvantageRows], name: str) -> None:
    """Every registered need is a real one: without its field the call is refused, with it alone it runs."""
    fields = {
        "anchors": "anchor_id_B",
        "entropy": "entropy_B_T",
        "values": "value_B_T",
        "prefixes": "prefix_id_B_T",
        "mask": "mask_B_T",
    }
    needs, rows, spec = AXES["advantage"].needs(name) - {"turns", "groups"}, rows_of(0), ObjectiveSpec(advantage=name)
    optional = [n for n in vars(rows) if n.endswith("_B_T")] + ["anchor_id_B", "anchor_text_B"]
    optional += ["truncated_B", "bootstrap_value_B"]
    needed = {fields[need] for need in needs} | ({"truncated_B", "bootstrap_value_B"} if "values" in needs else set())
    bare = replace(rows, **{field: None for field in optional if field not in needed})
    compute_advantages(bare, spec)
    for need in needs - {"mask"}:
        with pytest.raises(ValueError, match=f"needs {need}.*{fields[need]}"):
            compute_advantages(replace(bare, **{fields[need]: None}), spec)
    if needs == {"mask"}:
        with pytest.raises(ValueError, match=r"needs mask.*mask_B_T"):
            compute_advantages(replace(bare, mask_B_T=None), spec)


def test_rows_with_a_non_finite_reward_raise_and_name_the_row() -> None:
    with pytest.raises(ValueError, match=r"step_reward_B is not finite in rows \[1\]"):
        replace(rows_from(PAIR), step_reward_B=torch.tensor([0.0, math.nan, 0.0]))


def test_rows_of_one_trajectory_in_two_groups_raise() -> None:
    with pytest.raises(ValueError, match="trajectory 0 carries different values of group_id_B"):
        replace(rows_from(PAIR), group_id_B=torch.tensor([5, 6, 5]))


def test_rows_of_different_lengths_or_wrong_dtype_raise() -> None:
    with pytest.raises(ValueError, match="one length"):
        replace(rows_from(PAIR), turn_index_B=torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="2 texts for 3 rows"):
        replace(rows_from(PAIR), anchor_text_B=("hall", "desk"))
    with pytest.raises(ValueError, match="group_id_B has dtype"):
        replace(rows_from(PAIR), group_id_B=torch.tensor([0.0, 0.0, 0.0]))


def test_rows_with_bad_token_tensors_raise() -> None:
    mask = torch.tensor([[1, 0], [1, 1], [1, 1]]).bool()
    entropy = torch.tensor([[0.5, math.nan], [0.5, 0.5], [0.5, 0.5]])
    rows = rows_from(PAIR, mask_B_T=mask, entropy_B_T=entropy)
    with pytest.raises(ValueError, match=r"entropy_B_T is not finite in rows \[0\]"):
        replace(rows, mask_B_T=torch.ones_like(mask))
    with pytest.raises(ValueError, match=r"one shape \[3, T\]"):
        replace(rows, entropy_B_T=entropy[:, :1])
    with pytest.raises(ValueError, match="entropy_B_T needs mask_B_T"):
        replace(rows, mask_B_T=None)
    with pytest.raises(ValueError, match="prefix_id_B_T has dtype"):
        replace(rows, prefix_id_B_T=entropy)


def test_rows_of_one_trajectory_truncated_and_not_raise() -> None:
    with pytest.raises(ValueError, match="trajectory 0 carries different values of truncated_B"):
        rows_from(PAIR, truncated_B=torch.tensor([True, False, True]))


def test_negative_turn_index_raises() -> None:
    with pytest.raises(ValueError, match="turn numbers start at 0"):
        discounted_step_returns(torch.ones(1), torch.tensor([0]), torch.tensor([-1]), gamma=0.9)


def test_anchor_ids_number_keys_by_first_appearance() -> None:
    assert anchor_ids(["b", "a", "b", ""]).tolist() == [0, 1, 0, 2]


def test_similarity_labels_stay_inside_a_group() -> None:
    texts = ["fridge 1 is open", "fridge 2 is open", "a desk", "fridge 1 is open"]
    assert similarity_labels(texts, [0, 0, 0, 1], 0.9) == [0, 0, 1, 2]
    assert similarity_labels(texts, [0, 0, 0, 0], 1.0) == [0, 1, 2, 0]


def test_similarity_labels_with_bad_input_raise() -> None:
    with pytest.raises(ValueError, match="threshold"):
        similarity_labels(["a"], [0], 0.0)
    with pytest.raises(ValueError, match="2 texts but 1"):
        similarity_labels(["a", "b"], [0], 0.9)
