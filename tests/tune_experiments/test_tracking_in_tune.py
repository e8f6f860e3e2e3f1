"""Tune and MLflow together: nested runs, statuses, and the same run after a failure and after a killed driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
from mlflow.tracking import MlflowClient
from ray import tune
from tune_cases import RUN, Counter, counter_tuner

from tune_experiments.tracking import LINK_FILE, MLflowTracker


def _runs(tracker: MLflowTracker) -> tuple[Any, dict[str, Any]]:
    """Return the parent run and the children by trial id; every other run is an error."""
    client = MlflowClient(tracking_uri=tracker.tracking_uri)
    runs = client.search_runs([tracker.experiment_id])
    children = [r for r in runs if r.data.tags.get("mlflow.parentRunId") == tracker.parent_run_id]
    (parent,) = [r for r in runs if r.info.run_id == tracker.parent_run_id]
    assert len(runs) == len(children) + 1
    by_trial = {r.data.tags["trial_id"]: r for r in children}
    assert len(by_trial) == len(children)
    return parent, by_trial


def _steps(tracker: MLflowTracker, run: Any, key: str) -> list[tuple[int, float]]:
    history = MlflowClient(tracking_uri=tracker.tracking_uri).get_metric_history(run.info.run_id, key)
    return [(point.step, round(point.value, 4)) for point in history]


def _artifact(tracker: MLflowTracker, run: Any, name: str, folder: Path) -> str:
    client = MlflowClient(tracking_uri=tracker.tracking_uri)
    return Path(client.download_artifacts(run.info.run_id, name, str(folder))).read_text()


def test_tracker_with_a_failing_trial_and_restore_continues_the_same_runs(
    ray_cluster: None, new_tracker: Callable[..., MLflowTracker], tmp_path: Path
) -> None:
    (tmp_path / "broken").touch()
    tracker = new_tracker(
        resolved_config={"training": {"lr": 0.1, "fail_at": -1}}, panel_hash="abc", tags={"who": "me"}
    )
    counter_tuner(tmp_path, [tracker], fail_at=tune.grid_search([0, 3])).fit()

    parent, children = _runs(tracker)
    assert parent.info.status == "FAILED"
    assert parent.data.tags["panel_hash"] == "abc"
    assert parent.data.params == {"training.lr": "0.1", "training.fail_at": "-1"}
    good, failed = sorted(children.values(), key=lambda run: run.data.params["training.fail_at"])
    assert (good.info.status, failed.info.status) == ("FINISHED", "FAILED")
    assert good.data.params == {"training.lr": "0.1", "training.fail_at": "0"}
    assert (good.data.tags["panel_hash"], good.data.tags["who"]) == ("abc", "me")
    assert _steps(tracker, good, "env_runners/success_rate") == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)]
    assert _steps(tracker, good, "learners/default_policy/bad_name") == [(i, 1.0) for i in range(1, 5)]
    assert {"pid", "timestamp", "done", "evaluation/env_runners/sampled"} & set(good.data.metrics) == set()
    assert _steps(tracker, failed, "training_iteration") == [(1, 1.0), (2, 2.0)]
    assert "broken on purpose in iteration 3" in _artifact(tracker, failed, "error.txt", tmp_path)
    assert "fail_at: 0" in _artifact(tracker, good, "config.yaml", tmp_path)
    _check_checkpoint_links(tracker, good, tmp_path)

    (tmp_path / "broken").unlink()
    tune.Tuner.restore(str(tmp_path / RUN), trainable=Counter, resume_errored=True).fit()

    parent_after, children_after = _runs(tracker)
    assert parent_after.info.status == "FINISHED"
    assert {t: r.info.run_id for t, r in children_after.items()} == {t: r.info.run_id for t, r in children.items()}
    assert [r.info.status for r in children_after.values()] == ["FINISHED", "FINISHED"]
    assert _steps(tracker, failed, "training_iteration") == [(i, float(i)) for i in range(1, 5)]
    assert _steps(tracker, good, "training_iteration") == [(i, float(i)) for i in range(1, 5)]


def _check_checkpoint_links(tracker: MLflowTracker, run: Any, tmp_path: Path) -> None:
    links = sorted((tmp_path / RUN).glob(f"*{run.data.tags['trial_id']}*/checkpoint_*/{LINK_FILE}"))
    assert len(links) == 2  # after iterations 2 and 4
    link = json.loads(links[-1].read_text())
    assert link["run_id"] == run.info.run_id
    assert link["tracking_uri"] == tracker.tracking_uri
    assert run.data.tags["checkpoint_path"] == str(links[-1].parent)


def test_tracker_after_a_killed_driver_continues_the_run_without_repeated_steps(
    ray_cluster: None, new_tracker: Callable[..., MLflowTracker], mlflow_dir: Path, tmp_path: Path, request: Any
) -> None:
    new_tracker().finish()  # the tables exist; the driver below makes the run that counts
    _kill_driver_in_iteration(4, tmp_path, mlflow_dir, request.node.name)
    tracker = new_tracker(resume=True)
    (before,) = _runs_of_parent(tracker)
    logged = _steps(tracker, before, "training_iteration")
    assert len(logged) >= 4
    assert before.info.status == "RUNNING"

    results = tune.Tuner.restore(str(tmp_path / RUN), trainable=Counter, resume_unfinished=True).fit()

    assert not results.errors
    (after,) = _runs_of_parent(tracker)
    assert after.info.run_id == before.info.run_id == tracker.run_id(after.data.tags["trial_id"])
    assert after.info.status == "FINISHED"
    assert _steps(tracker, after, "training_iteration") == [(i, float(i)) for i in range(1, 9)]


def _runs_of_parent(tracker: MLflowTracker) -> list[Any]:
    query = f"tags.`mlflow.parentRunId` = '{tracker.parent_run_id}'"
    return list(MlflowClient(tracking_uri=tracker.tracking_uri).search_runs([tracker.experiment_id], query))


def _kill_driver_in_iteration(iteration: int, storage: Path, mlflow_dir: Path, experiment: str) -> None:
    environment = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    command = [
        sys.executable,
        str(Path(__file__).with_name("tune_cases.py")),
        str(storage),
        str(mlflow_dir),
        experiment,
    ]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert driver.stdout is not None and driver.stderr is not None
    try:
        for line in driver.stdout:
            if line.startswith(f"iteration {iteration}/8"):
                break
        else:
            pytest.fail(f"the driver ended before iteration {iteration}: {driver.stderr.read()}")
    finally:
        driver.kill()
        driver.wait()
        driver.stdout.close()
        driver.stderr.close()
