"""The recorded results are written from summaries, one row a run, failures shown."""

from __future__ import annotations

import json
from pathlib import Path

from tune_experiments.quickstart import REPORTS, page
from tune_experiments.record import README, _by_task_type, iterations_of_equal_episodes, with_results, write_results


def _summary(method: str, seed: int, after: float, z: float) -> dict:
    def panel(value: float) -> dict:
        return {"sampled": value, "greedy": value + 0.1, "n": 256, "ci95": 0.05, "draws": 4}

    def difference(value: float) -> dict:
        return {"difference": value, "standard_error": abs(value) / abs(z), "z": z, "n": 256}

    return {
        "method": method,
        "seed": seed,
        "before": panel(0.5),
        "after": panel(after),
        "control": panel(0.52),
        "differences": {"after - before": difference(after - 0.5), "after - control": difference(after - 0.52)},
        "episodes": 5000,
        "format_valid": 0.99,
        "iterations": 24,
        "seconds": 600.0,
        "training_cpu_seconds": 570.0,
        "engine": "vllm",
        "panel_hash": "abc",
        "commit": "0123456789abcdef",
        "mlflow_tracking_uri": "sqlite:///x.db",
    }


def test_table_has_a_row_per_run_and_counts_the_seeds_that_hold(tmp_path: Path) -> None:
    runs = [_summary("sampo", 0, 0.7, 8.0), _summary("sampo", 1, 0.45, -2.0), _summary("grpo", 0, 0.6, 4.0)]
    write_results("quickstart", runs, tmp_path, [])
    text = (tmp_path / "quickstart.md").read_text()
    assert "| sampo | 0 | 0.500 (0.600) | 0.700 (0.800) | 0.520 (0.620) | +0.200 (0.025) |" in text
    assert "| sampo | 1 | 0.500 (0.600) | 0.450 (0.550) |" in text
    assert "| sampo | 2 | +0.075 | 1 of 2 | +0.055 | 1 of 2 |" in text
    assert "| grpo | 1 | +0.100 | 1 of 1 | +0.080 | 1 of 1 |" in text
    kept = json.loads((tmp_path / "quickstart.json").read_text())["runs"]
    assert kept == [{key: value for key, value in run.items() if key != "mlflow_tracking_uri"} for run in runs]
    assert (tmp_path / "quickstart.png").read_bytes()[:4] == b"\x89PNG"


def test_what_the_environment_counts_is_tabled_before_and_after(tmp_path: Path) -> None:
    run = _summary("sampo", 0, 0.7, 8.0)
    run["before"]["env_metrics"] = {"env_nothing_happens_frac_mean": 0.5}
    run["after"]["env_metrics"] = {"env_nothing_happens_frac_mean": 0.125}
    later = _summary("grpo", 0, 0.7, 8.0)
    later["before"]["env_metrics"] = later["after"]["env_metrics"] = {"env_score_mean": 0.25}
    later["env_differences"] = {"env_score_mean": {"difference": 0.0, "standard_error": 0.0625, "z": 0.0, "n": 9}}
    write_results("alfworld_cpu", [run, later], tmp_path, [])
    text = (tmp_path / "alfworld.md").read_text()
    assert (
        "|  | sampo, seed 0 | grpo, seed 0 |\n|---|---|---|\n| nothing happens frac | 0.500 -> 0.125 | nan -> nan |"
        in text
    )
    assert "| score | nan -> nan | 0.250 -> 0.250, +0.000 (0.062) |" in text
    assert (
        "--config alfworld_cpu --methods sampo,grpo --seeds 0`" in text and "![held-out success](alfworld.png)" in text
    )


def test_runs_without_control_are_tabled_against_the_clone_alone(tmp_path: Path) -> None:
    run = _summary("sampo", 0, 0.7, 8.0)
    del run["control"], run["differences"]["after - control"]
    write_results("alfworld_cpu", [run], tmp_path, [])
    text = (tmp_path / "alfworld.md").read_text()
    assert "| sampo | 0 | 0.500 (0.600) | 0.700 (0.800) | +0.200 (0.025) | 5000 | 0.990 | 570 |" in text
    assert "| sampo | 1 | +0.200 | 1 of 1 |" in text and "more cloning" not in text.lower()
    assert "--config alfworld_cpu --methods sampo --seeds 0 --without-control`" in text


def test_page_says_when_the_result_does_not_hold() -> None:
    text = page(_summary("sampo", 1, 0.45, -2.0), Path("runs/x"))
    assert "does NOT hold" in text
    assert "holds" in page(_summary("sampo", 0, 0.7, 8.0), Path("runs/x"))


def test_unfiltered_method_gets_the_iterations_that_make_up_the_episodes() -> None:
    given = ["env_runners.groups_per_iteration=10", "env_runners.group_size=5"]
    assert iterations_of_equal_episodes("quickstart", {"episodes": 1020}, given) == 20


def test_readme_keeps_everything_but_the_old_results() -> None:
    page = README.read_text()
    runs = [_summary("sampo", 0, 0.7, 8.0), _summary("sampo", 1, 0.5, 0.1)]
    once = with_results(page, runs)
    assert "| sampo | 2 | 0.500 (0.600) | 0.600 (0.700) | 0.520 (0.620) | 5000 |" in once
    assert with_results(once, runs) == once
    assert once.startswith(page[:200]) and once.endswith(page[-200:])


def test_success_by_type_of_task_is_tabled_once_for_types_that_are_the_same_tasks(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    before = {
        f"task_type_{name}_sampled": value for name, value in (("level_1", 0.5), ("level_1_sums", 0.5), ("b", 0.1))
    }
    after = {name: value + 0.25 for name, value in before.items()} | {"task_type_b_n": 3.0}
    reports = {"before": {"by_task_type": before}, "after": {"by_task_type": after}}
    (folder / REPORTS).write_text(json.dumps(reports))
    run = _summary("sampo", 0, 0.7, 8.0) | {"by_task_type": _by_task_type(folder)}
    write_results("tir_math_cpu", [run], tmp_path, [])
    text = (tmp_path / "tir_math.md").read_text()
    assert "| level 1 | 0.500 -> 0.750 |\n| b | 0.100 -> 0.350 |\n" in text
    assert "sums" not in text
