"""What the curves of a study are drawn from."""

from __future__ import annotations

import math

import numpy as np
from study_cases import full_study, study, trial

from tune_experiments.study_plots import Panel, band, study_curves, trial_points
from tune_experiments.study_statistics import contenders


def test_points_start_before_training_and_take_the_last_of_a_repeated_iteration() -> None:
    rows = [
        {"training_iteration": 1.0, "before": 0.1, "x": 0.2},
        {"training_iteration": 2.0, "x": 0.3},
        {"training_iteration": 2.0, "x": 0.4},
        {"training_iteration": 3.0, "x": math.nan},
    ]
    panel = Panel("", "", "x", before="before")
    assert trial_points(trial("sampo", 1, None, history=rows), panel) == {0: 0.1, 1: 0.2, 2: 0.4}
    assert trial_points(trial("sampo", 1, None, history=[{"x": 1.0}, {"x": 2.0}]), panel) == {1: 1.0, 2: 2.0}


def test_band_is_over_the_seeds_that_have_the_iteration() -> None:
    found = band([{1: 0.2, 2: 0.6}, {1: 0.4}])
    np.testing.assert_allclose(
        [found.x, found.mean, found.low, found.high], [[1, 2], [0.3, 0.6], [0.2, 0.6], [0.4, 0.6]]
    )
    assert len(band([]).x) == 0


def test_curves_are_the_same_every_time_and_follow_the_values() -> None:
    rows = contenders(full_study(), "sokoban")
    first = study_curves(rows, ["sampo", "grpo"], title="x")
    assert first == study_curves(rows, ["sampo", "grpo"], title="x")
    other = contenders(study([trial("sampo", 1, None, (0.1, 0.9))]), "sokoban")
    assert study_curves(other, ["sampo", "grpo"], title="x") != first
    assert first.startswith("<svg") and first.endswith("</svg>") and "var(--arm1)" in first


def test_eight_arms_are_told_apart_by_dashes_too() -> None:
    from tune_experiments.study_plots import _styles
    from tune_experiments.study_record import ArmRecord

    arms = [ArmRecord(f"a{i}", "grpo") for i in range(8)]
    rows = contenders(study([], arms=arms), "sokoban")
    assert len(set(_styles(rows, [arm.name for arm in arms]))) == 8
