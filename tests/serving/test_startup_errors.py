"""Start-up failures: in seconds, with a reason and a remedy, and with nothing left behind."""

import dataclasses
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray import serve

from arlarena_rllib.errors import ServingError
from arlarena_rllib.serving import EngineSpec, ServedPolicy, register_engine
from arlarena_rllib.serving.engines import base


@pytest.fixture(autouse=True)
def nothing_is_left_behind(ray_cluster: None) -> Iterator[None]:
    yield
    assert "failing" not in serve.status().applications


def start(spec: EngineSpec, **options: float) -> ServedPolicy:
    return ServedPolicy.start(spec, app_name="failing", **options)  # type: ignore[arg-type]


def test_model_directory_missing_is_named(spec: EngineSpec) -> None:
    with pytest.raises(ServingError, match=r"model_path='/no/such/model' is not a directory"):
        start(dataclasses.replace(spec, model_path="/no/such/model"))


def test_model_directory_without_config_is_named(spec: EngineSpec, tmp_path: Path) -> None:
    with pytest.raises(ServingError, match=r"has no config.json"):
        start(dataclasses.replace(spec, model_path=str(tmp_path)))


def test_package_missing_is_named(spec: EngineSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "ENGINES", dict(base.ENGINES))
    register_engine("exotic", "somewhere:Exotic", packages=("no_such_package",))
    with pytest.raises(ServingError, match="needs the package 'no_such_package'"):
        start(dataclasses.replace(spec, engine="exotic"))


def test_too_few_cpus_gives_the_figures(spec: EngineSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arlarena_rllib.serving.startup.RESOURCE_WAIT_S", 0.5)
    started = time.monotonic()
    with pytest.raises(ServingError, match=r"3 replicas x num_cpus_per_replica=7 = 21, free now: .*Lower num_replicas"):
        start(spec, num_replicas=3, num_cpus_per_replica=7)
    with pytest.raises(ServingError, match="Not enough free GPUs"):
        start(spec, num_gpus_per_replica=1)
    assert time.monotonic() - started < 10.0


def test_replicas_or_limits_below_one_are_refused(spec: EngineSpec) -> None:
    with pytest.raises(ServingError, match="num_replicas=0"):
        start(spec, num_replicas=0)
    with pytest.raises(ServingError, match="max_num_seqs=0"):
        start(dataclasses.replace(spec, max_num_seqs=0))


def test_engine_error_reaches_the_driver_with_its_own_message(digest_spec: EngineSpec) -> None:
    """The replica tells it, in the words of the engine, instead of silent constructor retries."""
    words = r"engine of app 'failing' did not start: ValueError: the digest engine takes no arguments, not \['x'\]"
    with pytest.raises(ServingError, match=words):
        start(dataclasses.replace(digest_spec, engine_kwargs={"x": 1}), num_cpus_per_replica=0.5)


def test_engine_module_missing_on_the_replica_reaches_the_driver(
    digest_spec: EngineSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "ENGINES", dict(base.ENGINES))
    register_engine("absent", "no_such_module:Engine")
    with pytest.raises(ServingError, match="ModuleNotFoundError: No module named 'no_such_module'"):
        start(dataclasses.replace(digest_spec, engine="absent"), num_cpus_per_replica=0.5)


def test_startup_timeout_says_what_it_waited_for(spec: EngineSpec) -> None:
    with pytest.raises(ServingError, match=r"within startup_timeout_s=0.5: 0 of 1 replicas answer; state DEPLOYING"):
        start(spec, startup_timeout_s=0.5, num_cpus_per_replica=0.5)


def test_error_of_an_engine_process_is_found_in_the_log_of_the_replica(tmp_path: Path) -> None:
    """A replica writes to files; vLLM's own exception only says that the cause is above."""
    log = tmp_path / "replica.log"
    code = """
from arlarena_rllib.serving.policy_server import describe_startup_error
print("(EngineCore pid=7) ERROR 01-01 00:00:00 [core.py:1] ValueError: 900 GiB wanted, 10 GiB free", flush=True)
print(describe_startup_error(RuntimeError("See root cause above.")))
"""
    with log.open("w") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    words = f"RuntimeError: See root cause above. Engine process: ValueError: 900 GiB wanted, 10 GiB free (log: {log})"
    assert log.read_text().splitlines()[-1] == words
