"""The tracker without Tune: runs, repeated steps, resuming, and a store that fails or forgets."""

from __future__ import annotations

import json
import os
import pickle
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from mlflow.tracking import MlflowClient

from tune_experiments.mlflow_store import TrackingError, check_store, git_commit, public_uri, resolve_tracking_uri
from tune_experiments.tracking import MLflowTracker

Make = Callable[..., MLflowTracker]


def _client(tracker: MLflowTracker) -> MlflowClient:
    return MlflowClient(tracking_uri=tracker.tracking_uri)


def _history(tracker: MLflowTracker, key: str, trial_id: str | None = None) -> list[tuple[int, float]]:
    run_id = tracker.parent_run_id if trial_id is None else tracker.run_id(trial_id)
    return [(point.step, point.value) for point in _client(tracker).get_metric_history(run_id, key)]


def _status(tracker: MLflowTracker, trial_id: str | None = None) -> str:
    run_id = tracker.parent_run_id if trial_id is None else tracker.run_id(trial_id)
    return _client(tracker).get_run(run_id).info.status


def _result(step: int) -> dict[str, Any]:
    return {"training_iteration": step, "env_runners": {"success_rate": step / 10}}


def test_tracker_by_hand_logs_a_trial_with_artifacts_and_closes_both_runs(new_tracker: Make, tmp_path: Path) -> None:
    (tmp_path / "learning_curve.png").write_bytes(b"picture")
    tracker = new_tracker(
        run_name="first", resolved_config={"training": {"lr": 0.1}, "environment": {"env_config": {}}}
    )
    tracker.start_run("t1", name="sampo", params={"lr": 0.2, "seed": 7})
    assert (_status(tracker), _status(tracker, "t1")) == ("RUNNING", "RUNNING")
    assert all(tracker.log_result("t1", _result(step)) for step in (1, 2))
    tracker.end_run("t1", checkpoint_path="/somewhere/checkpoint_000001", folder=tmp_path)
    tracker.finish()

    run = _client(tracker).get_run(tracker.run_id("t1"))
    assert (run.info.run_name, run.info.status, _status(tracker)) == ("sampo", "FINISHED", "FINISHED")
    assert run.data.params == {"training.lr": "0.2", "environment.env_config": "{}", "trial.seed": "7"}
    assert run.data.tags["checkpoint_path"] == "/somewhere/checkpoint_000001"
    names = {artifact.path for artifact in _client(tracker).list_artifacts(run.info.run_id)}
    assert names == {"config.yaml", "learning_curve.png", "checkpoint.txt"}
    assert _history(tracker, "env_runners/success_rate", "t1") == [(1, 0.1), (2, 0.2)]


def test_tracker_log_result_of_a_repeated_step_is_skipped(new_tracker: Make) -> None:
    tracker = new_tracker()
    tracker.start_run("t1")
    assert [tracker.log_result("t1", _result(step)) for step in (1, 2, 2, 1, 3)] == [True, True, False, False, True]
    assert [step for step, _ in _history(tracker, "training_iteration", "t1")] == [1, 2, 3]
    tracker.finish()
    assert _status(tracker, "t1") == "FINISHED"


def test_tracker_unpickled_with_its_state_continues_parent_and_child(new_tracker: Make) -> None:
    tracker = new_tracker()
    at_start = pickle.dumps(tracker)
    tracker.start_run("t1")
    tracker.log_result("t1", _result(1))
    state = pickle.loads(pickle.dumps(tracker.get_state()))
    tracker.log_result("t1", _result(2))  # later than the stored state, as after a kill
    tracker.end_run("t1", "KILLED")
    tracker.finish("KILLED")

    restored = pickle.loads(at_start)
    restored.set_state(state)
    restored.setup()
    assert restored.start_run("t1") == tracker.run_id("t1")
    assert (_status(restored), _status(restored, "t1")) == ("RUNNING", "RUNNING")
    assert [restored.log_result("t1", _result(step)) for step in (2, 3)] == [False, True]
    assert restored.parent_run_id == tracker.parent_run_id


def test_tracker_resumed_by_name_finds_parent_and_child_and_a_new_one_does_not(new_tracker: Make) -> None:
    first = new_tracker(run_name="it's mine")
    child = first.start_run("t1")
    first.finish()
    resumed = new_tracker(run_name="it's mine", resume=True)
    assert resumed.parent_run_id == first.parent_run_id
    assert resumed.run_id("t1") == resumed.start_run("t1") == child
    assert new_tracker(run_name="it's mine").parent_run_id != first.parent_run_id
    assert new_tracker(run_name="other", resume=True).parent_run_id != first.parent_run_id


def test_tracker_whose_runs_were_deleted_makes_new_ones_and_says_so(
    new_tracker: Make, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = new_tracker()
    old_child, old_parent = tracker.start_run("t1"), tracker.parent_run_id
    tracker.end_run("t1")
    for run_id in (old_child, old_parent):
        _client(tracker).delete_run(run_id)
    tracker.setup()
    assert tracker.parent_run_id != old_parent
    assert tracker.start_run("t1") != old_child
    assert tracker.log_result("t1", _result(1))
    assert caplog.text.count("is gone; a new one is made") == 2


def test_tracker_log_phase_points_arrive_on_the_parent_after_flush(new_tracker: Make) -> None:
    tracker = new_tracker()
    for step in range(5):
        tracker.log_phase("cloning", {"loss": 1.0 / (step + 1), "note": "text"}, step)
    assert _history(tracker, "cloning/loss") == []
    copy = pickle.loads(pickle.dumps(tracker))
    copy.flush()
    tracker.flush()
    assert [step for step, _ in _history(tracker, "cloning/loss")] == [0, 1, 2, 3, 4]


def test_tracker_free_logging_reaches_the_parent_and_the_named_trial(new_tracker: Make, tmp_path: Path) -> None:
    tracker = new_tracker()
    tracker.start_run("t1")
    (tmp_path / "curve.png").write_bytes(b"picture")
    tracker.log_artifact(tmp_path / "curve.png", trial_id="t1", folder="pictures")
    tracker.log_dict({"after": {"sampled": 0.5}}, "report.json")
    tracker.log_metrics({"report": {"sampled": 0.5}}, step=3, trial_id="t1")
    tracker.set_tags({"note": "x" * 9000})
    assert [a.path for a in _client(tracker).list_artifacts(tracker.run_id("t1"), "pictures")] == ["pictures/curve.png"]
    report = _client(tracker).download_artifacts(tracker.parent_run_id, "report.json", str(tmp_path))
    assert json.loads(Path(report).read_text()) == {"after": {"sampled": 0.5}}
    assert _history(tracker, "report/sampled", "t1") == [(3, 0.5)]
    assert len(_client(tracker).get_run(tracker.parent_run_id).data.tags["note"]) == 8000


def test_tracker_restarted_with_another_value_keeps_the_first_and_warns(
    new_tracker: Make, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = new_tracker()
    tracker.start_run("t1", config={"training": {"lr": 0.1}})
    tracker.start_run("t1", config={"training": {"lr": 0.3, "seed": 1}})
    params = _client(tracker).get_run(tracker.run_id("t1")).data.params
    assert params == {"training.lr": "0.1", "training.seed": "1"}
    assert "keeps parameter training.lr=0.1; it now runs with 0.3" in caplog.text


@contextmanager
def _broken_store(tracker: MLflowTracker) -> Iterator[None]:
    """Take the table of the metrics away for a while."""
    with closing(sqlite3.connect(tracker.tracking_uri.removeprefix("sqlite:///"))) as database:
        database.execute("ALTER TABLE metrics RENAME TO metrics_away")
        try:
            yield
        finally:
            database.execute("ALTER TABLE metrics_away RENAME TO metrics")


def test_tracker_while_the_store_fails_warns_and_sends_the_points_later(
    new_tracker: Make, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = new_tracker()
    tracker.start_run("t1")
    assert tracker.log_result("t1", _result(1))
    with _broken_store(tracker):
        assert tracker.log_result("t1", _result(2))
        assert "no such table: metrics" in caplog.text
    assert tracker.log_result("t1", _result(3))
    assert _history(tracker, "env_runners/success_rate", "t1") == [(1, 0.1), (2, 0.2), (3, 0.3)]


@pytest.mark.parametrize(
    ("error", "status"), [(None, "FINISHED"), (ValueError, "FAILED"), (KeyboardInterrupt, "KILLED")]
)
def test_tracker_as_context_closes_the_parent_by_how_the_block_ends(
    new_tracker: Make, error: type[BaseException] | None, status: str
) -> None:
    tracker = new_tracker()
    try:
        with tracker:
            tracker.start_run("t1")
            if error is not None:
                raise error("on purpose")
    except (ValueError, KeyboardInterrupt):
        pass
    assert (_status(tracker), _status(tracker, "t1")) == (status, status)


def test_tracker_with_a_wrong_status_trial_or_store_names_what_is_allowed(new_tracker: Make, tmp_path: Path) -> None:
    tracker = new_tracker()
    with pytest.raises(TrackingError, match=r"status='DONE' does not end a run. Allowed: FINISHED, FAILED, KILLED"):
        tracker.finish("DONE")
    with pytest.raises(TrackingError, match=r"trial_id='t9' has no run .* Call start_run first"):
        tracker.log_result("t9", _result(1))
    with pytest.raises(TrackingError, match=r"tracking_uri='file:.*Allowed for MLFLOW_TRACKING_URI: sqlite:///"):
        MLflowTracker("x", tracking_uri=(tmp_path / "files").as_uri())
    _client(tracker).delete_experiment(tracker.experiment_id)
    with pytest.raises(TrackingError, match=r"was deleted .*mlflow experiments restore"):
        new_tracker()


def test_tracking_uri_comes_from_argument_then_variable_then_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert resolve_tracking_uri(None, "runs") == f"sqlite:///{tmp_path}/runs/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://server:5000")
    assert resolve_tracking_uri(None, "runs") == "http://server:5000"
    assert resolve_tracking_uri("sqlite:///mine.db", "runs") == f"sqlite:///{tmp_path}/mine.db"


def test_store_made_by_several_processes_at_once_is_whole_and_has_one_experiment(tmp_path: Path) -> None:
    uri = resolve_tracking_uri(f"sqlite:///{tmp_path}/new/mlflow.db", tmp_path)
    code = (
        "import sys; from tune_experiments.mlflow_store import RunStore; print(RunStore(*sys.argv[1:]).experiment_id)"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, uri, "shared"], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    ids = [process.communicate()[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert len(set(ids)) == 1 and ids[0]


def test_public_uri_hides_name_and_password() -> None:
    assert public_uri("https://me:secret@server:5000/x") == "https://server:5000/x"
    assert public_uri("sqlite:////data/a@b/mlflow.db") == "sqlite:////data/a@b/mlflow.db"


def test_git_commit_of_a_tracked_file_is_the_checkout_and_else_none(tmp_path: Path) -> None:
    file = tmp_path / "tracked.py"
    file.touch()
    assert git_commit(file) is None
    identity = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    for command in (["init", "-q"], ["add", "tracked.py"], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True, env={**os.environ, **identity})
    commit = git_commit(file)
    assert commit is not None and len(commit) == 40
    (tmp_path / "untracked.py").touch()
    assert git_commit(tmp_path / "untracked.py") is None


def test_password_of_an_unreachable_store_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(TrackingError) as caught:
        check_store("http://user:secret@127.0.0.1:1", "e")
    assert "secret" not in str(caught.value) and "127.0.0.1:1" in str(caught.value)
