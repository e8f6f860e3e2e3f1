"""A study as a submitted job on a cluster that was started for it: followed, stopped by SIGTERM, resumed as a new job."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration_cases import SMALL_STUDY

from tune_experiments.study_record import StudyRecord

ROOT = Path(__file__).parents[2]
STUDY = (
    SMALL_STUDY
    + """
study: {arms: {grpo: {training.method: grpo}}, tasks: {one: {}, two: {training.lr: 1e-4}}, confirm_seeds: [1]}
run: {name: job, iterations: 50, checkpoint_frequency: 1, report_num_tasks: 8, report_draws: 1}
evaluation: {evaluation_interval: 25, evaluation_num_tasks: 4}
"""
)
START_S, JOB_S = 180, 400


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Cluster:
    """A head node in a session of its own; its files are not where other clusters of this machine look."""

    def __init__(self, folder: Path) -> None:
        self.port, dashboard = free_port(), free_port()
        self.address = f"http://127.0.0.1:{dashboard}"
        self.environment = {k: v for k, v in os.environ.items() if k not in ("MLFLOW_TRACKING_URI", "RAY_ADDRESS")}
        self.environment |= {"RAY_TMPDIR": str(folder), "RAY_AUTH_MODE": "disabled"}
        self._ray = str(Path(sys.executable).with_name("ray"))
        self._head = subprocess.Popen(
            [
                *(self._ray, "start", "--head", "--block", "--num-cpus=2", "--disable-usage-stats"),
                *(f"--port={self.port}", f"--dashboard-port={dashboard}", "--dashboard-host=127.0.0.1"),
                *("--object-store-memory=200000000", f"--temp-dir={folder}"),
                f"--dashboard-agent-listen-port={free_port()}",  # the agent takes the jobs
            ],
            env=self.environment,
            stdout=(folder / "head.log").open("w"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def jobs(self, *arguments: str, seconds: float = JOB_S) -> subprocess.CompletedProcess[str]:
        """Run a `ray job` command."""
        command = [self._ray, "job", arguments[0], "--address", self.address, *arguments[1:]]
        return subprocess.run(
            command, env=self.environment, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False
        )

    def submit(self, name: str, study: Path, storage: Path, *more: str, wait: bool) -> subprocess.CompletedProcess[str]:
        """Submit a study with the project's own runtime environment."""
        options = [
            "--submission-id",
            name,
            "--working-dir",
            ".",
            "--runtime-env",
            "tune_experiments/job/runtime_env.yaml",
        ]
        command = [
            sys.executable,
            "-m",
            "tune_experiments.cli",
            "sweep",
            str(study),
            f"run.storage_path={storage}",
            *more,
        ]
        return self.jobs("submit", *options, *([] if wait else ["--no-wait"]), "--", *command)

    def wait_until_up(self) -> None:
        """Wait until jobs are taken."""
        end = time.monotonic() + START_S
        while self.jobs("submit", "--no-wait", "--", "true").returncode != 0:  # the agent that takes jobs comes up last
            assert self._head.poll() is None and time.monotonic() < end, "the cluster did not start"
            time.sleep(1)

    def stop(self) -> None:
        """End the head and all that it started."""
        self._head.send_signal(signal.SIGTERM)
        try:
            self._head.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self._head.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = Path(f"/tmp/arlarena-{os.getpid()}")  # Ray's sockets below it must have short names
    folder.mkdir()
    cluster = Cluster(folder)
    try:
        cluster.wait_until_up()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.timeout(900)
def test_study_as_a_job_is_stopped_and_resumed(cluster: Cluster, tmp_path: Path) -> None:
    study, storage = tmp_path / "study.yaml", tmp_path / "runs"
    study.write_text(STUDY)
    assert cluster.submit("first", study, storage, wait=False).returncode == 0
    end = time.monotonic() + JOB_S
    while "[grpo-0-confirm-seed1] iteration 2/50" not in (log := cluster.jobs("logs", "first").stdout):
        assert time.monotonic() < end, log[-3000:]
        time.sleep(1)
    stopped = cluster.jobs("stop", "first")  # many iterations before the end: each of these commands takes seconds
    assert "was stopped" in stopped.stdout, stopped.stdout + stopped.stderr
    log = cluster.jobs("logs", "first").stdout
    assert "continue with: arlarena sweep" in log, log[-3000:]

    second = cluster.submit("second", study, storage, "--resume", wait=True)
    assert second.returncode == 0, second.stdout[-3000:] + second.stderr[-2000:]
    record = StudyRecord.load(storage / "job" / "study.json")
    assert [(t.task, t.status, [row["training_iteration"] for row in t.history]) for t in record.trials] == [
        ("one", "finished", list(range(1, 51))),
        ("two", "finished", list(range(1, 51))),
    ]


def test_exit_code_of_a_job_is_the_commands(cluster: Cluster, tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(STUDY)
    wrong = cluster.submit("wrong", study, tmp_path, "training.lrr=1", wait=True)
    assert wrong.returncode != 0 and "Nearest: 'lr'" in wrong.stdout + wrong.stderr


def test_relative_storage_is_refused_inside_a_job(cluster: Cluster, tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(STUDY)
    refused = cluster.submit("relative", study, Path("runs"), wait=True)
    output = refused.stdout + refused.stderr
    assert refused.returncode != 0 and "run.storage_path='runs'" in output and "is relative, and the working" in output
