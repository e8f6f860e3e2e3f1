"""Advantages from a critic against hand numbers, a naive loop and the identities at lambda 0 and 1; the critic's loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from advantage_cases import drawn_rows, rows_from
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from arlarena_rllib.objectives import (
    AdvantageRows,
    ObjectiveSpec,
    compute_advantages,
    generalised_advantages,
    value_loss,
)

PLAIN = {"adv_whiten": False, "format_penalty": 0.0}
TURN = ObjectiveSpec(advantage="gae_turn", gamma=0.9, gae_lambda=0.5, **PLAIN)
TOKEN = ObjectiveSpec(advantage="gae_token", token_gamma=0.9, gae_lambda=0.5, **PLAIN)
PENALISED = {"format_penalty": 0.5}


def episode(*, truncated: bool) -> AdvantageRows:
    """Two turns with rewards 0 and 1; values .5 (then .7) and .8; the value after the end would be 2."""
    return rows_from(
        [(0, 0, 0, 0.0, "s"), (0, 0, 1, 1.0, "t")],
        mask_B_T=torch.tensor([[0, 1, 1], [0, 1, 0]]).bool(),
        value_B_T=torch.tensor([[9.0, 0.5, 0.7], [9.0, 0.8, math.nan]], dtype=torch.float64),
        truncated_B=torch.tensor([truncated, truncated]),
        bootstrap_value_B=torch.tensor([2.0, 2.0], dtype=torch.float64),
    )


def test_gae_turn_of_a_terminated_episode_by_hand() -> None:
    """delta = 0 + .9 * .8 - .5 = .22 and 1 - .8 = .2; A_0 = .22 + .45 * .2 = .31."""
    out = compute_advantages(episode(truncated=False), TURN)
    assert not out.is_per_token
    assert out.advantages_B.tolist() == pytest.approx([0.31, 0.2])
    assert out.parts["returns"].flatten().tolist() == pytest.approx([0, 0.81, 0, 0, 1.0, 0])
    assert out.parts["value_mask"].tolist() == [[False, True, False], [False, True, False]]


def test_gae_turn_of_a_truncated_episode_bootstraps() -> None:
    """Last delta = 1 + .9 * 2 - .8 = 2; A_0 = .22 + .45 * 2."""
    assert compute_advantages(episode(truncated=True), TURN).advantages_B.tolist() == pytest.approx([1.12, 2.0])


def test_gae_token_chains_the_turns_of_a_trajectory_by_hand() -> None:
    """Deltas .9 * .7 - .5 = .13, .9 * .8 - .7 = .02 and .2; A = .13 + .45 * .11, .02 + .45 * .2, .2."""
    out = compute_advantages(episode(truncated=False), TOKEN)
    assert out.is_per_token
    assert out.advantages.flatten().tolist() == pytest.approx([0, 0.1795, 0.11, 0, 0.2, 0])
    assert out.parts["returns"].flatten().tolist() == pytest.approx([0, 0.6795, 0.81, 0, 1.0, 0])


def test_gae_token_of_single_rows_ends_at_the_row_with_the_episode_return() -> None:
    """Row 0: deltas .13 and 1 - .7 = .3, A_0 = .13 + .45 * .3; row 1: .2. Truncation does not matter."""
    out = compute_advantages(episode(truncated=True), replace(TOKEN, adv_unit="row"))
    assert out.advantages.flatten().tolist() == pytest.approx([0, 0.265, 0.3, 0, 0.2, 0])


def test_gae_charges_penalties_to_the_turn() -> None:
    rows = replace(episode(truncated=False), action_valid_B=torch.tensor([True, False]))
    spec = replace(TURN, **PENALISED, gae_lambda=0.0)
    assert compute_advantages(rows, spec).advantages_B.tolist() == pytest.approx([0.22, 0.2 - 0.5])


def test_gae_takes_the_kl_in_the_reward_from_tokens_and_turns() -> None:
    """k1 costs of .1 at each of three tokens."""
    rows = episode(truncated=False)
    logp = torch.full(rows.mask_B_T.shape, -1.0, dtype=torch.float64)
    rows = replace(rows, old_logp_B_T=logp, ref_logp_B_T=logp - 0.2)
    kl = {"kl_in": "reward", "kl_estimator": "k1", "kl_coef": 0.5, "gae_lambda": 0.0}
    turn = compute_advantages(rows, replace(TURN, **kl)).advantages_B
    token = compute_advantages(rows, replace(TOKEN, **kl)).advantages
    assert turn.tolist() == pytest.approx([0.22 - 0.2, 0.2 - 0.1])
    assert token[rows.mask_B_T].tolist() == pytest.approx([0.13 - 0.1, 0.02 - 0.1, 0.2 - 0.1])


def test_gae_reward_of_a_turn_without_tokens_falls_on_the_turn_before() -> None:
    rows = episode(truncated=False)
    silent = replace(rows, mask_B_T=torch.tensor([[0, 1, 1], [0, 0, 0]]).bool())
    assert compute_advantages(silent, TURN).advantages_B.tolist() == pytest.approx([1.0 - 0.5, 0.0])
    assert compute_advantages(silent, TOKEN).advantages[0].tolist() == pytest.approx([0, 0.13 + 0.45 * 0.3, 0.3])
    lost = replace(rows, mask_B_T=torch.tensor([[0, 0, 0], [0, 1, 0]]).bool(), step_reward_B=torch.tensor([5.0, 1.0]))
    assert compute_advantages(lost, TURN).advantages_B.tolist() == pytest.approx([0.0, 0.2])


def test_gae_of_a_truncated_episode_without_its_value_raises() -> None:
    rows = replace(episode(truncated=True), bootstrap_value_B=None)
    for spec in (TURN, TOKEN):
        with pytest.raises(ValueError, match="bootstrap_value_B is missing"):
            compute_advantages(rows, spec)
    ended = replace(rows, truncated_B=torch.tensor([False, False]))
    assert compute_advantages(ended, TURN).advantages_B.tolist() == pytest.approx([0.31, 0.2])


def naive(rows: AdvantageRows, spec: ObjectiveSpec) -> dict[tuple[int, int], tuple[float, float]]:
    """(row, token) -> (advantage, value), one trajectory and one decision at a time, by the definition of GAE."""
    is_turn = spec.advantage == "gae_turn"
    gamma = spec.gamma if is_turn else spec.token_gamma
    found = {}
    for trajectory in rows.trajectory_id_B.unique().tolist():
        members = [i for i, t in enumerate(rows.trajectory_id_B.tolist()) if t == trajectory]
        decisions: list[tuple[int, int]] = []
        rewards: list[float] = []
        for row in sorted(members, key=lambda i: int(rows.turn_index_B[i])):
            tokens = rows.mask_B_T[row].nonzero().flatten().tolist()
            decisions += [(row, t) for t in (tokens[:1] if is_turn else tokens)]
            rewards += [0.0] * (len(decisions) - len(rewards))
            if decisions:
                penalty = 0.0 if rows.action_valid_B[row] else spec.format_penalty
                rewards[-1] += float(rows.step_reward_B[row]) - penalty
        values = [float(rows.value_B_T[at]) for at in decisions]
        values.append(float(rows.bootstrap_value_B[members[0]]) if rows.truncated_B[members[0]] else 0.0)
        for j, at in enumerate(decisions):
            later = range(j, len(decisions))
            deltas = [rewards[i] + gamma * values[i + 1] - values[i] for i in later]
            found[at] = (sum((gamma * spec.gae_lambda) ** n * delta for n, delta in enumerate(deltas)), values[j])
    return found


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), lam=st.sampled_from([0.0, 0.3, 1.0]), gamma=st.sampled_from([0.0, 0.7, 1.0]))
@pytest.mark.parametrize("name", ["gae_turn", "gae_token"])
def test_gae_equals_a_naive_loop(
    rows_of: Callable[..., AdvantageRows], name: str, seed: int, lam: float, gamma: float
) -> None:
    rows = rows_of(seed)
    spec = ObjectiveSpec(advantage=name, gamma=gamma, token_gamma=gamma, gae_lambda=lam, adv_whiten=False)
    out = compute_advantages(rows, spec)
    expected = naive(rows, spec)
    assert out.parts["value_mask"].nonzero().tolist() == [list(at) for at in sorted(expected)]
    for (row, token), (advantage, value) in expected.items():
        got = out.advantages[row, token] if out.is_per_token else out.advantages[row]
        assert float(got) == pytest.approx(advantage, rel=1e-9, abs=1e-9)
        assert float(out.parts["returns"][row, token]) == pytest.approx(advantage + value, rel=1e-9, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), gamma=st.sampled_from([0.0, 0.6, 1.0]))
def test_gae_at_lambda_one_is_monte_carlo_and_at_zero_one_step(seed: int, gamma: float) -> None:
    """lambda 1: targets are discounted returns, whatever the values; lambda 0: targets are r + gamma V_next."""
    generator = torch.Generator().manual_seed(seed)
    reward, value = torch.randn(2, 3, 5, generator=generator, dtype=torch.float64)
    count, last = torch.tensor([5, 2, 0]), torch.tensor([0.0, 1.5, 7.0], dtype=torch.float64)
    monte_carlo = generalised_advantages(reward, value, count, last, gamma=gamma, lam=1.0)
    one_step = generalised_advantages(reward, value, count, last, gamma=gamma, lam=0.0)
    for s, n in enumerate(count.tolist()):
        total = float(last[s])
        for j in range(n - 1, -1, -1):
            following = float(value[s, j + 1]) if j + 1 < n else float(last[s])
            assert float(one_step[s, j]) == pytest.approx(float(reward[s, j]) + gamma * following - float(value[s, j]))
            total = float(reward[s, j]) + gamma * total
            assert float(monte_carlo[s, j]) == pytest.approx(total - float(value[s, j]))
        assert torch.count_nonzero(monte_carlo[s, n:]) == 0


def test_gae_with_a_perfect_critic_has_no_advantage() -> None:
    """Values are the discounted returns themselves: 0.9 before the turn that pays 1."""
    rows = replace(episode(truncated=False), value_B_T=torch.tensor([[9, 0.9, 0], [9, 1, 0]], dtype=torch.float64))
    for lam in (0.0, 0.5, 1.0):
        assert compute_advantages(rows, replace(TURN, gae_lambda=lam)).advantages_B.tolist() == pytest.approx([0, 0])


def test_gae_whitening_leaves_the_targets_of_the_critic_alone(rows_of: Callable[..., AdvantageRows]) -> None:
    for spec in (TURN, TOKEN):
        plain, white = (compute_advantages(rows_of(5), replace(spec, adv_whiten=flag)) for flag in (False, True))
        assert torch.equal(plain.parts["returns"], white.parts["returns"])
        assert not torch.allclose(plain.advantages, white.advantages)


def test_gae_keeps_no_gradient_to_the_critic() -> None:
    rows = drawn_rows(1)
    value = rows.value_B_T.clone().requires_grad_()
    out = compute_advantages(replace(rows, value_B_T=value), TOKEN)
    assert not out.advantages.requires_grad
    assert not out.parts["returns"].requires_grad


def critic(seed: int, n_rows: int = 4) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    values, old, returns = torch.randn(3, n_rows, 3, generator=generator, dtype=torch.float64)
    mask = torch.rand(n_rows, 3, generator=generator) < 0.7
    weight = torch.rand(n_rows, generator=generator, dtype=torch.float64)
    return {"values_B_T": values, "old_values_B_T": old, "returns_B_T": returns, "mask_B_T": mask, "weight_B": weight}


def test_value_loss_takes_the_larger_of_both_errors_by_hand() -> None:
    """Target 1, old 0, clip .2. V = .1: .5 * .9^2. V = .8: clipped .2, .5 * .8^2. V = 3: .5 * 2^2 (clipped .8 is less)."""
    values = torch.tensor([[0.1, 0.8, 3.0]], dtype=torch.float64, requires_grad=True)
    zeros, ones, mask = torch.zeros(1, 3), torch.ones(1, 3), torch.ones(1, 3).bool()
    loss = value_loss(values, zeros, ones, mask, torch.tensor([0.5]), clip=0.2)
    assert loss.item() == pytest.approx(0.5 * (0.405 + 0.32 + 2.0))
    loss.backward()
    assert values.grad.flatten().tolist() == pytest.approx([0.5 * -0.9, 0.0, 0.5 * 2.0])


def test_value_loss_without_a_bound_is_the_squared_error() -> None:
    tensors = critic(0)
    error = 0.5 * (tensors["values_B_T"] - tensors["returns_B_T"]).square() * tensors["mask_B_T"]
    expected = (error.sum(-1) * tensors["weight_B"]).sum()
    assert value_loss(**tensors, clip=math.inf).item() == pytest.approx(expected.item())


def test_value_loss_of_parts_adds_up_and_ignores_garbage_at_masked_positions() -> None:
    tensors = critic(1)
    whole = value_loss(**tensors, clip=0.3)
    parts = [value_loss(**{name: t[rows] for name, t in tensors.items()}, clip=0.3) for rows in ([0, 3], [1, 2])]
    assert sum(part.item() for part in parts) == pytest.approx(whole.item())
    names = ("values_B_T", "old_values_B_T", "returns_B_T")
    dirty = {name: torch.where(tensors["mask_B_T"], tensors[name], math.nan) for name in names}
    assert value_loss(**{**tensors, **dirty}, clip=0.3).item() == whole.item()


def test_value_loss_of_everything_masked_is_exactly_zero_with_zero_gradient() -> None:
    tensors = critic(2)
    values = torch.full_like(tensors["values_B_T"], math.nan).requires_grad_()
    loss = value_loss(**{**tensors, "values_B_T": values, "mask_B_T": torch.zeros(4, 3)}, clip=0.2)
    loss.backward()
    assert loss.item() == 0.0
    assert torch.count_nonzero(values.grad) == 0


def test_value_loss_sends_gradient_to_the_values_only() -> None:
    tensors = {name: t.requires_grad_() if t.is_floating_point() else t for name, t in critic(3).items()}
    value_loss(**tensors, clip=0.2).backward()
    assert [name for name, t in tensors.items() if t.grad is not None] == ["values_B_T"]


def test_value_loss_with_wrong_shapes_raises() -> None:
    tensors = critic(4)
    with pytest.raises(ValueError, match="one shape"):
        value_loss(**{**tensors, "returns_B_T": tensors["returns_B_T"][:, :2]}, clip=0.2)
    with pytest.raises(ValueError, match=r"weight \[B\]"):
        value_loss(**{**tensors, "weight_B": tensors["weight_B"][:2]}, clip=0.2)
