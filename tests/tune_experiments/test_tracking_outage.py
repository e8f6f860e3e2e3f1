"""A real MLflow server, or its database, goes away during a run: the training goes on and all is there once in the end."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from tune_experiments.cli import main
from tune_experiments.mlflow_store import TrackingError
from tune_experiments.tracking import MLflowTracker
from tune_experiments.undelivered import FOLDER

QUICK_S = 5.0
RESULTS = """
import os, signal, sys
from tune_experiments.tracking import MLflowTracker
storage, uri, steps = sys.argv[1], sys.argv[2], map(int, sys.argv[3:])
tracker = MLflowTracker("killed", storage_dir=storage, tracking_uri=uri, store_required=False, resume=True)
tracker.start_run("t1", name="late", config={"training": {"lr": 0.1}})
for step in steps:
    tracker.log_result("t1", {"training_iteration": step, "env_runners": {"success_rate": step / 10}})
os.kill(os.getpid(), signal.SIGKILL)
"""


class Server:
    """`mlflow server` on a port of its own; its store stays when it stops."""

    def __init__(self, folder: Path) -> None:
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.uri, self._folder = f"http://127.0.0.1:{self._port}", folder
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        """Return when it answers."""
        store = ["--backend-store-uri", f"sqlite:///{self._folder}/server.db"]
        artifacts = ["--artifacts-destination", str(self._folder / "artifacts")]
        where = ["--host", "127.0.0.1", "--port", str(self._port), "--workers", "1"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", *store, *artifacts, *where],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            start_new_session=True,
        )
        for _ in range(1200):
            try:
                with urllib.request.urlopen(f"{self.uri}/health", timeout=1):
                    return
            except (urllib.error.URLError, OSError):
                assert self._process.poll() is None
                time.sleep(0.1)
        pytest.fail("the server did not answer")

    def signal(self, number: int) -> None:
        """Send a signal to it and its workers."""
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def stop(self) -> None:
        """End it with its workers; the next request is refused."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server and store for all tests; a test begins with :meth:`Server.start` where it was stopped."""
    server = Server(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.stop()


def _log(tracker: MLflowTracker, trial_id: str, *steps: int) -> None:
    """Log iterations; none may take long."""
    for step in steps:
        began = time.monotonic()
        assert tracker.log_result(trial_id, {"training_iteration": step, "env_runners": {"success_rate": step / 10}})
        assert time.monotonic() - began < QUICK_S


def _points(uri: str, run_id: str, metric: str = "env_runners/success_rate") -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in MlflowClient(uri).get_metric_history(run_id, metric)]


def _runs(uri: str, experiment: str) -> list[Any]:
    """Return the runs of an experiment, oldest first."""
    client = MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return list(reversed(client.search_runs([found.experiment_id])))


def _journals(storage: Path) -> list[Path]:
    return list((storage / FOLDER).glob("*"))


def test_server_that_comes_back_during_the_run_gets_every_write_once(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "curve.png").write_bytes(b"picture")
    tracker = MLflowTracker("back", storage_dir=tmp_path, tracking_uri=server.uri)
    first = tracker.start_run("t1")
    _log(tracker, "t1", 1, 2)
    server.stop()
    _log(tracker, "t1", 3, 4)
    second = tracker.start_run("t2", name="late", config={"training": {"lr": 0.1}})  # cannot be made now
    _log(tracker, "t2", 1)
    tracker.log_artifact(tmp_path / "curve.png", trial_id="t2")
    tracker.end_run("t1", checkpoint_path="/somewhere/checkpoint_000003")
    assert second.startswith("local-")
    assert len(_journals(tmp_path)) == 1
    assert main(["deliver", str(tmp_path)]) == 0  # the run goes on: its file is its own
    assert "still go on" in capsys.readouterr().out

    server.start()
    _log(tracker, "t2", 2)
    assert _journals(tmp_path) == []
    assert _points(server.uri, first) == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)]
    parent, one, two = _runs(server.uri, "back")
    assert (parent.info.run_id, one.info.run_id, two.info.run_id) == (
        tracker.parent_run_id,
        first,
        tracker.run_id("t2"),
    )
    assert (parent.info.status, one.info.status, two.info.status) == ("RUNNING", "FINISHED", "RUNNING")
    assert one.data.tags["checkpoint_path"] == "/somewhere/checkpoint_000003"
    assert (two.info.run_name, two.data.params) == ("late", {"training.lr": "0.1"})
    assert two.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert _points(server.uri, two.info.run_id) == [(1, 0.1), (2, 0.2)]
    assert {item.path for item in MlflowClient(server.uri).list_artifacts(two.info.run_id)} == {
        "config.yaml",
        "curve.png",
    }
    assert (
        one.info.end_time
        < MlflowClient(server.uri).get_metric_history(two.info.run_id, "training_iteration")[1].timestamp
    )
    tracker.finish()


def test_server_that_stays_away_gets_the_rest_from_the_command(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = MLflowTracker("away", storage_dir=tmp_path, tracking_uri=server.uri)
    run_id = tracker.start_run("t1")
    _log(tracker, "t1", 1)
    server.stop()
    _log(tracker, "t1", 2, 3)
    tracker.end_run("t1")
    tracker.finish()
    assert f"`arlarena deliver {tmp_path}`" in caplog.text
    tracker._delivery._journal.close()  # as the end of the process does

    assert main(["deliver", str(tmp_path)]) == 1
    assert "4 still wait" in capsys.readouterr().out
    server.start()
    assert main(["deliver", str(tmp_path)]) == 0
    assert f"4 writes delivered to {server.uri}, experiment 'away'" in capsys.readouterr().out
    assert _points(server.uri, run_id) == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert [run.info.status for run in _runs(server.uri, "away")] == ["FINISHED", "FINISHED"]
    assert _journals(tmp_path) == []
    assert main(["deliver", str(tmp_path)]) == 0
    assert "nothing waits" in capsys.readouterr().out
    assert main(["deliver", str(tmp_path / "nowhere")]) == 2


def test_driver_killed_during_the_outage_loses_nothing_and_a_repeated_iteration_is_there_once(
    server: Server, tmp_path: Path
) -> None:
    server.stop()
    command = [sys.executable, "-c", RESULTS, str(tmp_path), server.uri]
    assert subprocess.run([*command, "1", "2", "3"], check=False).returncode == -signal.SIGKILL
    (journal,) = _journals(tmp_path)
    with journal.open("a") as out:
        out.write('{"op": "metrics", "run": "cut o')
    assert subprocess.run([*command, "3", "4"], check=False).returncode == -signal.SIGKILL  # resumed, 3 done again
    server.start()

    tracker = MLflowTracker("killed", storage_dir=tmp_path, tracking_uri=server.uri, resume=True)
    parent, child = _runs(server.uri, "killed")
    assert (tracker.parent_run_id, tracker.run_id("t1")) == (parent.info.run_id, child.info.run_id)
    tracker.start_run("t1")
    assert not tracker.log_result("t1", {"training_iteration": 4})
    _log(tracker, "t1", 5)
    assert _points(server.uri, child.info.run_id) == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4), (5, 0.5)]
    assert (child.info.run_name, child.data.params) == ("late", {"training.lr": "0.1"})
    assert _journals(tmp_path) == []


def test_server_that_hangs_costs_one_wait_and_gets_every_write_once(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    tracker = MLflowTracker("hangs", storage_dir=tmp_path, tracking_uri=server.uri)
    run_id = tracker.start_run("t1")
    server.signal(signal.SIGSTOP)
    began = time.monotonic()
    _log(tracker, "t1", 1)
    _log(tracker, "t1", *range(2, 20))
    assert time.monotonic() - began < QUICK_S
    server.signal(signal.SIGCONT)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
    tracker.finish()
    assert _points(server.uri, run_id) == [(step, step / 10) for step in range(1, 20)]
    assert _journals(tmp_path) == []


def test_server_that_is_away_at_the_start_is_an_error_that_names_it(tmp_path: Path) -> None:
    nowhere = Server(tmp_path).uri
    began = time.monotonic()
    with pytest.raises(TrackingError, match=f"tracking_uri='{nowhere}' cannot be used"):
        MLflowTracker("early", storage_dir=tmp_path, tracking_uri=nowhere)
    assert time.monotonic() - began < QUICK_S


def test_database_that_cannot_be_written_for_a_while_gets_every_write_once(tmp_path: Path) -> None:
    tracker = MLflowTracker("readonly", storage_dir=tmp_path)
    run_id = tracker.start_run("t1")
    _log(tracker, "t1", 1)
    blocked = tmp_path / "mlflow.db-journal"  # where sqlite must write first; permissions would not stop root
    blocked.mkdir()
    (blocked / "x").touch()
    _log(tracker, "t1", 2, 3)
    tracker.end_run("t1")
    with pytest.raises(TrackingError, match=r"does not take a run|cannot be used"):
        MLflowTracker("readonly", storage_dir=tmp_path)
    (blocked / "x").unlink()
    blocked.rmdir()
    tracker.finish()
    assert _points(tracker.tracking_uri, run_id) == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert [run.info.status for run in _runs(tracker.tracking_uri, "readonly")] == ["FINISHED", "FINISHED"]
    assert _journals(tmp_path) == []
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_writes_whose_answer_is_lost_have_their_effect_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = MLflowTracker("lost", storage_dir=tmp_path)
    client = tracker._delivery.store().client
    for name in ("create_run", "log_batch"):
        _lose_one_answer(monkeypatch, client, name)
    assert tracker.start_run("t1").startswith("local-")
    _log(tracker, "t1", 1)
    _lose_one_answer(monkeypatch, client, "log_batch")
    _log(tracker, "t1", 2, 3)
    _lose_one_answer(monkeypatch, client, "log_batch")
    tracker.log_metrics({"report": {"sampled": 0.5}}, step=3, trial_id="t1")
    tracker.finish()
    _, child = _runs(tracker.tracking_uri, "lost")
    assert _points(tracker.tracking_uri, child.info.run_id, "report/sampled") == [(3, 0.5)]
    assert _points(tracker.tracking_uri, child.info.run_id) == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert (child.info.run_id, child.info.status) == (tracker.run_id("t1"), "FINISHED")


def _lose_one_answer(monkeypatch: pytest.MonkeyPatch, client: MlflowClient, name: str) -> None:
    """Let the next call of a method of ``client`` do its work and fail."""
    method = getattr(client, name)

    def lose(*arguments: Any, **keywords: Any) -> None:
        monkeypatch.setattr(client, name, method)
        method(*arguments, **keywords)
        raise MlflowException("connection reset by peer")

    monkeypatch.setattr(client, name, lose)


def test_artifacts_that_cannot_be_stored_do_not_hold_up_the_metrics(tmp_path: Path) -> None:
    (tmp_path / "curve.png").write_bytes(b"picture")
    (tmp_path / "mlflow_artifacts").write_text("a file where a folder must be")
    tracker = MLflowTracker("no_room", storage_dir=tmp_path)
    run_id = tracker.start_run("t1")
    tracker.log_artifact(tmp_path / "curve.png", trial_id="t1")
    _log(tracker, "t1", 1, 2)
    assert _points(tracker.tracking_uri, run_id) == [(1, 0.1), (2, 0.2)]
    assert len(_journals(tmp_path)) == 1
    (tmp_path / "mlflow_artifacts").unlink()
    tracker.finish()
    assert [item.path for item in MlflowClient(tracker.tracking_uri).list_artifacts(run_id)] == ["curve.png"]
    assert _journals(tmp_path) == []
