"""Dynamic filtering: what is taken, when it stops, and that the counts add up."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arlarena_rllib.objectives import FilterReport, GroupFilter, GroupOutcome, ObjectiveSpec, is_mixed

WON = GroupOutcome((1.0, 1.0), (True, True))
LOST = GroupOutcome((0.0, 0.0), (False, False))
MIXED = GroupOutcome((1.0, 0.0), (True, False))
PARTLY = GroupOutcome((0.3, 0.0), (False, False))
DYNAMIC = ObjectiveSpec(filtering="dynamic", max_tries=3)


def run(spec: ObjectiveSpec, batches: list[list[GroupOutcome]], target: int, iteration: int = 0) -> GroupFilter:
    groups = GroupFilter(spec, target_groups=target, iteration=iteration)
    for batch in batches:
        if not groups.needs_more:
            break
        groups.offer(batch)
    return groups


def counted(report: FilterReport) -> int:
    kept = report.kept_mixed + report.kept_surplus + report.kept_uniform + report.filled
    return kept + report.dropped_uniform + report.dropped_surplus


def test_filter_takes_mixed_groups_until_the_target_and_drops_the_surplus() -> None:
    groups = run(DYNAMIC, [[LOST, MIXED, WON], [MIXED, MIXED, MIXED]], target=3)
    assert groups.kept == [(0, 1), (1, 0), (1, 1)]
    assert not groups.needs_more
    report = groups.report()
    assert (report.tries, report.kept_mixed, report.dropped_uniform, report.dropped_surplus) == (2, 3, 2, 1)
    assert report.missing == 0


def test_filter_keeps_the_surplus_of_informative_groups_if_asked() -> None:
    keep = ObjectiveSpec(filtering="dynamic", max_tries=3, surplus="keep")
    groups = run(keep, [[LOST, MIXED, WON], [MIXED, LOST, MIXED, MIXED]], target=3)
    assert groups.kept == [(0, 1), (1, 0), (1, 2), (1, 3)]
    assert not groups.needs_more
    report = groups.report()
    assert (report.kept_mixed, report.kept_surplus, report.dropped_surplus, report.missing) == (3, 1, 0, 0)
    cold = run(ObjectiveSpec(filtering="dynamic", surplus="keep", cold_start_iterations=1), [[MIXED] * 3], target=2)
    assert (cold.report().kept_mixed, cold.report().dropped_surplus) == (2, 1)


def test_filter_reports_success_before_and_after() -> None:
    """Offered: 0 + 2 + 1 + 1 of 8 episodes won; taken: the two mixed groups, 2 of 4."""
    report = run(DYNAMIC, [[LOST, WON, MIXED, MIXED]], target=2).report()
    assert (report.success_before, report.success_after) == (0.5, 0.5)
    report = run(DYNAMIC, [[WON, WON, MIXED]], target=1).report()
    assert report.as_metrics()["success_before"] == pytest.approx(5 / 6)
    assert report.as_metrics()["success_after"] == 0.5
    nothing = run(ObjectiveSpec(filtering="dynamic", max_tries=1, fill=False), [[LOST]], target=1).report()
    assert nothing.success_before == 0.0
    assert math.isnan(nothing.success_after)


def test_filter_fills_on_the_last_try_with_uniform_groups_in_order() -> None:
    groups = run(DYNAMIC, [[LOST], [LOST], [WON, MIXED, LOST, LOST]], target=3)
    assert groups.kept == [(2, 1), (2, 0), (2, 2)]
    report = groups.report()
    assert (report.kept_mixed, report.filled, report.dropped_uniform) == (1, 2, 3)


def test_filter_without_fill_stays_short_and_says_so() -> None:
    spec = ObjectiveSpec(filtering="dynamic", max_tries=2, fill=False)
    groups = run(spec, [[LOST], [MIXED, LOST]], target=3)
    assert groups.kept == [(1, 0)]
    assert groups.report().missing == 2
    assert not groups.needs_more


def test_filter_with_all_groups_uniform_is_reported() -> None:
    report = run(DYNAMIC, [[LOST, WON]] * 3, target=2).report()
    assert report.all_uniform
    assert (report.filled, report.dropped_uniform) == (2, 4)
    assert report.as_metrics()["all_uniform"] == 1.0


def test_filter_metric_reward_sees_partial_rewards_that_success_does_not() -> None:
    assert is_mixed(PARTLY, "reward")
    assert not is_mixed(PARTLY, "success")
    assert not is_mixed(GroupOutcome((), ()), "reward")
    assert not is_mixed(GroupOutcome((1.0,), (True,)), "success")
    by_reward = ObjectiveSpec(filtering="dynamic", filter_metric="reward", max_tries=1, fill=False)
    assert run(by_reward, [[PARTLY, LOST]], target=2).kept == [(0, 0)]


def test_filter_cold_start_takes_everything_and_the_next_iteration_does_not() -> None:
    spec = ObjectiveSpec(filtering="dynamic", cold_start_iterations=2)
    cold = run(spec, [[LOST, MIXED]], target=2, iteration=1)
    assert cold.kept == [(0, 0), (0, 1)]
    report = cold.report()
    assert (report.active, report.kept_uniform, report.kept_mixed) == (False, 1, 1)
    warm = run(spec, [[LOST, MIXED]], target=2, iteration=2)
    assert warm.kept == [(0, 1)]
    assert warm.report().active


def test_filter_none_takes_all_in_one_try_even_if_short() -> None:
    groups = run(ObjectiveSpec(filtering="none"), [[LOST], [LOST]], target=2)
    assert groups.kept == [(0, 0)]
    assert not groups.needs_more
    assert groups.report().changed_nothing


def test_filter_that_changed_nothing_says_so() -> None:
    assert run(DYNAMIC, [[MIXED, MIXED]], target=2).report().changed_nothing
    assert not run(DYNAMIC, [[MIXED, LOST], [MIXED]], target=2).report().changed_nothing


def test_filter_offer_without_groups_counts_as_a_try() -> None:
    groups = run(DYNAMIC, [[], [], []], target=1)
    assert not groups.needs_more
    assert groups.report().tries == 3
    assert groups.report().missing == 1


def test_filter_offer_after_the_end_raises() -> None:
    groups = run(DYNAMIC, [[MIXED]], target=1)
    with pytest.raises(RuntimeError, match="needs_more"):
        groups.offer([MIXED])


def test_filter_with_a_bad_target_raises() -> None:
    with pytest.raises(ValueError, match="target_groups"):
        GroupFilter(DYNAMIC, target_groups=0)


@settings(max_examples=200, deadline=None)
@given(
    batches=st.lists(st.lists(st.sampled_from([WON, LOST, MIXED, PARTLY]), max_size=5), max_size=5),
    target=st.integers(1, 6),
    tries=st.integers(1, 4),
    fill=st.booleans(),
    metric=st.sampled_from(["success", "reward"]),
    filtering=st.sampled_from(["none", "dynamic"]),
    iteration=st.integers(0, 2),
    surplus=st.sampled_from(["drop", "keep"]),
)
def test_filter_counts_add_up(
    batches: list[list[GroupOutcome]],
    target: int,
    tries: int,
    fill: bool,
    metric: str,
    filtering: str,
    iteration: int,
    surplus: str,
) -> None:
    spec = ObjectiveSpec(
        filtering=filtering,
        filter_metric=metric,
        max_tries=tries,
        fill=fill,
        cold_start_iterations=1,
        surplus=surplus,
    )
    groups = run(spec, batches, target, iteration)
    report = groups.report()
    used = batches[: report.tries]
    assert report.started == sum(len(batch) for batch in used) == counted(report)
    assert len(groups.kept) == len(set(groups.kept)) == target - report.missing + report.kept_surplus
    assert report.kept_surplus == 0 or (surplus == "keep" and report.missing == 0 and report.dropped_surplus == 0)
    assert report.tries <= tries
    assert sum(entry["taken"] for entry in report.log) == len(groups.kept)
    if report.active:
        mixed_kept = sum(is_mixed(used[batch][index], metric) for batch, index in groups.kept)
        assert mixed_kept == report.kept_mixed + report.kept_surplus
    kept_wins = [won for batch, index in groups.kept for won in used[batch][index].successes]
    assert report.success_after == pytest.approx(
        sum(kept_wins) / len(kept_wins) if kept_wins else math.nan, nan_ok=True
    )


def test_oversampling_asks_for_a_multiple_of_what_is_missing_while_the_filter_is_active() -> None:
    spec = ObjectiveSpec(filtering="dynamic", oversampling=1.5)
    chosen = GroupFilter(spec, target_groups=4)
    assert chosen.next_size == 6
    chosen.offer([MIXED])
    assert chosen.next_size == 5  # 3 missing
    cold = ObjectiveSpec(filtering="dynamic", oversampling=1.5, cold_start_iterations=1)
    assert GroupFilter(cold, target_groups=4).next_size == 4
