"""A run that the cluster has no room for is refused with figures, before a trial waits for ever."""

from __future__ import annotations

import socket
from functools import partial

import pytest
import ray

from arlarena_rllib import ARLArenaConfig
from arlarena_rllib.errors import ConfigError
from tune_experiments.cluster import check_address, check_resources, start_cluster

TINY_CLUSTER = {"CPU": 2.0, "memory": 1e9}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"env_runners": {"num_env_runners": 4, "num_cpus_per_env_runner": 1}},
            r"needs 6 CPUs \(trial 5 \+ engine 1\)",
        ),
        ({"serving": {"num_gpus_per_replica": 1}}, r"needs 1 GPUs \(trial 0 \+ engine 1\) and the cluster has 0"),
        ({"learners": {"num_gpus_per_learner": 0.5}}, r"needs 0\.5 GPUs .*Lower num_gpus_per_learner"),
    ],
)
def test_run_larger_than_the_cluster_is_refused(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, dict[str, float]], message: str
) -> None:
    monkeypatch.setattr(ray, "cluster_resources", lambda: TINY_CLUSTER)
    config = ARLArenaConfig().serving(num_replicas=1, num_cpus_per_replica=1)
    config.env_runners(num_env_runners=0)
    check_resources(config)
    for section, values in change.items():
        getattr(config, section)(**values)
    with pytest.raises(ConfigError, match=message):
        check_resources(config)


@pytest.mark.parametrize("form", ["{}", "ray://{}"])
def test_an_address_where_no_cluster_answers_is_refused_at_once(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = form.format(f"127.0.0.1:{unused.getsockname()[1]}")
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # another test's cluster may be there
    for connect in (check_address, partial(start_cluster, 2)):
        with pytest.raises(ConfigError, match=f"RAY_ADDRESS={address}: no connection .*Connection refused"):
            connect()


@pytest.mark.parametrize("address", ["", "  ", "local", "auto"])
def test_an_address_of_no_host_is_left_to_ray(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    check_address()
