"""Panel results against numbers worked out by hand."""

from __future__ import annotations

import itertools
import math

import pytest

from arlarena_rllib.evaluation import paired_difference, panel_episodes, summarise_panel
from arlarena_rllib.evaluation.panel import pass_at_k
from arlarena_rllib.trajectory import StopReason, Trajectory, Turn


def _episode(task: int, member: int, *, success: bool, failed: bool = False, kind: str = "") -> Trajectory:
    turn = Turn([1], [2], [-0.1], [1], [0], "", "up", True, True, "s", 10.0 * success)
    reason = StopReason.ENV_ERROR if failed else StopReason.SUCCESS if success else StopReason.MAX_TURNS
    return Trajectory(str(task), task, member, turns=[turn], success=success, stop_reason=reason, task_type=kind)


def test_summary_takes_the_mean_over_draws_first_then_over_tasks() -> None:
    episodes = [
        *(_episode(0, m, success=s) for m, s in enumerate([True, True, False])),  # greedy, then two draws
        *(_episode(1, m, success=s) for m, s in enumerate([False, True, True])),
    ]
    result = summarise_panel(episodes, n=2)
    assert result.greedy == 0.5
    assert result.task_sampled == [0.5, 1.0]
    assert result.sampled == 0.75
    # standard deviation of (0.5, 1.0) with n - 1 is 0.35355; over sqrt(2) tasks 0.25; times 1.95996
    assert result.ci95 == pytest.approx(0.48999, abs=1e-4)
    assert result.score == 7.5
    assert (result.n, result.draws, result.failed) == (2, 2, 0)


def test_failed_episodes_are_counted_and_left_out_not_taken_for_losses() -> None:
    episodes = [_episode(0, 0, success=True), _episode(1, 0, success=False, failed=True)]
    result = summarise_panel(episodes, n=2)
    assert result.failed == 1
    assert result.greedy == 1.0
    assert math.isnan(result.task_greedy[1])


def test_numbers_of_the_environment_are_means_over_the_sampled_episodes_that_have_them() -> None:
    episodes = [_episode(0, member, success=True) for member in range(4)]
    lost = _episode(1, 1, success=False, failed=True)
    told = [{"score": 9.0}, {"score": 0.5, "searches": 2.0}, {"score": 1.0}, {}, {"score": 7.0}]
    for episode, numbers in zip([*episodes, lost], told, strict=True):
        episode.env_metrics = numbers
    result = summarise_panel([*episodes, lost], n=2)
    assert result.env_metrics == {"env_score_mean": 0.75, "env_searches_mean": 2.0}
    assert result.summary().items() >= result.env_metrics.items() and "env_metrics" not in result.summary()
    assert result.task_env_metrics["env_score_mean"][0] == 0.75 and math.isnan(
        result.task_env_metrics["env_score_mean"][1]
    )
    assert "task_env_metrics" not in result.summary()
    assert summarise_panel(episodes[:1], n=1).env_metrics == {"env_score_mean": 9.0}


def test_pass_at_k_is_the_share_of_all_subsets_of_k_draws_with_a_right_one() -> None:
    draws = [True, False, False, True, False]
    for k in range(1, 6):
        subsets = list(itertools.combinations(draws, k))
        assert pass_at_k(5, 2, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))
    assert (pass_at_k(4, 0, 4), pass_at_k(4, 4, 1)) == (0.0, 1.0)
    assert math.isnan(pass_at_k(3, 1, 4))


def test_summary_has_pass_at_k_over_the_sampled_draws_only() -> None:
    plays = {0: [True, *[False] * 5], 1: [False, True, True, False, False, False], 2: [True] * 6}
    episodes = [_episode(task, m, success=s) for task, won in plays.items() for m, s in enumerate(won)]
    summary = summarise_panel(episodes, n=3).summary()
    # of 5 draws right: 0, 2, 5; pass@2 of 2 right ones 1 - C(3, 2) / C(5, 2) = 0.7
    assert {k: v for k, v in summary.items() if "_at_" in k} == pytest.approx(
        {"avg_at_5": 1.4 / 3, "pass_at_1": 1.4 / 3, "pass_at_2": 1.7 / 3, "pass_at_4": 2 / 3, "pass_at_5": 2 / 3}
    )
    assert summary["avg_at_5"] == pytest.approx(summary["sampled"])
    assert not any("_at_" in name for name in summarise_panel(episodes[:2], n=1).summary()), "one draw"


def test_pass_at_k_leaves_out_tasks_of_which_too_few_draws_came_back() -> None:
    episodes = [_episode(0, m, success=m == 1) for m in range(3)]
    episodes += [_episode(1, 1, success=True), _episode(1, 2, success=True, failed=True)]
    at_k = summarise_panel(episodes, n=2).at_k
    assert (at_k["pass_at_1"], at_k["pass_at_2"]) == (0.75, 1.0)


def test_success_by_type_of_task_where_there_are_several() -> None:
    plays = {  # task: type, then greedy and two draws
        0: ("easy", [True, True, False]),
        1: ("home/hot", [False, False, False]),
        2: ("easy", [False, True, True]),
        3: ("home/cold", [True, True, False]),
    }
    episodes = [_episode(i, m, success=s, kind=kind) for i, (kind, won) in plays.items() for m, s in enumerate(won)]
    lost = _episode(4, 0, success=False, failed=True)  # its reset failed: nobody knows its type
    result = summarise_panel([*episodes, lost], n=5)
    assert result.by_task_type == {
        "task_type_easy_greedy": 0.5,
        "task_type_easy_sampled": 0.75,
        "task_type_easy_n": 2.0,
        "task_type_home_greedy": 0.5,
        "task_type_home_sampled": 0.25,
        "task_type_home_n": 2.0,
        "task_type_home_cold_greedy": 1.0,
        "task_type_home_cold_sampled": 0.5,
        "task_type_home_cold_n": 1.0,
        "task_type_home_hot_greedy": 0.0,
        "task_type_home_hot_sampled": 0.0,
        "task_type_home_hot_n": 1.0,
    }
    summary = result.summary()
    assert summary.items() >= result.by_task_type.items()
    assert summary.keys() & {"task_greedy", "task_sampled", "by_task_type"} == set()
    assert summarise_panel([episodes[0], episodes[6]], n=5).by_task_type == {}  # one type: says what `sampled` says


def test_paired_difference_by_hand() -> None:
    found = paired_difference([1.0, 0.5, 1.0, 0.0], [0.0, 0.5, 0.5, 0.0])
    # differences 1, 0, 0.5, 0: mean 0.375, standard deviation 0.478714 (n - 1), error 0.239357
    assert found["difference"] == pytest.approx(0.375)
    assert found["standard_error"] == pytest.approx(0.239357, abs=1e-6)
    assert found["z"] == pytest.approx(1.566699, abs=1e-6)
    assert paired_difference([1.0, math.nan], [0.5, 1.0])["n"] == 1


def test_one_greedy_episode_and_the_draws_per_task_with_distinct_seeds() -> None:
    episodes = panel_episodes(["a", "b"], draws=3, seed=0)
    assert [e.greedy for e in episodes] == [True, False, False, False] * 2
    assert len({e.seed for e in episodes}) == 8
    assert panel_episodes(["a", "b"], draws=3, seed=1)[0].seed != episodes[0].seed
