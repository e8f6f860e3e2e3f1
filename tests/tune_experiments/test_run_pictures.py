"""The pictures at the end of a run: of the whole one and of an interrupted one, in the folder and in MLflow."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow.tracking import MlflowClient

from arlarena_rllib import ARLArenaConfig
from tune_experiments import plots
from tune_experiments.prepare import Start
from tune_experiments.tracking import MLflowTracker
from tune_experiments.train import TrainOutcome, _draw

Make = Callable[..., MLflowTracker]


def _results(iterations: int, *, collapse_at: int) -> list[dict[str, Any]]:
    """Nested results whose share of valid turns falls at an iteration."""
    return [
        {
            "training_iteration": i,
            "date": "bookkeeping",
            "env_runners": {"success_rate": 0.4, "format_valid_frac": 0.9 if i < collapse_at else 0.3},
            "learners": {"default_policy": {"grad_norm": 1.0, "approx_kl_k3": float("nan")}},
        }
        for i in range(1, iterations + 1)
    ]


def _size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


@pytest.mark.parametrize(
    ("thresholds", "limit"), [({}, 0.8), ({"format_drop": 0.5}, 0.4), ({"format_drop": 0.7}, None)]
)
def test_collapse_page_is_drawn_from_flat_numbers_and_the_alarm_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thresholds: dict[str, float], limit: float | None
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(plots, "collapse_page", lambda path, *given, title: drawn.append((path, *given, title)))
    results = _results(8, collapse_at=5)
    plots.run_collapse_page(tmp_path / "c.png", results, thresholds=thresholds, method="sampo", panel_hash="abc")
    ((path, history, report, title),) = drawn
    assert path == tmp_path / "c.png" and "sampo" in title and "abc" in title
    assert history[4] == {
        "training_iteration": 5.0,
        "env_runners/success_rate": 0.4,
        "env_runners/format_valid_frac": 0.3,
        "learners/default_policy/grad_norm": 1.0,
    }
    assert report.iteration == 8
    first = report.first and (report.first.name, report.first.iteration, round(report.first.limit, 9))
    assert first == (limit and ("format", 5, limit))


def test_collapse_page_of_nothing_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="history is empty"):
        plots.run_collapse_page(tmp_path / "x.png", [], thresholds={})


@pytest.mark.parametrize("interrupted", [False, True])
def test_pictures_are_in_the_folder_and_in_the_run_of_the_trial(
    new_tracker: Make, tmp_path: Path, interrupted: bool
) -> None:
    tracker = new_tracker()
    tracker.start_run("t1")
    if interrupted:
        tracker.end_run("t1", "KILLED")
        tracker.finish("KILLED")
    outcome = TrainOutcome(
        folder=tmp_path / "run",
        start=Start(tmp_path, None, None),
        final=tmp_path,
        results=_results(3, collapse_at=3),
        panel_hash="abc",
        tracker=tracker,
        trial_id="t1",
        training_cpu_seconds=1.0,
        interrupted=interrupted,
    )
    _draw(outcome, ARLArenaConfig().training(method="sampo").reporting(alarm_thresholds={"format_drop": 0.7}))
    assert _size(tmp_path / "run" / "learning_curve.png") == (1200, 700)
    assert _size(tmp_path / "run" / "collapse.png") == (1500, 1200)
    client = MlflowClient(tracking_uri=tracker.tracking_uri)
    stored = {artifact.path for artifact in client.list_artifacts(tracker.run_id("t1"))}
    assert {"learning_curve.png", "collapse.png"} <= stored
    assert client.get_run(tracker.run_id("t1")).info.status == ("KILLED" if interrupted else "RUNNING")
