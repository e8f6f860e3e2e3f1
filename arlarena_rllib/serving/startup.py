"""Checks before replicas are started, and the wait for them: failures come soon and with a reason, nothing hangs."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import Any

from arlarena_rllib.errors import ServingError
from arlarena_rllib.serving.engines.base import EngineEntry, EngineSpec, engine_class, find_engine

POLL_S = 0.1
RESOURCE_WAIT_S = 10.0
"""How long freed resources of an app that has just ended may take to appear."""


def check_engine(spec: EngineSpec, num_replicas: int) -> None:
    """Check what can be checked without a model: name, packages, place, dtype and arguments of the engine.

    Raises:
        ServingError: The engine could not start.
    """
    entry = _installed_engine(spec)
    try:
        engine = engine_class(entry)
    except ImportError:
        return  # it may still be importable in the replicas
    if num_replicas == 0 and engine.is_loop_bound:
        raise ServingError(f"engine={spec.engine!r} cannot run inside the driver process: set num_replicas >= 1.")
    engine.check_arguments(spec)


def check_spec(spec: EngineSpec) -> EngineEntry:
    """Return the registry entry of the engine after checking what can be checked without starting it.

    Raises:
        ServingError: Unknown engine, missing package, no model directory, or limits below 1.
    """
    entry = _installed_engine(spec)
    model_path = Path(spec.model_path)
    if not model_path.is_dir():
        raise ServingError(f"model_path={spec.model_path!r} is not a directory on this machine.")
    if not (model_path / "config.json").is_file():
        raise ServingError(f"model_path={spec.model_path!r} has no config.json; give a Hugging Face model directory.")
    for key in ("max_model_len", "max_num_seqs"):
        if getattr(spec, key) < 1:
            raise ServingError(f"{key}={getattr(spec, key)} must be at least 1.")
    return entry


def _installed_engine(spec: EngineSpec) -> EngineEntry:
    """Return the registry entry of the engine, whose packages are there."""
    entry = find_engine(spec.engine)
    for package in entry.packages:
        if importlib.util.find_spec(package) is None:
            raise ServingError(
                f"engine={spec.engine!r} needs the package {package!r}, which is not installed in this environment; "
                "install it or choose engine='transformers'."
            )
    return entry


def check_resources(num_replicas: int, num_cpus: float, num_gpus: float) -> None:
    """Raise ServingError unless the cluster has room for the replicas now; waits a moment for freed resources."""
    import ray

    deadline = time.monotonic() + RESOURCE_WAIT_S
    while problem := _resource_problem(num_replicas, num_cpus, num_gpus):
        if time.monotonic() > deadline:
            raise ServingError(f"{problem} Cluster total: {_figures(ray.cluster_resources())}.")
        time.sleep(POLL_S)


def _resource_problem(num_replicas: int, num_cpus: float, num_gpus: float) -> str | None:
    import ray

    free = ray.available_resources()
    for name, each in (("CPU", num_cpus), ("GPU", num_gpus)):
        needed = num_replicas * each
        if needed > free.get(name, 0.0) + 1e-6:
            option = f"num_{name.lower()}s_per_replica"
            return (
                f"Not enough free {name}s for the engine: {num_replicas} replicas x {option}={each:g} = {needed:g}, "
                f"free now: {free.get(name, 0.0):g}. Lower num_replicas or {option}, start fewer runners or trials, "
                f"or give ray.init more (num_{name.lower()}s may exceed the cores for CPUs)."
            )
    return None


def _figures(resources: dict[str, float]) -> str:
    return f"{resources.get('CPU', 0.0):g} CPUs, {resources.get('GPU', 0.0):g} GPUs"


def wait_until_running(app_name: str, handle: Any, num_replicas: int, timeout_s: float) -> list[dict[str, Any]]:
    """Return the status of every replica as soon as all of them are up.

    Raises:
        ServingError: An engine did not start (with its own message), the deployment failed, or time is over (with
            what was still missing).
    """
    deadline = time.monotonic() + timeout_s
    while True:
        state, description = _application_state(app_name)
        if state == "DEPLOY_FAILED":
            raise ServingError(f"The replicas of app {app_name!r} could not be created: {description}")
        statuses = _replica_statuses(handle, deadline) if _any_running(app_name) else []
        for status in statuses:
            if status["startup_error"] is not None:
                raise ServingError(f"The engine of app {app_name!r} did not start: {status['startup_error']}")
        if state == "RUNNING" and len(statuses) == num_replicas:
            return statuses
        if time.monotonic() > deadline:
            import ray

            raise ServingError(
                f"App {app_name!r} was not up within startup_timeout_s={timeout_s:g}: {len(statuses)} of "
                f"{num_replicas} replicas answer; {description}; free: {_figures(ray.available_resources())}. "
                "Raise startup_timeout_s when the machine is slow (engine imports alone can take a minute)."
            )
        time.sleep(POLL_S)


def _application_state(app_name: str) -> tuple[str, str]:
    """Return the state of the app and a sentence with all that Serve says about it."""
    from ray import serve

    app = serve.status().applications.get(app_name)
    if app is None:
        return "NOT_STARTED", "Serve does not know the app"
    parts = [f"state {_text(app.status)}"]
    if app.message:
        parts.append(app.message)
    for name, deployment in app.deployments.items():
        replicas = ", ".join(f"{count} {_text(state)}" for state, count in deployment.replica_states.items())
        parts.append(f"{name}: {replicas or 'no replica'} {deployment.message}".rstrip())
    return _text(app.status), "; ".join(parts)


def _text(state: Any) -> str:
    """Return the name of a state that Serve reports as an enum or as a plain string."""
    return str(getattr(state, "value", state))


def _any_running(app_name: str) -> bool:
    from ray import serve

    app = serve.status().applications.get(app_name)
    if app is None:
        return False
    return any(
        count > 0 and _text(state) == "RUNNING"
        for deployment in app.deployments.values()
        for state, count in deployment.replica_states.items()
    )


def _replica_statuses(handle: Any, deadline: float) -> list[dict[str, Any]]:
    """Return the statuses of the replicas that answer; [] while the handle does not know any yet."""
    from ray.exceptions import RayActorError
    from ray.serve.exceptions import RayServeException

    try:
        response = handle.broadcast("status")
        answers: list[dict[str, Any]] = response.results(timeout_s=max(1.0, deadline - time.monotonic()))
    except (RayServeException, RayActorError, TimeoutError):
        return []
    return answers
