"""Success by type of task, and why groups are uniform: hand counts."""

from __future__ import annotations

import pytest

from arlarena_rllib.diagnostics import group_uniformity, success_by_task_type, task_type_names
from arlarena_rllib.objectives import GroupOutcome


def test_success_by_task_type_counts_each_type_and_leaves_the_nameless_out() -> None:
    types = ["pick two", "look", None, "pick two", "", "clean/heat"]
    done = success_by_task_type(types, [True, False, True, False, True, True])
    assert done == {
        "task_type_clean_success_rate": 1.0,
        "task_type_clean_episodes": 1.0,
        "task_type_clean_heat_success_rate": 1.0,
        "task_type_clean_heat_episodes": 1.0,
        "task_type_look_success_rate": 0.0,
        "task_type_look_episodes": 1.0,
        "task_type_pick_two_success_rate": 0.5,
        "task_type_pick_two_episodes": 2.0,
    }
    assert success_by_task_type([None, None], [True, False]) == {}
    with pytest.raises(ValueError, match="1 task types but 2 successes"):
        success_by_task_type(["a"], [True, False])


def test_task_type_with_levels_counts_for_each_level() -> None:
    assert task_type_names("kitchen/pick two/ hot") == ["kitchen", "kitchen_pick_two", "kitchen_pick_two_hot"]
    assert [task_type_names(nothing) for nothing in (None, "", " ", "/")] == [[], [], [], []]
    done = success_by_task_type(["web", "home/clean", "home/heat", "home/heat"], [True, True, False, False])
    assert done == {
        "task_type_home_success_rate": 1 / 3,
        "task_type_home_episodes": 3.0,
        "task_type_home_clean_success_rate": 1.0,
        "task_type_home_clean_episodes": 1.0,
        "task_type_home_heat_success_rate": 0.0,
        "task_type_home_heat_episodes": 2.0,
        "task_type_web_success_rate": 1.0,
        "task_type_web_episodes": 1.0,
    }


def test_group_uniformity_tells_too_easy_from_too_hard() -> None:
    groups = [
        GroupOutcome((1.0, 1.0), (True, True)),
        GroupOutcome((0.0, 0.5), (False, False)),
        GroupOutcome((0.0, 0.0), (False, False)),
        GroupOutcome((1.0, 0.0), (True, False)),
        GroupOutcome((0.5, 0.5), (True, False)),
        GroupOutcome((), ()),
    ]
    assert group_uniformity(groups) == {
        "uniform_frac": 3 / 5,
        "all_success_frac": 1 / 5,
        "all_failure_frac": 2 / 5,
        "equal_return_frac": 3 / 5,
    }
    assert group_uniformity([]) == {}
