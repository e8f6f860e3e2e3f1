"""The Ray cluster of a command: the one that RAY_ADDRESS or a job names, or a small local one; and what fits on it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

import ray
import torch
from ray import serve

from arlarena_rllib.config import ARLArenaConfig
from arlarena_rllib.errors import ConfigError

IN_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Set by Ray in the environment of a submitted job's command."""


def check_address() -> None:
    """Raise :class:`ConfigError` when nothing answers at ``RAY_ADDRESS``; Ray itself tries for more than ten minutes.

    Whether it is Ray that answers shows when :func:`start_cluster` connects.
    """
    host, _, port = _address().removeprefix("ray://").rpartition(":")
    if host and port.isdigit() and "/" not in host:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        except (OSError, OverflowError) as error:
            raise _no_connection(error) from error


def start_cluster(num_cpus: int) -> None:
    """Connect to the running Ray cluster, or start a local one of ``num_cpus`` logical CPUs; start Serve.

    Raises:
        ConfigError: nothing answers at ``RAY_ADDRESS``, or not to us.
    """
    if not ray.is_initialized():
        if _address() or IN_JOB in os.environ:
            check_address()
            try:
                ray.init(address=_address() or None, log_to_driver=False)
            except (OSError, RuntimeError, ValueError) as error:
                raise _no_connection(error) from error
        else:
            os.environ.pop("RAY_ADDRESS", None)  # blank, or "local"
            ray.init(num_cpus=num_cpus, include_dashboard=False, log_to_driver=False, object_store_memory=400_000_000)
    serve.start(proxy_location="Disabled")


def _address() -> str:
    """Return what ``RAY_ADDRESS`` says; "" for a cluster of our own."""
    address = os.environ.get("RAY_ADDRESS", "").strip()
    return "" if address == "local" else address


def _no_connection(error: Exception) -> ConfigError:
    return ConfigError(
        f"RAY_ADDRESS={_address()}: no connection to this Ray cluster ({' '.join(str(error).split())[:200]}). Is it running? "
        "A cluster that asks for a token (`ray start` says so) wants RAY_AUTH_MODE=token here too; unset RAY_ADDRESS for a "
        "local cluster."
    )


def needed_resources(config: ARLArenaConfig) -> tuple[dict[str, float], dict[str, float]]:
    """Return the CPUs and GPUs of a trial, and those of its engine."""
    cpus_per_learner = config.num_cpus_per_learner if config.num_cpus_per_learner != "auto" else 1
    trial = {
        "CPU": config.num_cpus_for_main_process
        + config.num_env_runners * config.num_cpus_per_env_runner
        + config.num_learners * cpus_per_learner,
        "GPU": max(config.num_learners, 1) * (config.num_gpus_per_learner or 0),
    }
    engine = {
        "CPU": config.num_replicas * config.num_cpus_per_replica,
        "GPU": config.num_replicas * config.num_gpus_per_replica,
    }
    return trial, engine


def check_own_cluster(config: ARLArenaConfig, num_cpus: int) -> None:
    """Raise :class:`ConfigError` when the cluster that :func:`start_cluster` would start is too small; it starts nothing."""
    if not ray.is_initialized() and not _address() and IN_JOB not in os.environ:
        check_resources(config, {"CPU": num_cpus, "GPU": torch.cuda.device_count()})


def check_resources(config: ARLArenaConfig, available: Mapping[str, float] | None = None) -> None:
    """Raise ConfigError, with figures, when trial and engine together are larger than the cluster.

    Args:
        config: of the trial.
        available: what the cluster has; None asks the running one.
    """
    trial, engine = needed_resources(config)
    remedies = {
        "CPU": "Raise run.num_cpus or lower num_cpus_per_env_runner, num_cpus_per_replica.",
        "GPU": "Lower num_gpus_per_learner, num_gpus_per_replica, or join a cluster with more.",
    }
    available = ray.cluster_resources() if available is None else available
    for kind, remedy in remedies.items():
        if (needed := trial[kind] + engine[kind]) > available.get(kind, 0.0) + 1e-6:
            raise ConfigError(
                f"the run needs {needed:g} {kind}s (trial {trial[kind]:g} + engine {engine[kind]:g}) and the cluster "
                f"has {available.get(kind, 0.0):g}. {remedy}"
            )
