"""Mutual information and retrieval between prompts and replies, against hand numbers."""

from __future__ import annotations

import math

import pytest
import torch

from arlarena_rllib.diagnostics import cross_scores, plan_cross_scoring, prompt_dependence


def test_hand_numbers_of_two_prompts_and_two_responses() -> None:
    """p(y1|x1) = .8, p(y1|x2) = .2, p(y2|x1) = .1, p(y2|x2) = .4; lengths 1 and 2."""
    logp = torch.tensor([[0.8, 0.2], [0.1, 0.4]], dtype=torch.float64).log()
    done = prompt_dependence(logp, [0, 1], [1, 2])
    assert done["mutual_information_seq"] == pytest.approx((math.log(0.8 / 0.5) + math.log(0.4 / 0.25)) / 2)
    assert done["conditional_entropy_seq"] == pytest.approx(-(math.log(0.8) + math.log(0.4)) / 2)
    root = math.sqrt(0.4), (math.sqrt(0.1) + math.sqrt(0.4)) / 2
    assert done["mutual_information_token"] == pytest.approx((math.log(1.6) + math.log(root[0] / root[1])) / 2)
    assert done["conditional_entropy_token"] == pytest.approx(-(math.log(0.8) + math.log(root[0])) / 2)
    assert (done["retrieval_accuracy"], done["retrieval_chance"]) == (1.0, 0.5)


def test_replies_that_ignore_the_prompt_have_no_information_and_retrieve_by_chance() -> None:
    logp = torch.tensor([[-3.0] * 4, [-70.0] * 4, [-1e4] * 4])
    done = prompt_dependence(logp, [0, 3, 3], [2, 30, 500])
    assert done["mutual_information_seq"] == pytest.approx(0.0, abs=1e-9)
    assert done["mutual_information_token"] == pytest.approx(0.0, abs=1e-9)
    assert done["retrieval_accuracy"] == done["retrieval_chance"] == 0.25


def test_replies_that_fit_only_their_prompt_reach_the_bound() -> None:
    logp = torch.full((3, 3), -500.0).fill_diagonal_(-5.0)
    done = prompt_dependence(logp, [0, 1, 2], [10, 10, 10])
    assert done["mutual_information_seq"] == pytest.approx(math.log(3))
    assert done["mutual_information_token"] == pytest.approx(math.log(3))
    assert done["retrieval_accuracy"] == 1.0


def test_reply_that_fits_another_prompt_better_counts_against() -> None:
    done = prompt_dependence(torch.tensor([[-9.0, -1.0], [-9.0, -1.0]]), [0, 1], [1, 1])
    assert done["retrieval_accuracy"] == 0.5
    assert done["mutual_information_seq"] == pytest.approx((-8.0 + 0.0) / 2 + math.log(2) - math.log1p(math.exp(-8)))


def test_order_of_responses_and_of_prompts_changes_nothing() -> None:
    logp = -10.0 * torch.rand(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    own, length = torch.tensor([0, 1, 2, 3, 3, 1]), torch.tensor([3, 4, 5, 6, 7, 8])
    rows, columns = torch.tensor([5, 0, 3, 1, 2, 4]), torch.tensor([2, 0, 3, 1])
    moved_own = torch.argsort(columns)[own[rows]]
    moved = prompt_dependence(logp[rows][:, columns], moved_own.tolist(), length[rows].tolist())
    assert moved == pytest.approx(prompt_dependence(logp, own.tolist(), length.tolist()))


@pytest.mark.parametrize(
    ("shape", "own", "length"),
    [((2, 1), [0, 0], [1, 1]), ((2, 2), [0], [1, 1]), ((2, 2), [0, 2], [1, 1]), ((1, 2), [0], [0])],
)
def test_shapes_and_indices_that_do_not_fit_are_refused(
    shape: tuple[int, int], own: list[int], length: list[int]
) -> None:
    with pytest.raises(ValueError, match=r"own_R|prompts"):
        prompt_dependence(torch.zeros(shape), own, length)


def test_no_response_gives_no_metric() -> None:
    assert prompt_dependence(torch.zeros(0, 3), [], []) == {}


def _rows(n_prompts: int, each: int) -> list[tuple[list[int], list[int]]]:
    return [([100 + p], [p, member]) for p in range(n_prompts) for member in range(each)]


@pytest.mark.parametrize(
    ("n_prompts", "each", "p", "r"), [(20, 8, 8, 16), (3, 8, 3, 15), (20, 1, 8, 8), (2, 99, 2, 16)]
)
def test_plan_keeps_the_caps_and_knows_the_own_prompts(n_prompts: int, each: int, p: int, r: int) -> None:
    plan = plan_cross_scoring(_rows(n_prompts, each), seed=1)
    assert plan is not None
    assert (len(plan.prompts), len(set(plan.prompts)), len(plan.responses)) == (p, p, r)
    assert len(set(plan.responses)) == r
    assert all(plan.prompts[own] == (100 + reply[0],) for own, reply in zip(plan.own, plan.responses, strict=True))


def test_plan_follows_the_seed_and_needs_two_prompts_with_a_reply() -> None:
    rows = _rows(20, 4)
    assert plan_cross_scoring(rows, seed=2) == plan_cross_scoring(rows, seed=2)
    assert plan_cross_scoring(rows, seed=2) != plan_cross_scoring(rows, seed=3)
    assert plan_cross_scoring([([1], [2]), ([1], [3]), ([2], [])]) is None
    with pytest.raises(ValueError, match="max_prompts=9"):
        plan_cross_scoring(rows, max_prompts=9, max_responses=8)


def test_scores_in_the_order_of_the_sequences_become_the_matrix() -> None:
    plan = plan_cross_scoring(_rows(3, 2), seed=0)
    assert plan is not None
    scores = [[float(prompt[0]), 1000.0 * reply[0], float(reply[1])] for prompt, reply in plan.sequences()]
    matrix = cross_scores(plan, scores)
    assert matrix.shape == (6, 3)
    for i, reply in enumerate(plan.responses):
        assert matrix[i].tolist() == [prompt[0] + 1000.0 * reply[0] + reply[1] for prompt in plan.prompts]
    with pytest.raises(ValueError, match="17 scored sequences for 6 responses x 3 prompts"):
        cross_scores(plan, scores[:-1])
