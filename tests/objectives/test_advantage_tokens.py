"""Advantages from token tensors: REINFORCE++, KL and length in the reward, EMPG, ARPO; numbers by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from advantage_cases import rows_from
from hypothesis import given, settings
from hypothesis import strategies as st

from arlarena_rllib.objectives import AdvantageRows, ObjectiveSpec, compute_advantages, token_rewards

# Two trajectories of one turn each: return 1 with tokens 0 and 2 of three (a hole between them), return 0 with token 0.
PAIR = [(0, 0, 0, 1.0, "s"), (0, 1, 0, 0.0, "s")]
MASK = torch.tensor([[1, 0, 1], [1, 0, 0]]).bool()
PLAIN = ObjectiveSpec(advantage="reinforce_pp", format_penalty=0.0)


def test_reinforce_pp_whitens_returns_over_tokens() -> None:
    """Returns 1, 1, 0 of three tokens: mean 2/3, variance (1/9 + 1/9 + 4/9) / 2 = 1/3."""
    out = compute_advantages(rows_from(PAIR, mask_B_T=MASK), PLAIN)
    std = math.sqrt(1 / 3 + 1e-8)
    assert out.is_per_token
    assert out.advantages.flatten().tolist() == pytest.approx([1 / 3 / std, 0, 1 / 3 / std, -2 / 3 / std, 0, 0])


def test_reinforce_pp_discounts_per_policy_token_and_carries_across_the_hole() -> None:
    out = compute_advantages(rows_from(PAIR, mask_B_T=MASK), replace(PLAIN, token_gamma=0.5))
    assert out.parts["token_return"].tolist() == [[0.5, 0.0, 1.0], [0.0, 0.0, 0.0]]


def test_reinforce_pp_of_one_token_or_of_equal_returns_is_exactly_zero() -> None:
    one = torch.zeros_like(MASK)
    one[0, 2] = True
    assert torch.count_nonzero(compute_advantages(rows_from(PAIR, mask_B_T=one), PLAIN).advantages) == 0
    equal = rows_from([(0, 0, 0, -0.1 * 3, "s"), (0, 1, 0, -0.3, "s")], mask_B_T=MASK)
    for name in ("reinforce_pp", "reinforce_pp_baseline"):
        assert torch.count_nonzero(compute_advantages(equal, replace(PLAIN, advantage=name)).advantages) == 0


def test_reinforce_pp_baseline_takes_the_group_mean_off_before_whitening() -> None:
    """Group 0: +-.5 with 2 and 1 tokens; group 1 is alone: 0 (or its score 4). Token values .5 .5 -.5 0."""
    rows = rows_from([*PAIR, (1, 2, 0, 4.0, "s")], mask_B_T=torch.cat([MASK, MASK[1:]]))
    spec = replace(PLAIN, advantage="reinforce_pp_baseline")
    out = compute_advantages(rows, spec)
    mean, values = 0.125, [0.5, 0.5, -0.5, 0.0]
    std = math.sqrt(sum((value - mean) ** 2 for value in values) / 3 + 1e-8)
    assert out.advantages[rows.mask_B_T].tolist() == pytest.approx([(value - mean) / std for value in values])
    assert out.parts["baseline_adv"].tolist() == [0.5, -0.5, 0.0]
    raw = compute_advantages(rows, replace(spec, adv_singleton="raw"))
    assert raw.parts["baseline_adv"].tolist() == [0.5, -0.5, 4.0]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), shift=st.integers(-64, 64))
@pytest.mark.parametrize("name", ["reinforce_pp", "reinforce_pp_baseline"])
def test_constant_shift_of_all_returns_is_whitened_away(
    rows_of: Callable[..., AdvantageRows], name: str, seed: int, shift: int
) -> None:
    spec, rows = ObjectiveSpec(advantage=name, format_penalty=0.125, penalty_scheme="turn"), rows_of(seed)
    moved = replace(rows, episode_return_B=rows.episode_return_B + shift / 8.0)
    before, after = compute_advantages(rows, spec).advantages, compute_advantages(moved, spec).advantages
    assert torch.allclose(before, after, rtol=1e-9, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
@pytest.mark.parametrize("spec", [PLAIN, ObjectiveSpec(advantage="gae_token"), ObjectiveSpec(advantage="gae_turn")])
def test_whitened_advantages_have_mean_zero_and_variance_one(
    rows_of: Callable[..., AdvantageRows], spec: ObjectiveSpec, seed: int
) -> None:
    rows = rows_of(seed)
    out = compute_advantages(rows, spec)
    values = out.advantages[rows.mask_B_T] if out.is_per_token else out.advantages[rows.mask_B_T.any(-1)]
    assert float(values.mean()) == pytest.approx(0.0, abs=1e-9)
    assert float(values.var()) == pytest.approx(1.0, abs=1e-4)


def with_kl(rows: AdvantageRows) -> AdvantageRows:
    """Log-probs with old - ref = .25, nan, .5 and -.5."""
    old = torch.tensor([[-1.0, math.nan, -2.0], [-1.0, math.nan, math.nan]], dtype=torch.float64)
    ref = torch.tensor([[-1.25, math.nan, -2.5], [-0.5, math.nan, math.nan]], dtype=torch.float64)
    return replace(rows, old_logp_B_T=old, ref_logp_B_T=ref)


IN_REWARD = {"kl_in": "reward", "kl_estimator": "k1", "kl_coef": 0.5, "format_penalty": 0.0}


def test_kl_in_reward_is_taken_from_each_token_and_summed_for_scores() -> None:
    """k1 costs .125, .25 and -.25 per token: scores 1 - .375 and 0 + .25."""
    rows = with_kl(rows_from(PAIR, mask_B_T=MASK))
    spec = ObjectiveSpec(**IN_REWARD, adv_norm="mean_norm")
    assert token_rewards(rows, spec).tolist() == [[-0.125, 0.0, 0.75], [0.25, 0.0, 0.0]]
    out = compute_advantages(rows, spec)
    assert out.parts["score"].tolist() == [0.625, 0.25]
    assert out.advantages_B.tolist() == pytest.approx([0.1875, -0.1875])


def test_kl_in_reward_of_a_trajectory_is_the_sum_over_its_rows_and_of_a_row_its_own() -> None:
    rows = with_kl(rows_from([(0, 0, 0, 1.0, "s"), (0, 0, 1, 0.0, "t")], mask_B_T=MASK))
    for unit, scores in (("traj", [0.875, 0.875]), ("row", [0.625, 1.25])):
        assert compute_advantages(rows, ObjectiveSpec(**IN_REWARD, adv_unit=unit)).parts["score"].tolist() == scores


def test_kl_in_reward_lowers_step_returns_by_the_own_turn_only() -> None:
    rows = with_kl(rows_from([(0, 0, 0, 1.0, "s"), (0, 0, 1, 2.0, "t")], mask_B_T=MASK))
    spec = ObjectiveSpec(**IN_REWARD, advantage="gigpo", gamma=0.5)
    assert compute_advantages(rows, spec).parts["step_return"].tolist() == [2.0 - 0.375, 2.0 + 0.25]


def test_kl_in_loss_leaves_the_reward_alone() -> None:
    rows = with_kl(rows_from(PAIR, mask_B_T=MASK))
    spec = ObjectiveSpec(**{**IN_REWARD, "kl_in": "loss"})
    assert compute_advantages(rows, spec).parts["score"].tolist() == [1.0, 0.0]


def test_kl_in_reward_without_log_probs_raises() -> None:
    rows = replace(with_kl(rows_from(PAIR, mask_B_T=MASK)), ref_logp_B_T=None)
    with pytest.raises(ValueError, match=r"kl_in='reward' needs ref_logp.*ref_logp_B_T"):
        compute_advantages(rows, ObjectiveSpec(kl_in="reward"))


def test_overlong_punishment_lowers_the_score_of_the_long_reply() -> None:
    """Two policy tokens where at most 2 are allowed with a buffer of 2: full punishment .5; one token: half of it."""
    rows = rows_from(PAIR, mask_B_T=MASK)
    spec = ObjectiveSpec(format_penalty=0.0, overlong_buffer=2, overlong_max_len=2, overlong_factor=0.5)
    assert compute_advantages(rows, spec).parts["score"].tolist() == [0.5, -0.25]
    assert token_rewards(rows, spec).tolist() == [[0.0, 0.0, 0.5], [-0.25, 0.0, 0.0]]


def empg_rows(entropies: list[float]) -> AdvantageRows:
    """Trajectory 0 wins in two turns, trajectory 1 loses in one; one policy token per row."""
    table = [(0, 0, 0, 0.0, "s"), (0, 0, 1, 1.0, "t"), (0, 1, 0, 0.0, "s")]
    entropy = torch.tensor([[value, math.nan] for value in entropies], dtype=torch.float64)
    return rows_from(table, mask_B_T=torch.tensor([[1, 0]] * 3).bool(), entropy_B_T=entropy)


def test_empg_scales_by_entropy_adds_the_next_turns_bonus_and_centres() -> None:
    """Entropies 1, 3, 2: H~ = 0, 1, .5; grpo with mean_norm gives .5, .5, -.5."""
    spec = ObjectiveSpec(advantage="empg", adv_norm="mean_norm", empg_k=1.0, empg_k_future=2.0, empg_zeta=0.1)
    out = compute_advantages(empg_rows([1.0, 3.0, 2.0]), spec)
    weights = [1.0, math.exp(-1.0), math.exp(-0.5)]
    mean = sum(weights) / 3
    uncentred = [0.5 * weights[0] / mean + 0.1 * math.exp(-2.0), 0.5 * weights[1] / mean, -0.5 * weights[2] / mean]
    expected = [value - sum(uncentred) / 3 for value in uncentred]
    assert out.advantages_B.tolist() == pytest.approx(expected, rel=1e-6)


def test_empg_leaves_a_row_without_tokens_out_of_every_statistic() -> None:
    """Its entropy would be 0 and the minimum; the two others then have H~ = 0 and 1, and no bonus from it."""
    spec = ObjectiveSpec(advantage="empg", adv_norm="mean_norm", empg_zeta=1.0)
    rows = empg_rows([1.0, 3.0, 2.0])
    mask = rows.mask_B_T.clone()
    mask[1] = False
    out = compute_advantages(replace(rows, mask_B_T=mask), spec)
    assert out.parts["norm_entropy"].tolist() == pytest.approx([0.0, 0.0, 1.0])
    assert out.advantages_B[1].item() == 0.0
    mean = (1.0 + math.exp(-1.0)) / 2
    uncentred = [0.5 / mean, -0.5 * math.exp(-1.0) / mean]
    centre = sum(uncentred) / 2
    assert out.advantages_B[[0, 2]].tolist() == pytest.approx([value - centre for value in uncentred], rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_empg_advantages_of_a_batch_sum_to_zero_and_ignore_a_shift_of_entropy(
    rows_of: Callable[..., AdvantageRows], seed: int
) -> None:
    spec, rows = ObjectiveSpec(advantage="empg"), rows_of(seed)
    before = compute_advantages(rows, spec).advantages_B
    after = compute_advantages(replace(rows, entropy_B_T=rows.entropy_B_T + 0.25), spec).advantages_B
    assert float(before.sum()) == pytest.approx(0.0, abs=1e-9)
    assert torch.allclose(before, after, rtol=1e-6, atol=1e-6)


def test_arpo_hard_averages_shared_tokens_over_the_trajectories_that_hold_them() -> None:
    """Scores 1, 0, .5: A = .5, -.5, 0. Token 7 is shared by the first two, also id 7 of another group is not."""
    table = [(0, 0, 0, 1.0, "s"), (0, 1, 0, 0.0, "s"), (0, 2, 0, 0.5, "s"), (1, 3, 0, 1.0, "s"), (1, 4, 0, 0.0, "s")]
    prefix = torch.tensor([[7, 1], [7, 2], [3, 4], [7, 1], [8, 2]])
    mask = torch.tensor([[1, 1], [1, 1], [1, 0], [1, 1], [1, 1]]).bool()
    rows = rows_from(table, mask_B_T=mask, prefix_id_B_T=prefix)
    out = compute_advantages(rows, ObjectiveSpec(advantage="arpo_hard", adv_norm="mean_norm"))
    assert out.advantages.tolist() == [[0.0, 0.5], [0.0, -0.5], [0.0, 0.0], [0.5, 0.5], [-0.5, -0.5]]
    assert out.parts["sharing"].tolist() == [[2, 1], [2, 1], [1, 0], [1, 1], [1, 1]]


def test_arpo_hard_without_shared_tokens_is_arpo_soft_on_every_token(rows_of: Callable[..., AdvantageRows]) -> None:
    rows = rows_of(3)
    ids = torch.arange(rows.mask_B_T.numel()).view(rows.mask_B_T.shape)
    hard = compute_advantages(replace(rows, prefix_id_B_T=ids), ObjectiveSpec(advantage="arpo_hard"))
    soft = compute_advantages(rows, ObjectiveSpec(advantage="arpo_soft"))
    assert torch.equal(soft.advantages_B, compute_advantages(rows, ObjectiveSpec(advantage="grpo")).advantages_B)
    assert torch.allclose(hard.advantages, soft.advantages_B.unsqueeze(-1) * rows.mask_B_T)
