"""Each signal fires on a constructed series, the first one is named, and a restored alarm goes on exactly."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from arlarena_rllib.diagnostics import AlarmReport, AlarmThresholds, CollapseAlarm, replay_alarm

SUCCESS, FORMAT = "env_runners/success_rate", "env_runners/format_valid_frac"
BEFORE, EVALUATION = "evaluation_before/env_runners/sampled", "evaluation/env_runners/sampled"
KL, REF_KL, GRAD, NONFINITE = (
    f"learners/default_policy/{name}" for name in ("approx_kl_k3", "ref_kl", "grad_norm", "nonfinite_steps")
)


def healthy(iterations: int) -> list[dict[str, Any]]:
    """Success rises with noise, the reference KL from 0, the others stay level with noise."""
    random = np.random.default_rng(0)
    return [
        {
            "training_iteration": i,
            SUCCESS: 0.3 + 0.3 * i / iterations + float(random.uniform(-0.15, 0.15)),
            FORMAT: 0.95 + float(random.uniform(-0.04, 0.04)),
            KL: float(random.uniform(1e-4, 3e-3)),
            REF_KL: 0.004 * i,
            GRAD: float(random.uniform(0.3, 0.9)),
            NONFINITE: 0.0,
        }
        for i in range(1, iterations + 1)
    ]


def with_values(metric: str, values: list[float], *, before: int = 30) -> list[dict[str, Any]]:
    """Return a healthy run of `before` iterations, and more in which one metric takes the given values."""
    history = healthy(before + len(values))
    for row, value in zip(history[before:], values, strict=True):
        row[metric] = value
    return history


def signals(report: AlarmReport) -> list[tuple[str, int]]:
    return [(signal.name, signal.iteration) for signal in report.signals]


def test_healthy_run_raises_no_alarm() -> None:
    report = replay_alarm(healthy(200))
    assert (report.first, report.iteration) == (None, 200)
    assert report.as_metrics() == {"signals": 0.0, "first_iteration": -1.0}


@pytest.mark.parametrize(
    ("metric", "values", "name", "iteration"),
    [
        (GRAD, [30.0, 30.0, 30.0], "grad_norm", 33),
        (KL, [0.003, 0.5], "off_policy_kl", 32),
        (REF_KL, [0.13, 3.0], "ref_kl", 32),
        (FORMAT, [0.9, 0.8], "format", 32),
        (SUCCESS, [0.0] * 5, "success", 33),
        (EVALUATION, [0.6, 0.5, 0.39], "evaluation", 33),
        (NONFINITE, [0.0, 1.0], "nonfinite_steps", 32),
    ],
)
def test_one_signal_that_goes_wrong_fires_alone(metric: str, values: list[float], name: str, iteration: int) -> None:
    report = replay_alarm(with_values(metric, values))
    assert signals(report) == [(name, iteration)]
    assert report.first is not None and report.first.metric == metric


@pytest.mark.parametrize(
    ("metric", "values"),
    [
        (GRAD, [30.0, 30.0, 0.5, 30.0, 30.0]),
        (KL, [0.009, 0.009]),
        (REF_KL, [0.3, 0.5]),
        (FORMAT, [0.895]),
        (SUCCESS, [0.05]),
        (EVALUATION, [0.6, 0.41]),
        (GRAD, [math.nan, math.inf, math.nan]),
    ],
)
def test_short_or_small_excursions_raise_no_alarm(metric: str, values: list[float]) -> None:
    assert replay_alarm(with_values(metric, values)).first is None


@pytest.mark.parametrize(("metric", "floor"), [(KL, 0.01), (REF_KL, 0.1)])
def test_kl_jump_below_the_floor_raises_no_alarm(metric: str, floor: float) -> None:
    """On policy the median is 0 or rounding noise, and any factor of it is nothing."""
    alarm = CollapseAlarm()
    reports = [alarm.update(i, {metric: v}) for i, v in enumerate([0.0] * 5 + [0.99 * floor, 1.01 * floor])]
    assert [len(report.signals) for report in reports] == [0] * 6 + [1]


def test_gradient_limit_is_the_factor_times_the_median_of_the_iterations_before() -> None:
    """The median of 1 to 5 is 3, with 31 it is 3.5, with 36 it is 4: limits 30, 35 and 40."""
    alarm = CollapseAlarm(AlarmThresholds(grad_norm_iterations=3))
    reports = [alarm.update(i, {GRAD: v}) for i, v in enumerate([1.0, 2.0, 3.0, 4.0, 5.0, 31.0, 36.0, 41.0])]
    assert [len(report.new) for report in reports] == [0] * 7 + [1]
    (signal,) = reports[-1].new
    assert (signal.iteration, signal.value, signal.limit) == (7, 41.0, 40.0)
    assert str(signal) == "grad_norm at iteration 7: 41 is above the limit 40"


def test_slow_explosion_of_the_gradient_is_seen() -> None:
    report = replay_alarm([{GRAD: 0.5 * 1.1 ** max(0, i - 50)} for i in range(1, 150)])
    assert report.first is not None and report.first.iteration < 90


def test_success_limit_is_the_best_mean_of_five_minus_the_drop() -> None:
    """Means of five: .4 ... .6 (the best), then .5, .4, .3 < .6 - .2."""
    alarm = CollapseAlarm()
    values = [0.4] * 5 + [0.6] * 5 + [0.1, 0.1, 0.1, 0.1]
    reports = [alarm.update(i, {SUCCESS: v}) for i, v in enumerate(values)]
    first = reports[-1].first
    assert first is not None and first.iteration == 12
    assert (first.value, first.limit) == pytest.approx((0.3, 0.4))
    assert str(first).endswith("0.3 is below the limit 0.4")


def test_collapse_in_the_first_iterations_is_seen_against_the_evaluation_before_training() -> None:
    """No rule on training metrics has a better past to compare with."""
    collapsed = [{SUCCESS: 0.03, FORMAT: 0.95, REF_KL: 1.6, KL: 0.1, GRAD: 1.0} for _ in range(5)]
    assert replay_alarm(collapsed).first is None
    collapsed[0][BEFORE], collapsed[4][EVALUATION] = 0.44, 0.06
    report = replay_alarm(collapsed)
    assert signals(report) == [("evaluation", 5)]
    assert report.first is not None and report.first.metric == EVALUATION
    assert (report.first.value, report.first.limit) == pytest.approx((0.06, 0.24))


def test_evaluation_before_and_after_the_first_iteration_are_told_apart() -> None:
    assert signals(replay_alarm([{BEFORE: 0.5, EVALUATION: 0.1}])) == [("evaluation", 1)]
    assert replay_alarm([{BEFORE: 0.1, EVALUATION: 0.5}]).first is None


def test_first_of_several_signals_is_named_with_value_and_limit() -> None:
    history = healthy(40)
    for row in history[34:]:
        row[FORMAT] = 0.5
    for row in history[36:]:
        row[KL], row[GRAD] = 2.0, 50.0
    report = replay_alarm(history)
    assert signals(report) == [("format", 35), ("off_policy_kl", 37), ("grad_norm", 39)]
    assert report.first == report.signals[0]
    assert report.first.value == 0.5 and 0.85 < report.first.limit < 0.9
    assert report.as_metrics() == {"signals": 3.0, "first_iteration": 35.0}


def test_signals_of_one_iteration_are_in_the_order_of_causes() -> None:
    history = healthy(40)
    history[-1] |= {FORMAT: 0.1, REF_KL: 99.0, KL: 99.0, NONFINITE: 1.0}
    assert [name for name, _ in signals(replay_alarm(history))] == [
        "nonfinite_steps",
        "off_policy_kl",
        "ref_kl",
        "format",
    ]


def test_signal_fires_once_and_is_new_once() -> None:
    alarm = CollapseAlarm()
    new = [len(alarm.update(row["training_iteration"], row).new) for row in with_values(NONFINITE, [1.0, 0.0, 1.0])]
    assert new == [0] * 30 + [1, 0, 0]


@pytest.mark.parametrize("cut", [0, 1, 3, 31, 33, 36, 39])
def test_alarm_restored_from_json_goes_on_exactly(cut: int) -> None:
    """Also in the middle of a run of too large gradients."""
    history = healthy(40)
    for row in history[30:]:
        row[GRAD] = 40.0
    for row in history[34:]:
        row[SUCCESS], row[FORMAT] = 0.0, 0.1
    whole = CollapseAlarm()
    first = CollapseAlarm()
    for row in history[:cut]:
        first.update(row["training_iteration"], row)
    second = CollapseAlarm()
    second.set_state(json.loads(json.dumps(first.get_state())))
    assert second.report.signals == first.report.signals
    for row in history:
        expected = whole.update(row["training_iteration"], row)
        if row["training_iteration"] > cut:
            assert second.update(row["training_iteration"], row) == expected
    assert second.get_state() == whole.get_state()
    assert len(whole.report.signals) == 3


def test_state_is_a_copy_that_later_iterations_do_not_change() -> None:
    alarm = CollapseAlarm()
    alarm.update(1, healthy(1)[0])
    state = alarm.get_state()
    before = json.dumps(state)
    alarm.update(2, healthy(2)[1])
    assert json.dumps(state) == before


def test_absent_metrics_and_numpy_numbers_are_taken() -> None:
    alarm = CollapseAlarm()
    assert alarm.update(1, {}).first is None
    assert alarm.update(2, {NONFINITE: None, SUCCESS: "high", GRAD: True}).first is None
    assert signals(alarm.update(3, {NONFINITE: np.float32(1.0)})) == [("nonfinite_steps", 3)]


def test_iteration_that_comes_twice_is_refused() -> None:
    alarm = CollapseAlarm()
    alarm.update(5, {})
    with pytest.raises(ValueError, match="iteration=5 was fed after 5"):
        alarm.update(5, {})


def test_thresholds_out_of_range_are_named_all_at_once() -> None:
    with pytest.raises(ValueError) as caught:
        AlarmThresholds(success_drop=-0.1, grad_norm_iterations=0, median_min=2.5, kl_iterations=True)  # type: ignore[arg-type]
    lines = str(caught.value).splitlines()
    assert [line.split("=")[0] for line in lines] == [
        "success_drop",
        "grad_norm_iterations",
        "kl_iterations",
        "median_min",
    ]
    with pytest.raises(ValueError, match="median_min=9 must not exceed median_window=8"):
        AlarmThresholds(median_min=9, median_window=8)
