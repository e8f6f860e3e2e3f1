"""Fixtures for tracking: one MLflow database for all tests, each test in its own experiment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tune_experiments.tracking import MLflowTracker


@pytest.fixture(scope="session")
def mlflow_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the sqlite store; its first use makes the tables."""
    return tmp_path_factory.mktemp("mlflow")


@pytest.fixture
def new_tracker(
    mlflow_dir: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., MLflowTracker]:
    """Make a tracker in this test's experiment."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def make(**arguments: Any) -> MLflowTracker:
        return MLflowTracker(request.node.name, storage_dir=mlflow_dir, **arguments)

    return make
