"""One MLflow experiment through ``MlflowClient`` only: opens it, makes and finds runs, writes batches; no global state."""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from filelock import FileLock

from arlarena_rllib.errors import ArenaError

logger = logging.getLogger(__name__)

PARENT_TAG, TRIAL_TAG, COMMIT_TAG = "mlflow.parentRunId", "trial_id", "mlflow.source.git.commit"
STEP_METRIC = "training_iteration"
MAX_METRICS_PER_CALL, MAX_PARAMS_PER_CALL, MAX_TAG_LENGTH = 1000, 100, 8000
MAX_UNSENT_POINTS = 200_000
LOCK_TIMEOUT_S = 300.0
_SQLITE = "sqlite:///"
_QUIET = {
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # The defaults (7 retries, 120 s each) would stop a training for many minutes when the server is away.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}


class TrackingError(ArenaError, RuntimeError):
    """The MLflow store cannot be opened, or a run or status that was named does not exist."""


def resolve_tracking_uri(tracking_uri: str | None, storage_dir: str | Path) -> str:
    """Return ``tracking_uri``, else ``$MLFLOW_TRACKING_URI``, else a sqlite file in ``storage_dir``; paths absolute."""
    uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or f"{_SQLITE}{Path(storage_dir).resolve()}/mlflow.db"
    return f"{_SQLITE}{Path(uri.removeprefix(_SQLITE)).resolve()}" if uri.startswith(_SQLITE) else uri


def check_store(tracking_uri: str, experiment_name: str) -> None:
    """Raise :class:`TrackingError` when a server or database cannot be reached; a file is made when it is needed."""
    if not tracking_uri.startswith(_SQLITE):
        RunStore(tracking_uri, experiment_name)


def public_uri(uri: str) -> str:
    """Return ``uri`` without user name and password."""
    parts = urlsplit(uri)
    if "@" not in parts.netloc:
        return uri
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def git_commit(file: Path) -> str | None:
    """Return the checked-out commit when ``file`` is tracked by git, else None (no git, no checkout, no commit)."""
    commands = (["ls-files", "--error-unmatch", file.name], ["rev-parse", "HEAD"])
    try:
        outputs = [
            subprocess.run(
                ["git", "-C", str(file.parent), *args], capture_output=True, text=True, timeout=10, check=True
            )
            for args in commands
        ]
    except (OSError, subprocess.SubprocessError):
        return None
    return outputs[-1].stdout.strip() or None


class RunStore:
    """The runs of one experiment in one MLflow store.

    Raises:
        TrackingError: the store cannot be opened, or the experiment was deleted there.
    """

    def __init__(self, tracking_uri: str, experiment_name: str) -> None:
        for key, value in _QUIET.items():
            os.environ.setdefault(key, value)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
        self.tracking_uri = tracking_uri
        began = time.monotonic()
        is_new = tracking_uri.startswith(_SQLITE) and not Path(tracking_uri.removeprefix(_SQLITE)).exists()
        logger.info("opening MLflow store %s%s", public_uri(tracking_uri), " (new: a few seconds)" if is_new else "")
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        self._failure: type[Exception] = MlflowException
        try:
            with _alone(tracking_uri):
                self.client = MlflowClient(tracking_uri=tracking_uri)
                self.experiment_id = self._open_experiment(experiment_name)
        except MlflowException as error:
            raise TrackingError(
                f"tracking_uri={public_uri(tracking_uri)!r} cannot be used: {error} "
                "Allowed: sqlite:///<absolute path>/mlflow.db, another database URI, or http(s)://<MLflow server>."
            ) from error
        self._unsent: dict[str, list[Any]] = {}
        logger.info("MLflow store open after %.1f s, experiment %r", time.monotonic() - began, experiment_name)

    def _open_experiment(self, name: str) -> str:
        found = self.client.get_experiment_by_name(name)
        if found is None:
            try:
                return self.client.create_experiment(name, artifact_location=self._artifact_location())
            except self._failure:  # made by another process in between
                found = self.client.get_experiment_by_name(name)
                if found is None:
                    raise
        if found.lifecycle_stage == "deleted":
            raise TrackingError(
                f"MLflow experiment {name!r} was deleted in {public_uri(self.tracking_uri)}. "
                f"Restore it (mlflow experiments restore --experiment-id {found.experiment_id}) or use another name."
            )
        return found.experiment_id

    def _artifact_location(self) -> str | None:
        if not self.tracking_uri.startswith(_SQLITE):
            return None  # the server decides
        return (Path(self.tracking_uri.removeprefix(_SQLITE)).parent / "mlflow_artifacts").as_uri()

    # --- runs ----------------------------------------------------------------------------------------------------

    def create_run(self, name: str, tags: Mapping[str, str]) -> str:
        """Start a run (status RUNNING) and return its id."""
        tags = {key: str(value)[:MAX_TAG_LENGTH] for key, value in tags.items()}
        return self.client.create_run(self.experiment_id, run_name=name, tags=tags).info.run_id

    def find_child(self, parent_run_id: str, trial_id: str) -> str | None:
        """Return the newest child of ``parent_run_id`` for ``trial_id``, or None."""
        return self._newest(f"tags.`{PARENT_TAG}` = '{parent_run_id}' AND tags.{TRIAL_TAG} = {_quoted(trial_id)}")

    def find_parent(self, name: str) -> str | None:
        """Return the newest run called ``name`` that is nobody's child, or None."""
        for run in self._search(f"attributes.run_name = {_quoted(name)}", 100):
            if PARENT_TAG not in run.data.tags:
                return run.info.run_id
        return None

    def _newest(self, query: str) -> str | None:
        return next((run.info.run_id for run in self._search(query, 1)), None)

    def _search(self, query: str, count: int) -> Sequence[Any]:
        return self.client.search_runs([self.experiment_id], query, max_results=count, order_by=["start_time DESC"])

    def exists(self, run_id: str) -> bool:
        """Say whether the store still has this run, not deleted."""
        try:
            return self.client.get_run(run_id).info.lifecycle_stage == "active"
        except self._failure as error:
            if getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise

    def last_step(self, run_id: str) -> int:
        """Return the highest training iteration that the run has, -1 without any."""
        return max((point.step for point in self.client.get_metric_history(run_id, STEP_METRIC)), default=-1)

    def set_status(self, run_id: str, status: str) -> None:
        """Reopen the run (RUNNING) or close it (FINISHED, FAILED, KILLED)."""
        if status == "RUNNING":
            self.client.update_run(run_id, status=status)
        else:
            self.client.set_terminated(run_id, status)

    # --- what a run holds ----------------------------------------------------------------------------------------

    def log_metrics(self, run_id: str, points: Sequence[tuple[str, float, int]]) -> None:
        """Write ``(name, value, step)`` points in one call; what a failing store refuses is sent with the next call."""
        from mlflow.entities import Metric

        now_ms = int(time.time() * 1000)
        waiting = self._unsent.pop(run_id, [])
        waiting += [Metric(name, value, now_ms, step) for name, value, step in points]
        for first in range(0, len(waiting), MAX_METRICS_PER_CALL):
            try:
                self.client.log_batch(run_id, metrics=waiting[first : first + MAX_METRICS_PER_CALL])
            except self._failure as error:
                if getattr(error, "error_code", "") == "INVALID_PARAMETER_VALUE":  # it would be refused again
                    logger.warning("MLflow refused metric points of run %s: %s They are dropped.", run_id, error)
                    continue
                kept = self._unsent[run_id] = waiting[first:][-MAX_UNSENT_POINTS:]
                logger.warning("MLflow did not take %d points of run %s: %s Sent next time.", len(kept), run_id, error)
                return

    def log_params(self, run_id: str, params: Mapping[str, str]) -> None:
        """Write parameters that the run does not have; one that it has with another value stays, with a warning."""
        from mlflow.entities import Param

        known = self.client.get_run(run_id).data.params
        for key in known.keys() & params.keys():
            if known[key] != params[key]:
                logger.warning(
                    "MLflow run %s keeps parameter %s=%s; it now runs with %s.", run_id, key, known[key], params[key]
                )
        new = [Param(key, value) for key, value in params.items() if key not in known]
        for first in range(0, len(new), MAX_PARAMS_PER_CALL):
            self.client.log_batch(run_id, params=new[first : first + MAX_PARAMS_PER_CALL])

    def set_tags(self, run_id: str, tags: Mapping[str, Any]) -> None:
        """Set tags in one call; values are cut to MLflow's limit."""
        from mlflow.entities import RunTag

        self.client.log_batch(run_id, tags=[RunTag(key, str(value)[:MAX_TAG_LENGTH]) for key, value in tags.items()])

    def log_text(self, run_id: str, text: str, name: str) -> None:
        """Store ``text`` as the artifact ``name``."""
        self.client.log_text(run_id, text, name)

    def log_path(self, run_id: str, path: Path, folder: str | None = None) -> None:
        """Store a file, or a folder with what is in it, as artifacts."""
        (self.client.log_artifacts if path.is_dir() else self.client.log_artifact)(run_id, str(path), folder)

    @contextmanager
    def tolerant(self, what: str) -> Iterator[None]:
        """Turn a failure of the store inside the block into a warning: tracking must not end a training."""
        try:
            yield
        except (self._failure, OSError) as error:
            logger.warning("MLflow: %s failed: %s The training goes on.", what, error)


def _alone(tracking_uri: str) -> AbstractContextManager[Any]:
    """Return a lock for a sqlite store: two processes that make its tables at once would break it."""
    if not tracking_uri.startswith(_SQLITE):
        return nullcontext()
    database = Path(tracking_uri.removeprefix(_SQLITE))
    database.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(f"{database}.lock", timeout=LOCK_TIMEOUT_S)


def _quoted(text: str) -> str:
    return f'"{text}"' if "'" in text else f"'{text}'"
