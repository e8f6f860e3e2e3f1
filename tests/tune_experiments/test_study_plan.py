"""The order of a study's trials: default first, then the grid until something is stable, then fresh seeds."""

from __future__ import annotations

import math

import pytest

from tune_experiments.study_plan import CONFIRM, SEARCH, Outcome, PlannedArm, StudyPlan, TrialKey

STABLE, UNSTABLE = Outcome(True, 0.5), Outcome(False, 0.4)
PLAN = StudyPlan(
    (PlannedArm("a", ({}, {"x": 1}, {"x": 2})), PlannedArm("b", ({}, {"y": 1}))), 0, (1, 2), max_settings=3
)


def search(arm: str, number: int) -> TrialKey:
    return TrialKey(arm, number, SEARCH, 0)


def confirm(arm: str, number: int) -> list[TrialKey]:
    return [TrialKey(arm, number, CONFIRM, seed) for seed in (1, 2)]


def played(plan: StudyPlan, outcomes: dict[TrialKey, Outcome]) -> list[TrialKey]:
    """Return the order of all trials when one runs at a time; unlisted ones end unstable with 0."""
    known: dict[TrialKey, Outcome | None] = {}
    while waiting := plan.open_trials(known):
        known[waiting[0]] = outcomes.get(waiting[0], Outcome(False, 0.0))
    assert plan.is_over(known)
    return list(known)


def test_stable_default_ends_the_search_and_is_confirmed() -> None:
    order = played(PLAN, {search("a", 0): STABLE, search("b", 0): STABLE})
    assert order == [search("a", 0), search("b", 0), *confirm("a", 0), *confirm("b", 0)]


def test_grid_goes_on_until_a_setting_is_stable() -> None:
    order = played(PLAN, {search("a", 1): STABLE, search("b", 0): STABLE})
    assert order == [search("a", 0), search("a", 1), search("b", 0), *confirm("a", 1), *confirm("b", 0)]


def test_without_a_stable_setting_the_best_of_all_is_confirmed() -> None:
    values = {search("a", 0): 0.1, search("a", 1): 0.3, search("a", 2): math.nan}
    order = played(PLAN, {key: Outcome(False, value) for key, value in values.items()})
    assert order[:5] == [search("a", 0), search("a", 1), search("a", 2), search("b", 0), search("b", 1)]
    assert order[5:7] == confirm("a", 1)


def test_arm_with_one_setting_is_confirmed_without_a_search() -> None:
    plan = StudyPlan((PlannedArm("a", ({},)), PlannedArm("b", ({}, {"y": 1}))), 0, (1, 2), max_settings=3)
    assert plan.open_trials({}) == [search("b", 0), *confirm("a", 0)]
    assert played(plan, {search("b", 0): STABLE}) == [search("b", 0), *confirm("a", 0), *confirm("b", 0)]
    assert plan.most_trials() == 2 + 4


def test_budget_cuts_the_grid() -> None:
    plan = StudyPlan(PLAN.arms, 0, (1, 2), max_settings=2)
    assert search("a", 2) not in played(plan, {})
    assert (plan.most_trials(), PLAN.most_trials()) == (2 + 2 + 4, 3 + 2 + 4)


def test_trying_all_takes_the_best_stable_one_over_a_better_unstable_one() -> None:
    plan = StudyPlan(PLAN.arms, 0, (1, 2), max_settings=3, tries_all=True)
    outcomes = {
        search("a", 0): Outcome(True, 0.5),
        search("a", 1): Outcome(True, 0.6),
        search("a", 2): Outcome(False, 0.9),
    }
    order = played(plan, outcomes)
    assert order[:3] == [search("a", n) for n in range(3)]
    assert [key for key in order if key.arm == "a" and key.purpose == CONFIRM] == confirm("a", 1)


def test_while_a_trial_runs_only_independent_ones_may_start() -> None:
    known: dict[TrialKey, Outcome | None] = {search("a", 0): None}
    assert PLAN.open_trials(known) == [search("b", 0)]
    known[search("b", 0)] = None
    assert PLAN.open_trials(known) == [] and not PLAN.is_over(known)
    known[search("b", 0)] = STABLE
    assert PLAN.open_trials(known) == confirm("b", 0)
    assert PLAN.choice("a", known) is None


def test_trying_all_starts_a_whole_arm_side_by_side() -> None:
    plan = StudyPlan(PLAN.arms, 0, (1, 2), max_settings=3, tries_all=True)
    assert plan.open_trials({}) == [search("a", 0), search("a", 1), search("a", 2), search("b", 0), search("b", 1)]


@pytest.mark.parametrize("stable", [0, 1, 2, None])
def test_no_trial_comes_twice(stable: int | None) -> None:
    outcomes = {} if stable is None else {search("a", stable): STABLE}
    order = played(PLAN, outcomes)
    assert len(set(order)) == len(order) <= PLAN.most_trials()


def test_name_of_a_trial_is_fit_for_a_folder() -> None:
    assert str(TrialKey("sampo", 2, SEARCH, 0)) == "sampo-2-search-seed0"
