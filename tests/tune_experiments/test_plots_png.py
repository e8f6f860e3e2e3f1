"""Pictures from result files: they exist, have the right size, and show what the files say."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tune_experiments.plots import comparison_plot, curve_points, learning_curve, read_results


def _result(iteration: int, **more: Any) -> dict[str, Any]:
    return {
        "training_iteration": iteration,
        "env_runners": {
            "success_rate": 0.01 * iteration,
            "format_valid_frac": 0.9,
            "num_episodes_lifetime": 64 * iteration,
        },
        "learners": {"default_policy": {"approx_kl_k3": 0.002}},
        **more,
    }


def _evaluation(value: float) -> dict[str, Any]:
    return {"env_runners": {"sampled": value, "ci95": 0.03, "greedy": value + 0.05, "greedy_ci95": 0.04}}


def _size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) > 5000
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def test_read_results_after_a_restore_keeps_the_last_line_of_an_iteration(tmp_path: Path) -> None:
    lines = [
        json.dumps({"training_iteration": i, "try": t}) for i, t in ((1, 0), (2, 0), (3, 0), (2, 1), (3, 1), (4, 1))
    ]
    (tmp_path / "result.json").write_text("\n".join(lines) + '\n{"training_iteration": 5, "cut')
    results = read_results(tmp_path)
    assert [(r["training_iteration"], r["try"]) for r in results] == [(1, 0), (2, 1), (3, 1), (4, 1)]


def test_read_results_with_a_broken_line_names_file_and_line_and_reads_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "result.json").write_text('{"training_iteration": 1}\nbroken\n{"training_iteration": 2}\n')
    assert [result["training_iteration"] for result in read_results(tmp_path)] == [1, 2]
    assert "result.json, line 2 is not JSON" in caplog.text
    with pytest.raises(FileNotFoundError):
        read_results(tmp_path / "nowhere")


def test_curve_points_hold_the_values_and_the_start_at_zero() -> None:
    stale = {"env_runners": {"sampled": math.nan}}
    first = _result(1, evaluation_before=_evaluation(0.1), evaluation=stale)
    points = curve_points([first, _result(2, evaluation=_evaluation(0.3))])
    assert [p.iteration for p in points] == [0, 1, 2]
    assert (points[0].sampled, points[0].greedy, points[0].episodes) == (0.1, pytest.approx(0.15), 0.0)
    assert math.isnan(points[0].success) and math.isnan(points[1].sampled)
    assert (points[2].success, points[2].sampled, points[2].sampled_ci95, points[2].kl) == (0.02, 0.3, 0.03, 0.002)


@pytest.mark.parametrize("kind", ["full", "one_iteration", "nothing_but_iterations"])
def test_learning_curve_is_a_png_of_the_promised_size(tmp_path: Path, kind: str) -> None:
    results = {
        "full": [
            _result(i, **({"evaluation": _evaluation(0.1 + 0.01 * i)} if i % 5 == 0 else {})) for i in range(1, 31)
        ],
        "one_iteration": [_result(1, evaluation_before=_evaluation(0.1))],
        "nothing_but_iterations": [{"training_iteration": i} for i in range(1, 4)],
    }[kind]
    path = learning_curve(
        tmp_path / "pictures" / "curve.png", results, method="sampo", panel_hash="abc", start=0.1, control=0.12
    )
    assert _size(path) == (1200, 700)


def test_learning_curve_with_more_success_looks_different(tmp_path: Path) -> None:
    low = learning_curve(tmp_path / "low.png", [_result(i) for i in range(1, 9)])
    high = learning_curve(tmp_path / "high.png", [_result(3 * i) for i in range(1, 9)])
    again = learning_curve(tmp_path / "again.png", [_result(i) for i in range(1, 9)])
    assert low.read_bytes() == again.read_bytes() != high.read_bytes()


@pytest.mark.parametrize("methods", [["sampo"], ["sampo", "grpo"], [f"method_{i}" for i in range(8)]])
def test_comparison_plot_is_a_png_of_the_promised_size(tmp_path: Path, methods: list[str]) -> None:
    runs = [
        {
            "method": m,
            "seed": s,
            "before": 0.1,
            "after": np.float32(0.2 + 0.1 * s),
            "control": None if s else 0.1,
            "ci95": 0.02,
        }
        for m in methods
        for s in range(3)
    ]
    assert _size(comparison_plot(tmp_path / "comparison.png", runs, title="Sokoban")) == (1200, 700)


def test_plots_of_nothing_say_what_they_need(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"results is empty.*read_results"):
        learning_curve(tmp_path / "x.png", [])
    with pytest.raises(ValueError, match=r"runs is empty.*method, seed, before and after"):
        comparison_plot(tmp_path / "x.png", [])
