"""MLflowTracker: one parent run per experiment, one child run per trial, the same runs again after a restore."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml
from pyarrow.fs import LocalFileSystem
from ray.tune import Callback

from tune_experiments.delivery import LOCAL, Delivery
from tune_experiments.delivery_left import deliver_left
from tune_experiments.mlflow_names import as_number, headline_values, metric_values, overlay, param_values, plain
from tune_experiments.mlflow_store import (
    COMMIT_TAG,
    PARENT_TAG,
    STEP_METRIC,
    TRIAL_TAG,
    StoreAwayError,
    TrackingError,
    git_commit,
    public_uri,
    resolve_tracking_uri,
)
from tune_experiments.trial_errors import error_text

logger = logging.getLogger(__name__)

END_STATUSES = ("FINISHED", "FAILED", "KILLED")
LINK_FILE = "mlflow.json"
PHASE_FLUSH_POINTS, PHASE_FLUSH_S = 500, 10.0


class MLflowTracker(Callback):
    """Logs an experiment to MLflow, as a Tune callback or by hand.

    By hand: :meth:`start_run`, :meth:`log_result`, :meth:`end_run` per trial, then :meth:`finish`; the Tune hooks call
    the same methods. The constructor opens the store and the parent run. Within a trial each iteration is one batch
    with ``step = training_iteration``; an iteration that the run already has (repeated after a restore) is skipped.
    A store that goes away later costs warnings, not the training: what it misses waits in a file below
    ``storage_dir`` and is delivered when it answers again, by this tracker, the next one, or ``arlarena deliver``.

    Args:
        experiment_name: MLflow experiment.
        run_name: name of the parent run; the experiment's name by default.
        storage_dir: where ``mlflow.db`` and ``mlflow_artifacts`` go when no tracking URI is given, and what waits.
        tracking_uri: MLflow store; by default ``$MLFLOW_TRACKING_URI``, else sqlite in ``storage_dir``.
        tags: for the parent and every child.
        resolved_config: nested settings, logged as parameters ``section.key`` and as ``config.yaml``.
        panel_hash: identifies the fixed task lists; a tag.
        curve_name: picture in the trial's folder (or an absolute path) that is logged when it exists at the end.
        resolve: maps ``trial.config`` to the trial's own nested settings; without it ``resolved_config`` with
            ``trial.evaluated_params`` laid over it. Must be picklable.
        trial_tags: maps a trial's id to further tags of its run.
        resume: continue the newest parent run of this name instead of starting one.
        store_required: False for what follows in an experiment that has begun: the store may be away.

    Raises:
        TrackingError: the store cannot be opened, or does not take the parent run.
    """

    def __init__(
        self,
        experiment_name: str,
        *,
        run_name: str | None = None,
        storage_dir: str | Path = ".",
        tracking_uri: str | None = None,
        tags: Mapping[str, str] | None = None,
        resolved_config: Mapping[str, Any] | None = None,
        panel_hash: str | None = None,
        curve_name: str = "learning_curve.png",
        resolve: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
        trial_tags: Callable[[str], Mapping[str, str]] | None = None,
        resume: bool = False,
        store_required: bool = True,
    ) -> None:
        self.experiment_name = experiment_name
        self.run_name = run_name or experiment_name
        self.tracking_uri = resolve_tracking_uri(tracking_uri, storage_dir)
        self._config, self._resolve, self._curve_name = plain(resolved_config or {}), resolve, curve_name
        self._trial_tags = trial_tags
        self._tags = {key: str(value) for key, value in (tags or {}).items()}
        commit = git_commit(Path(__file__))
        self._tags |= {COMMIT_TAG: commit} if commit else {}
        self._tags |= {"panel_hash": panel_hash} if panel_hash else {}
        self._runs: dict[str, str] = {}
        self._last_steps: dict[str, int] = {}
        self._open: set[str] = set()
        self._phase_points: list[tuple[str, float, int]] = []
        self._phase_sent_at = time.monotonic()
        self._outcome = "FINISHED"
        self._storage_dir, self._resume, self._parent = Path(storage_dir), resume, ""
        self._delivery = self._new_delivery()
        if store_required:
            self._delivery.store()
        self._deliver_left()
        found = self._delivery.ask(lambda store: store.find_parent(self.run_name), None) if resume else None
        self._open_parent(found)
        if store_required and len(self._delivery):
            self._delivery.discard()
            raise TrackingError(f"{public_uri(self.tracking_uri)!r} does not take a run: {self._delivery.reason}")

    # --- store and parent ----------------------------------------------------------------------------------------

    def _new_delivery(self) -> Delivery:
        return Delivery.to(self.tracking_uri, self.experiment_name, self._storage_dir, self.run_name)

    def _deliver_left(self) -> None:
        for left in deliver_left(self._storage_dir, self.tracking_uri):
            logger.warning("MLflow, left by an earlier run in %s: %s", left.file, left)

    @property
    def experiment_id(self) -> str:
        """MLflow's id of the experiment."""
        return self._delivery.store().experiment_id

    @property
    def parent_run_id(self) -> str:
        """The parent's id; a local one while the store is away and does not have it."""
        return self._delivery.real(self._parent)

    def run_id(self, trial_id: str) -> str:
        """Return the id of the trial's run, also of one that another tracker made under the same parent.

        Raises:
            TrackingError: the trial has no run, or the store is away and nobody knows.
        """
        known = self._runs.get(trial_id)
        run_id = self._delivery.real(known) if known else self._find_child(trial_id)
        if run_id is None:
            raise TrackingError(
                f"trial_id={trial_id!r} has no run under {self.run_name!r} in experiment {self.experiment_name!r}. "
                f"Call start_run first. Started: {', '.join(self._runs) or 'none'}."
            )
        self._runs[trial_id] = run_id
        return run_id

    def _find_child(self, trial_id: str) -> str | None:
        parent = self.parent_run_id
        return None if parent.startswith(LOCAL) else self._delivery.store().find_child(parent, trial_id)

    def _target(self, trial_id: str | None) -> str:
        """Return the parent's run, or the trial's; the store is away and cannot say: a run that it finds later."""
        if trial_id is None:
            return self.parent_run_id
        try:
            return self.run_id(trial_id)
        except StoreAwayError:
            self._runs[trial_id] = self._create_child(trial_id, trial_id)
            return self._runs[trial_id]

    def _exists(self, run_id: str) -> bool:
        return run_id.startswith(LOCAL) or self._delivery.ask(lambda store: store.exists(run_id), True)

    def _open_parent(self, run_id: str | None) -> None:
        if run_id and self._exists(run_id):
            self._delivery.set_status(run_id, "RUNNING")
            self._parent = run_id
            return
        if run_id:
            logger.warning("MLflow run %s of %r is gone; a new one is made.", run_id, self.run_name)
        self._parent = self._delivery.create_run(self.run_name, self._tags, find_name=self._resume)
        self._log_config(self._parent, self._config)

    def _log_config(self, run_id: str, config: Mapping[str, Any]) -> None:
        if config:
            self._delivery.log_params(run_id, param_values(config))
            self._delivery.log_text(run_id, yaml.safe_dump(config, sort_keys=False), "config.yaml")

    def finish(self, status: str | None = None) -> None:
        """Send what waits, then close children that are still open and the parent; may be called again.

        Args:
            status: FINISHED, FAILED or KILLED; by default what Tune's experiment came to, else FINISHED.
        """
        status = self._outcome = status or self._outcome
        _check_status(status)
        for trial_id in sorted(self._open):
            self.end_run(trial_id, status)
        self.flush()
        self._delivery.set_status(self.parent_run_id, status)
        self._delivery.end()

    def __enter__(self) -> MLflowTracker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is None:
            self.finish()
        else:
            self.finish("FAILED" if issubclass(kind, Exception) else "KILLED")

    # --- one trial -----------------------------------------------------------------------------------------------

    def start_run(
        self,
        trial_id: str,
        *,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the id of the trial's run: reopened when this parent has one, else made.

        Args:
            trial_id: stays the same over restores.
            name: name of a new run; the trial's id by default.
            params: this trial's own values; they replace the same keys of the experiment's settings.
            config: this trial's nested settings, instead of the experiment's.
        """
        run_id = self._runs[trial_id] if trial_id in self._open else self._existing_run(trial_id)
        if run_id is None:
            run_id = self._create_child(trial_id, name or trial_id)
            self._last_steps[trial_id] = -1
        elif trial_id not in self._open:
            self._delivery.set_status(run_id, "RUNNING")
            # The store is newer than a stored callback state when the driver was killed.
            self._last_steps[trial_id] = max(self._last_steps.get(trial_id, -1), self._last_step(run_id))
        self._runs[trial_id] = run_id
        self._open.add(trial_id)
        self._log_config(run_id, overlay(self._config if config is None else config, params or {}))
        return self._delivery.real(run_id)

    def _create_child(self, trial_id: str, name: str) -> str:
        own = self._trial_tags(trial_id) if self._trial_tags else {}
        tags = {**self._tags, **own, PARENT_TAG: self.parent_run_id, TRIAL_TAG: trial_id}
        return self._delivery.create_run(name, tags)

    def _last_step(self, run_id: str) -> int:
        return self._delivery.ask(lambda store: max(store.steps(run_id), default=-1), -1)

    def _existing_run(self, trial_id: str) -> str | None:
        run_id = self._delivery.real(self._runs.get(trial_id, ""))
        if run_id and self._exists(run_id):
            return run_id
        if run_id:
            logger.warning("MLflow run %s of trial %s is gone; a new one is made.", run_id, trial_id)
            self._last_steps.pop(trial_id, None)
        try:
            return self._find_child(trial_id)
        except StoreAwayError:
            return None  # a `create` looks for it once more

    def log_result(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Log the finite numbers of one iteration's result in one batch; False when the run already has this step."""
        run_id = self._target(trial_id)
        step = int(as_number(result.get(STEP_METRIC)) or 0)
        if step <= self._last_steps.get(trial_id, -1):
            logger.info("trial %s: iteration %d is in MLflow already", trial_id, step)
            return False
        values = metric_values(result)
        values = {**headline_values(values), STEP_METRIC: float(step), **values}
        self._delivery.log_metrics(run_id, [(name, value, step) for name, value in values.items()])
        self._last_steps[trial_id] = step
        return True

    def end_run(
        self,
        trial_id: str,
        status: str = "FINISHED",
        *,
        error: str | None = None,
        checkpoint_path: str | None = None,
        folder: str | Path | None = None,
    ) -> None:
        """Close the trial's run with its artifacts: error text, checkpoint path, and the curve found in ``folder``."""
        _check_status(status)
        run_id, delivery = self._target(trial_id), self._delivery
        curve = Path(folder or ".", self._curve_name)
        if curve.is_file() and (folder or curve.is_absolute()):
            delivery.log_path(run_id, curve)
        if error:
            delivery.log_text(run_id, error, "error.txt")
        if checkpoint_path:
            self._log_checkpoint_path(run_id, checkpoint_path)
        delivery.set_status(run_id, status)
        self._open.discard(trial_id)

    def _log_checkpoint_path(self, run_id: str, path: str) -> None:
        self._delivery.set_tags(run_id, {"checkpoint_path": path})
        self._delivery.log_text(run_id, path + "\n", "checkpoint.txt")

    def write_link(self, trial_id: str, checkpoint_dir: str | Path) -> None:
        """Write ``mlflow.json`` into a checkpoint: which run it came from (the URI without credentials)."""
        link = {
            "run_id": self._target(trial_id),
            "trial_id": trial_id,
            "parent_run_id": self.parent_run_id,
            "experiment": self.experiment_name,
            "tracking_uri": public_uri(self.tracking_uri),
        }
        Path(checkpoint_dir, LINK_FILE).write_text(json.dumps(link, indent=2) + "\n")

    # --- parent-level and free logging ---------------------------------------------------------------------------

    def log_phase(self, name: str, metrics: Mapping[str, Any], step: int) -> None:
        """Log ``<name>/<metric>`` on the parent, e.g. warm-start losses; points are collected and sent in batches."""
        self._phase_points += [(key, value, int(step)) for key, value in metric_values({name: metrics}).items()]
        waited = time.monotonic() - self._phase_sent_at
        if len(self._phase_points) >= PHASE_FLUSH_POINTS or waited >= PHASE_FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Send the collected points of :meth:`log_phase`."""
        points, self._phase_points = self._phase_points, []
        self._phase_sent_at = time.monotonic()
        self._delivery.log_metrics(self.parent_run_id, points)

    def log_metrics(self, metrics: Mapping[str, Any], step: int = 0, *, trial_id: str | None = None) -> None:
        """Log nested numbers at ``step``, on the parent unless a trial is named."""
        points = [(name, value, step) for name, value in metric_values(metrics).items()]
        self._delivery.log_metrics(self._target(trial_id), points)

    def log_artifact(self, path: str | Path, *, trial_id: str | None = None, folder: str | None = None) -> None:
        """Store a file or folder, on the parent unless a trial is named, in the artifact folder ``folder``."""
        self.flush()
        self._delivery.log_path(self._target(trial_id), Path(path), folder)

    def log_dict(self, values: Mapping[str, Any], name: str, *, trial_id: str | None = None) -> None:
        """Store nested values as the artifact ``name``: YAML for ``.yaml`` and ``.yml``, else JSON."""
        tree = plain(values)
        is_yaml = name.endswith((".yaml", ".yml"))
        text = yaml.safe_dump(tree, sort_keys=False) if is_yaml else json.dumps(tree, indent=2)
        self._delivery.log_text(self._target(trial_id), text, name)

    def set_tags(self, tags: Mapping[str, Any], *, trial_id: str | None = None) -> None:
        """Set tags, on the parent unless a trial is named."""
        self._delivery.set_tags(self._target(trial_id), tags)

    # --- Tune ----------------------------------------------------------------------------------------------------

    def setup(self, stop: Any = None, num_samples: Any = None, total_num_samples: Any = None, **info: Any) -> None:
        """Reopen the parent run (Tune calls this at the start, after :meth:`set_state` when restored)."""
        self.flush()
        self._outcome = "FINISHED"
        self._open_parent(self.parent_run_id)

    def on_trial_start(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        """Open or reopen the trial's run."""
        if self._resolve is not None:
            self.start_run(trial.trial_id, name=str(trial), config=plain(self._resolve(trial.config)))
        else:
            self.start_run(trial.trial_id, name=str(trial), params=trial.evaluated_params)

    def on_trial_result(self, iteration: int, trials: list, trial: Any, result: dict, **info: Any) -> None:
        """Log one iteration."""
        self.log_result(trial.trial_id, result)

    def on_checkpoint(self, iteration: int, trials: list, trial: Any, checkpoint: Any, **info: Any) -> None:
        """Tie checkpoint and run together, also when the checkpoint comes after the run's end."""
        if isinstance(checkpoint.filesystem, LocalFileSystem):
            try:
                self.write_link(trial.trial_id, checkpoint.path)
            except OSError as error:
                logger.warning("%s in %s cannot be written: %s", LINK_FILE, checkpoint.path, error)
        self._log_checkpoint_path(self._target(trial.trial_id), checkpoint.path)

    def on_trial_recover(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        """Keep the error of a trial that is tried again; its run stays open."""
        self._delivery.log_text(self._target(trial.trial_id), error_text(trial), "recovered_errors.txt")

    def on_trial_complete(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        """Close the trial's run as FINISHED."""
        self._end_trial(trial, "FINISHED")

    def on_trial_error(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        """Close the trial's run as FAILED with the error as an artifact; one that never started gets a run too."""
        if trial.trial_id not in self._runs:
            self.on_trial_start(iteration, trials, trial)
        self._end_trial(trial, "FAILED", error_text(trial))

    def on_experiment_end(self, trials: list, **info: Any) -> None:
        """Close the parent: FAILED when a trial failed, KILLED when one was interrupted, else FINISHED."""
        states = {trial.status for trial in trials}
        for trial in trials:
            if trial.trial_id in self._open:
                self._end_trial(trial, "KILLED")
        interrupted = states - {"TERMINATED", "ERROR"}
        self.finish("KILLED" if interrupted else "FAILED" if "ERROR" in states else "FINISHED")

    def _end_trial(self, trial: Any, status: str, error: str | None = None) -> None:
        if trial.trial_id in self._runs:  # a trial may be stopped before it ever started
            path = trial.checkpoint.path if trial.checkpoint else None
            self.end_run(trial.trial_id, status, error=error, checkpoint_path=path, folder=trial.local_path)

    def get_state(self) -> dict[str, Any]:
        """Return which runs belong to which trials; Tune stores it with the experiment."""
        runs = {trial_id: self._delivery.real(run_id) for trial_id, run_id in self._runs.items()}
        return {"parent_run_id": self.parent_run_id, "runs": runs, "last_steps": dict(self._last_steps)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue the runs of :meth:`get_state`; a run that was local then is found by its trial."""
        if not state["parent_run_id"].startswith(LOCAL):
            self._parent = state["parent_run_id"]
        self._runs = {trial_id: run_id for trial_id, run_id in state["runs"].items() if not run_id.startswith(LOCAL)}
        self._last_steps = dict(state["last_steps"])

    def __getstate__(self) -> dict[str, Any]:
        is_local = self.parent_run_id.startswith(LOCAL)  # known to this process only; a copy finds it by its name
        parent = {"_parent": "" if is_local else self.parent_run_id, "_resume": self._resume or is_local}
        runs = {"_runs": self.get_state()["runs"], "_open": set()}
        return {**self.__dict__, **parent, **runs, "_delivery": None, "_phase_points": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._delivery = self._new_delivery()


def _check_status(status: str) -> None:
    if status not in END_STATUSES:
        raise TrackingError(f"status={status!r} does not end a run. Allowed: {', '.join(END_STATUSES)}.")
