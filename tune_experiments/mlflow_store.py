"""One MLflow experiment through ``MlflowClient`` only: opens it, makes and finds runs, writes batches; no global state."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import urlsplit, urlunsplit

from filelock import FileLock

from arlarena_rllib.errors import ArenaError, ConfigError
from tune_experiments.store_file import store_file_problem

logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")
PARENT_TAG, TRIAL_TAG, COMMIT_TAG = "mlflow.parentRunId", "trial_id", "mlflow.source.git.commit"
STEP_METRIC = "training_iteration"
MAX_METRICS_PER_CALL, MAX_PARAMS_PER_CALL, MAX_TAG_LENGTH = 1000, 100, 8000
LOCK_TIMEOUT_S = 300.0
_SQLITE = "sqlite:///"
_CREDENTIALS = re.compile(r"//[^/@\s]+@")
_DATABASE_NOTES = re.compile(r"\[SQL:|\(Background on this error")
_AUTOFLUSH = re.compile(r"^\(raised as a result of Query-invoked autoflush[^)]*\) ")
_QUIET = {
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # The defaults (7 retries, 120 s each) would stop a training for many minutes when the server is away. One retry, at
    # once, is for a connection that the server closed meanwhile; all else is tried again with the next iteration.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_JITTER": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
}
_ALLOWED_URIS = (
    "Allowed for MLFLOW_TRACKING_URI: sqlite:///<absolute path>/mlflow.db, another database URI whose driver is installed, "
    "or http(s)://<MLflow server>."
)
_REFUSALS = ("INVALID_PARAMETER_VALUE", "RESOURCE_ALREADY_EXISTS")


class TrackingError(ArenaError, RuntimeError):
    """The MLflow store cannot be opened, or a run or status that was named does not exist."""


class StoreAwayError(TrackingError):
    """The store does not answer, or cannot write at present."""


class StoreRefusedError(TrackingError):
    """The store answers that it will not take this, now or later."""


class StoreUriError(TrackingError, ConfigError):
    """The tracking URI names no store that could be opened from here, whatever happens to the store."""


def _in_two_errors(method: Callable[Concatenate[RunStore, P], R]) -> Callable[Concatenate[RunStore, P], R]:
    """Turn what MLflow raises into :class:`StoreAwayError` or :class:`StoreRefusedError`."""

    @wraps(method)
    def asked(self: RunStore, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except (self._failure, OSError) as error:
            is_refusal = getattr(error, "error_code", "") in _REFUSALS
            raise (StoreRefusedError if is_refusal else StoreAwayError)(_told(error)) from error

    return asked


def resolve_tracking_uri(tracking_uri: str | None, storage_dir: str | Path) -> str:
    """Return ``tracking_uri``, else ``$MLFLOW_TRACKING_URI``, else a sqlite file in ``storage_dir``; paths absolute."""
    uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or f"{_SQLITE}{Path(storage_dir).resolve()}/mlflow.db"
    return f"{_SQLITE}{Path(uri.removeprefix(_SQLITE)).resolve()}" if uri.startswith(_SQLITE) else uri


def check_store(tracking_uri: str, experiment_name: str) -> None:
    """Raise :class:`TrackingError` when a server or database cannot be opened; a file is made when it is needed."""
    file = Path(tracking_uri.removeprefix(_SQLITE)) if tracking_uri.startswith(_SQLITE) else None
    if tracking_uri == "sqlite://":
        raise _unusable(tracking_uri, "names no file")
    if file is not None and (problem := store_file_problem(file)):
        raise _unusable(tracking_uri, problem)
    if file is None and (problem := _uri_problem(tracking_uri)):
        raise _unusable(tracking_uri, problem)
    if file is None or file.exists():
        RunStore(tracking_uri, experiment_name)


def _uri_problem(uri: str) -> str:
    """Return why no server and no database has this URI, "" when one may."""
    try:
        parts = urlsplit(uri)
        parts.port  # noqa: B018 - read when it is asked for
    except ValueError as error:
        return f"is no URI ({error})"
    if parts.scheme in ("http", "https"):
        return "" if parts.hostname else "names no server"
    is_other = uri.startswith("databricks") or ("://" in uri and parts.scheme != "file")
    return "" if is_other or os.environ.get("MLFLOW_ALLOW_FILE_STORE") else "is that of no server and no database"


def public_uri(uri: str) -> str:
    """Return ``uri`` without user name and password."""
    try:
        parts = urlsplit(uri)
    except ValueError:  # no URI at all
        return _CREDENTIALS.sub("//", uri)
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
        # It prints a traceback for each call that a database refuses; who asks is told by an exception.
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
        self.tracking_uri = tracking_uri
        began = time.monotonic()
        is_new = tracking_uri.startswith(_SQLITE) and not Path(tracking_uri.removeprefix(_SQLITE)).exists()
        logger.info("opening MLflow store %s%s", public_uri(tracking_uri), " (new: a few seconds)" if is_new else "")
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
        from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

        self._failure: type[Exception] = MlflowException
        try:
            with _alone(tracking_uri):
                self.client = MlflowClient(tracking_uri=tracking_uri)
                self.experiment_id = self._open_experiment(experiment_name)
        except ImportError as error:
            name = f"the Python package {error.name!r}" if error.name else str(error)
            raise _unusable(tracking_uri, f"needs {name}, which is not installed") from error
        except (ArgumentError, NoSuchModuleError) as error:
            raise _unusable(tracking_uri, f"is not understood ({_told(error)})") from error
        except (MlflowException, SQLAlchemyError, OSError) as error:
            problem = f"cannot be used: {_told(error).rstrip('.')}. {_ALLOWED_URIS}"
            raise StoreAwayError(f"tracking_uri={public_uri(tracking_uri)!r} {problem}") from error
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

    @_in_two_errors
    def create_run(self, name: str, tags: Mapping[str, str], at_ms: int) -> str:
        """Start a run (status RUNNING) and return its id."""
        tags = {key: str(value)[:MAX_TAG_LENGTH] for key, value in tags.items()}
        return self.client.create_run(self.experiment_id, start_time=at_ms, run_name=name, tags=tags).info.run_id

    @_in_two_errors
    def find_child(self, parent_run_id: str, trial_id: str) -> str | None:
        """Return the newest child of ``parent_run_id`` for ``trial_id``, or None."""
        return self._newest(f"tags.`{PARENT_TAG}` = '{parent_run_id}' AND tags.{TRIAL_TAG} = {_quoted(trial_id)}")

    @_in_two_errors
    def find_parent(self, name: str) -> str | None:
        """Return the newest run called ``name`` that is nobody's child, or None."""
        for run in self._search(f"attributes.run_name = {_quoted(name)}", 100):
            if PARENT_TAG not in run.data.tags:
                return run.info.run_id
        return None

    @_in_two_errors
    def find_tagged(self, tag: str, value: str) -> str | None:
        """Return the newest run with this tag, or None."""
        return self._newest(f"tags.{tag} = {_quoted(value)}")

    def _newest(self, query: str) -> str | None:
        return next((run.info.run_id for run in self._search(query, 1)), None)

    def _search(self, query: str, count: int) -> Sequence[Any]:
        return self.client.search_runs([self.experiment_id], query, max_results=count, order_by=["start_time DESC"])

    @_in_two_errors
    def exists(self, run_id: str) -> bool:
        """Say whether the store still has this run, not deleted."""
        try:
            return self.client.get_run(run_id).info.lifecycle_stage == "active"
        except self._failure as error:
            if getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise

    @_in_two_errors
    def steps(self, run_id: str) -> dict[int, int]:
        """Return the training iterations that the run has -> time of logging in ms."""
        return {point.step: point.timestamp for point in self.client.get_metric_history(run_id, STEP_METRIC)}

    @_in_two_errors
    def set_status(self, run_id: str, status: str, at_ms: int) -> None:
        """Reopen the run (RUNNING) or close it (FINISHED, FAILED, KILLED)."""
        if status == "RUNNING":
            self.client.update_run(run_id, status=status)
        else:
            self.client.set_terminated(run_id, status, at_ms)

    # --- what a run holds ----------------------------------------------------------------------------------------

    @_in_two_errors
    def log_metrics(self, run_id: str, points: Sequence[tuple[str, float, int]], at_ms: int) -> None:
        """Write ``(name, value, step)`` points; the same ones again, with the same time, change nothing."""
        from mlflow.entities import Metric

        metrics = [Metric(name, value, at_ms, step) for name, value, step in points]
        for first in range(0, len(metrics), MAX_METRICS_PER_CALL):
            self.client.log_batch(run_id, metrics=metrics[first : first + MAX_METRICS_PER_CALL])

    @_in_two_errors
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

    @_in_two_errors
    def set_tags(self, run_id: str, tags: Mapping[str, Any]) -> None:
        """Set tags in one call; values are cut to MLflow's limit."""
        from mlflow.entities import RunTag

        self.client.log_batch(run_id, tags=[RunTag(key, str(value)[:MAX_TAG_LENGTH]) for key, value in tags.items()])

    @_in_two_errors
    def log_text(self, run_id: str, text: str, name: str) -> None:
        """Store ``text`` as the artifact ``name``."""
        self.client.log_text(run_id, text, name)

    @_in_two_errors
    def log_path(self, run_id: str, path: Path, folder: str | None = None) -> None:
        """Store a file, or a folder with what is in it, as artifacts."""
        if not path.exists():
            raise StoreRefusedError(f"{path} is gone.")
        (self.client.log_artifacts if path.is_dir() else self.client.log_artifact)(run_id, str(path), folder)


def _alone(tracking_uri: str) -> AbstractContextManager[Any]:
    """Return a lock for a sqlite store: two processes that make its tables at once would break it."""
    if not tracking_uri.startswith(_SQLITE):
        return nullcontext()
    database = Path(tracking_uri.removeprefix(_SQLITE))
    database.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(f"{database}.lock", timeout=LOCK_TIMEOUT_S)


def _unusable(uri: str, problem: str) -> StoreUriError:
    return StoreUriError(f"tracking_uri={public_uri(uri)!r} {problem}. {_ALLOWED_URIS}")


def _quoted(text: str) -> str:
    return f'"{text}"' if "'" in text else f"'{text}'"


def _told(error: BaseException) -> str:
    """Return what happened in one line; a database adds the statement and its values below."""
    text = " ".join(_DATABASE_NOTES.split(str(error))[0].split())
    return _CREDENTIALS.sub("//", _AUTOFLUSH.sub("", text))[:500] or type(error).__name__
