"""The benchmark command: what it writes, and what it refuses. No test looks at a speed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from arlarena_rllib.diagnostics import update_tables
from arlarena_rllib.learner import torch_learner
from benchmarks import prefix_cache
from benchmarks.diagnostics import no_tables
from benchmarks.report import bars, figure, headline, table
from benchmarks.run import main


def test_update_benchmark_writes_ratios_settings_and_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["update", "--small", "--rounds", "1", "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "update.json").read_text())
    assert result["figure"].keys() == {"name", "value", "target", "better", "meets_target"}
    assert result["figure"]["value"] == result["ratio_cpu"]
    assert result["tokens_per_cpu_s"].keys() == {
        "minibatch steps",
        "scoring passes",
        "whole update",
        "plain PyTorch",
        "scoring without reference",
    }
    assert all(math.isfinite(v) and v > 0 for v in result["tokens_per_wall_s"].values())
    assert len(result["rounds"]) == len(result["ratio_cpu_of_rounds"]) == 1
    assert result["settings"]["rows"] > 0 and result["settings"]["micro_batches"] >= result["settings"]["minibatches"]
    assert {"cores", "cpu_model", "versions", "commit", "busy_before_percent"} <= result["machine"].keys()
    assert result["is_small"]
    assert "minibatch steps : plain PyTorch" in capsys.readouterr().out


def test_diagnostics_benchmark_compares_both_arms_and_puts_the_tables_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnostics", "--small", "--rounds", "2", "--out", str(tmp_path)]) == 0
    assert torch_learner.update_tables is update_tables
    result = json.loads((tmp_path / "diagnostics.json").read_text())
    assert result["figure"]["value"] == result["ratio_cpu"] and result["figure"]["better"] == "lower"
    cpu = [{arm: r[arm]["minibatch steps"]["cpu_s"] for arm in r} for r in result["rounds"]]
    assert [set(r) for r in cpu] == [{"with tables", "without tables"}] * 2
    assert result["ratio_cpu_of_rounds"] == pytest.approx([r["with tables"] / r["without tables"] for r in cpu])
    assert all(math.isfinite(ratio) and ratio > 0 for ratio in result["ratio_cpu_of_rounds"])
    assert result["settings"]["rows"] > 0 and result["settings"]["minibatches"] == 4
    assert "with tables : without tables" in capsys.readouterr().out


def test_learner_without_tables_collects_none() -> None:
    with no_tables():
        assert torch_learner.update_tables("anything", entropy_threshold=0.0) == {}
    assert torch_learner.update_tables is update_tables


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["updat"], "'updat' is not a benchmark. Nearest: 'update'."),
        (["update", "--rounds", "0"], "--rounds=0 must be at least 1"),
    ],
)
def test_run_with_a_wrong_argument_names_it(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_benchmark_refuses_a_cluster_that_runs_already(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert main(["memory"]) == 2
    assert "Unset RAY_ADDRESS" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "at_least", "verdict"), [(0.9, True, "meets"), (0.8, True, "MISSES"), (0.8, False, "meets")]
)
def test_headline_says_on_which_side_of_the_target_a_figure_is(value: float, at_least: bool, verdict: str) -> None:
    result = {"benchmark": "b", "figure": figure("ratio", value, target=0.85, at_least=at_least)}
    assert verdict in headline(result)


def test_tables_and_bars_align() -> None:
    lines = table(["name", "value"], [["a", 1.0], ["longer", 12345.6]]).splitlines()
    assert [line.split() for line in lines[2:]] == [["a", "1"], ["longer", "12346"]]
    assert bars({"half": 1.0, "other": 1.0}, unit="s").count("#" * 20 + " ") == 2


def test_prefix_cache_figure_is_the_median_ratio_of_engine_cpu_per_request() -> None:
    def arm(cpu: float, requests: int, cached: float) -> dict[str, float]:
        work = {"requests": requests, "response_tokens": 10, "prompt_tokens": 100, "cached_frac": cached}
        return work | {"engine_cpu_s": cpu, "wall_s": 1.0}

    rounds = [
        {prefix_cache.WITH: arm(1.0, 10, 0.5), prefix_cache.WITHOUT: arm(4.0, 20, 0.0)},
        {prefix_cache.WITH: arm(3.0, 10, 0.7), prefix_cache.WITHOUT: arm(4.0, 10, 0.0)},
        {prefix_cache.WITH: arm(9.0, 10, 0.6), prefix_cache.WITHOUT: arm(9.0, 10, 0.0)},
    ]
    result, text = prefix_cache._result(rounds)
    assert result["ratio_cpu_of_rounds"] == pytest.approx([0.5, 0.75, 1.0])
    assert result["figure"]["value"] == pytest.approx(0.75) and result["figure"]["meets_target"]
    assert result["cached_prompt_tokens_frac"] == 0.6
    assert "with cache" in text and "300" in text  # ms of CPU per request


def test_tracking_benchmark_times_every_hook_of_every_iteration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tracking", "--small", "--rounds", "1", "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "tracking.json").read_text())
    assert result["calls"]["MLflowTracker.on_trial_result"] == result["calls"]["ProgressDisplay.on_trial_result"] == 2
    assert result["figure"]["value"] == pytest.approx(sum(result["seconds"].values()) / result["iteration_s"])
    assert result["seconds"]["MLflowTracker.on_trial_result"] > 0
    assert "each with a checkpoint" in capsys.readouterr().out
