"""Ray's log lines: one line instead of a traceback every second, nothing that the command says better itself."""

from __future__ import annotations

import logging

import pytest

from tune_experiments.ray_logs import shorten_ray_logs


@pytest.fixture(autouse=True)
def _heard(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Ray's loggers hand nothing on to where caplog listens, and other tests make them silent."""
    for name in ("ray", "ray.tune", "ray.train"):
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
    for name in ("ray.tune.tune", "ray.train._internal.syncer"):
        caplog.set_level(logging.INFO, logger=name)
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
    shorten_ray_logs()
    shorten_ray_logs()


def test_sync_error_is_one_line_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("ray.train._internal.syncer")
    for _ in range(3):
        logger.error("Caught sync error: Sync process failed\n  File 'a.py'\nOSError: No space left")
    assert [record.getMessage() for record in caplog.records] == [
        "Caught sync error: Sync process failed OSError: No space left"
    ]


def test_only_what_the_command_tells_itself_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("ray.tune.tune")
    logger.warning("Experiment has been interrupted, but the most recent state was saved.")
    logger.warning("Experiment has another trouble.")
    assert [record.getMessage() for record in caplog.records] == ["Experiment has another trouble."]
    assert len([known for known in logger.filters if type(known).__name__ == "Unneeded"]) == 1
