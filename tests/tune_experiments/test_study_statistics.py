"""The statistics of a study against numbers computed by hand."""

from __future__ import annotations

import math

import pytest
from study_cases import STABILITY, STEADY, SWINGING, full_study, history, result, study, trial

from tune_experiments.study_statistics import (
    compare_all,
    contenders,
    cost,
    counts_once,
    difference,
    holm,
    sign_flip_p,
    spread,
    success,
    task_means,
    verdict,
)


def test_spread_leaves_out_what_is_not_finite() -> None:
    found = spread([0.7, math.nan, 0.5, 0.6])
    assert (found.mean, found.sd, found.count) == (pytest.approx(0.6), pytest.approx(0.1), 3)
    assert math.isnan(spread([0.7]).sd) and math.isnan(spread([]).mean)


def test_success_of_an_arm_by_hand() -> None:
    sampo, grpo = contenders(full_study(), "sokoban")
    # seeds 0.75 and 0.75; seeds 0.375 and 0.5: mean 0.4375, sd 0.125 / sqrt 2
    assert (success(sampo, "sampled").mean, success(sampo, "sampled").sd) == (0.75, 0.0)
    assert success(grpo, "sampled").mean == 0.4375
    assert success(grpo, "sampled").sd == pytest.approx(0.125 / math.sqrt(2))
    assert task_means(sampo, "sampled") == [0.75, 0.5, 1.0, 0.75]
    assert task_means(grpo, "sampled") == [0.375, 0.25, 0.75, 0.375]


def test_difference_to_the_start_is_paired_by_task() -> None:
    sampo = contenders(full_study(), "sokoban")[0]
    # differences .5, .5, .5, .5: without pairing the tasks would spread
    assert difference(task_means(sampo, "sampled"), [0.25, 0.0, 0.5, 0.25]) == (0.5, 0.0, 4)
    # differences .25, .25, .75, .75: sd 1/sqrt 12, standard error half of it
    mean, error, n = difference([0.5, 0.25, 1.0, 0.75], [0.25, 0.0, 0.25, 0.0])
    assert (mean, error, n) == (0.5, pytest.approx(1 / math.sqrt(12) / 2), 4)


def test_difference_of_panels_of_another_size_is_not_a_number() -> None:
    assert math.isnan(difference([1.0, 0.0], [1.0, 0.0, 1.0])[0])
    mean, error, n = difference([1.0, math.nan, 0.5], [0.5, 0.5, 0.5])
    assert (mean, error, n) == (0.25, pytest.approx(0.25), 2)


def test_two_arms_compared_by_hand() -> None:
    (found,) = compare_all(contenders(full_study(), "sokoban"))
    # differences .375, .25, .25, .375; two seeds each: sds 0 and .125/sqrt 2
    assert (found.first, found.second, found.n) == ("sampo", "grpo", 4)
    assert (found.difference, found.standard_error) == (0.3125, pytest.approx(0.0625 / math.sqrt(3)))
    assert found.seed_error == pytest.approx(0.0625)
    assert found.p == found.p_holm == pytest.approx(2 / 16)  # all 16 sign patterns; two are as extreme
    assert found.higher == "" and found.is_beyond_seeds


def test_sign_flip_p_counts_the_sign_patterns() -> None:
    # differences 1, 1, -1, 0: the sums are 3, 1, 1, 1, -1, -1, -1, -3, and 4 of 8 are at least 1
    assert sign_flip_p([1.0, 1.0, 0.0, 0.5], [0.0, 0.0, 1.0, 0.5]) == 1.0
    # differences 1, 1, 1, 1, -1: sum 3; of 32 patterns 5 have the sum 3 and 1 has 5
    assert sign_flip_p([1.0, 1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0]) == pytest.approx(2 * 6 / 32)
    assert sign_flip_p([1.0] * 8, [0.0] * 8) == pytest.approx(2 / 256)
    assert sign_flip_p([0.5] * 5, [0.5] * 5) == 1.0
    assert math.isnan(sign_flip_p([1.0], [0.0]))


def test_sign_flip_p_of_a_large_panel_is_the_same_every_time_and_follows_the_normal() -> None:
    first = [float(i % 2) for i in range(100)]
    second = [0.0 if i < 60 else 1.0 - first[i] for i in range(100)]
    # 30 times +1, 30 zeros, 20 times +1, 20 times -1: sum 30, sd sqrt 70, z with continuity (30 - 1) / sqrt 70 = 3.47
    p = sign_flip_p(first, second)
    assert p == sign_flip_p(first, second) and 1e-4 <= p < 2e-3


def test_holm_by_hand() -> None:
    # sorted .01, .03, .04: 3 * .01, 2 * .03, then max(.06, .04)
    assert holm([0.04, 0.01, math.nan, 0.03])[:2] == pytest.approx([0.06, 0.03])
    assert holm([0.04, 0.01, math.nan, 0.03])[3] == pytest.approx(0.06)
    assert math.isnan(holm([0.04, math.nan])[1])
    assert holm([0.7, 0.6]) == [1.0, 1.0] and holm([]) == []


def test_verdict_of_steady_swinging_dropping_and_lost_trials() -> None:
    steady = verdict(trial("sampo", 1, None, STEADY), STABILITY)
    assert steady.is_stable and (steady.numbers.tail_var, steady.numbers.drop_from_best) == (0.0, 0.0)
    swinging = verdict(trial("sampo", 1, None, SWINGING), STABILITY)
    assert not swinging.is_stable and swinging.words == "unstable: varies and drops"
    assert (swinging.numbers.tail_var, swinging.numbers.drop_from_best) == (pytest.approx(0.04), pytest.approx(0.2))
    assert verdict(trial("sampo", 1, None, (0.9, 0.9, 0.1, 0.1)), STABILITY).words == "unstable: drops"
    failed = verdict(trial("sampo", 1, None, STEADY, status="failed"), STABILITY)
    assert (failed.is_stable, failed.words) == (False, "failed")
    unmeasured = verdict(trial("sampo", 1, None, (math.nan, math.nan)), STABILITY)
    assert (unmeasured.is_stable, unmeasured.words, unmeasured.numbers) == (False, "not measured", None)


def test_two_confirmed_settings_of_an_arm_are_two_contenders() -> None:
    trials = [
        trial("sampo", s, result(1.0), setting={"training.lr": lr}, trial_id=f"{s}-{lr}")
        for s, lr in ((1, 1e-5), (1, 1e-6), (2, 1e-5))
    ]
    first, second, other = contenders(study(trials), "sokoban")
    assert first.label == "sampo (training.lr=1e-05)" and [t.seed for t in first.trials] == [1, 2]
    assert second.label == "sampo (training.lr=1e-06)" and second.unstarted_seeds == (2,)
    assert other.setting is None and other.num_seeds == 2


def test_cost_adds_all_iterations_and_says_when_it_does_not_know() -> None:
    found = cost(full_study().trials)
    assert (found.response_tokens, found.seconds, found.iterations, found.trials) == (16_000.0, 480.0, 16, 4)
    assert math.isnan(cost([trial("sampo", 1, None, history=[{}])]).seconds)


def test_iterations_lost_or_repeated_are_found() -> None:
    rows = history(STEADY)
    assert counts_once(trial("sampo", 1, None)) is True
    assert counts_once(trial("sampo", 1, None, history=[rows[0], rows[2]])) is False
    assert counts_once(trial("sampo", 1, None, history=[rows[0], rows[0], rows[1]])) is False
    assert counts_once(trial("sampo", 1, None, history=[{}])) is None
