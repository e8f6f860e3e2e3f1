"""The table of importance ratios, followed by hand."""

from __future__ import annotations

from study_cases import full_study, study, trial

from tune_experiments.study_page import Cell
from tune_experiments.study_ratios import ratios_table
from tune_experiments.study_statistics import task_numbers

OUT, KL = "learners/default_policy/oob_token_total_frac", "learners/default_policy/approx_kl_k3"


def test_ratios_are_means_over_iterations_and_seeds_with_the_first_and_the_last() -> None:
    one = [{OUT: 0.10, KL: 0.5}, {OUT: 0.20, KL: 1.5}]
    two = [{OUT: 0.30}, {OUT: float("nan")}, {OUT: 0.60}]
    numbers = task_numbers(
        study([trial("sampo", 1, None, history=one), trial("sampo", 2, None, history=two)]), "sokoban"
    )
    table = ratios_table(numbers)
    assert table is not None
    assert [table.rows[0][i] for i in (0, 1, 2, 7)] == [
        Cell("sampo"),
        Cell("30.0", "20.0 \N{RIGHTWARDS ARROW} 40.0"),  # (10 + 20 + 30 + 60) / 4; (10 + 30) / 2; (20 + 60) / 2
        Cell("\N{EN DASH}"),
        Cell("1", "0.5 \N{RIGHTWARDS ARROW} 1.5"),
    ]


def test_a_study_without_ratios_has_no_such_table() -> None:
    assert ratios_table(task_numbers(full_study(), "sokoban")) is None
