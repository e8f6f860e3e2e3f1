"""What the command does when settings are wrong, when it is stopped or killed, and when a trial fails."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from mlflow.tracking import MlflowClient

FOLDER = Path(__file__).parent
TINY = [
    "run.report_num_tasks=0",
    "env_runners.groups_per_iteration=2",
    "env_runners.group_size=2",
    "evaluation.evaluation_interval=null",
]
CHAIN = [
    *TINY,
    "run.name=chain",
    "run.checkpoint_frequency=3",
    "warm_start.source=clumsy",
    "warm_start.num_tasks=8",
    "warm_start.steps=2",
    "model.corpus_tasks=20",
    "environment.env_config={observation: coords, max_turns: 5}",
    "serving.max_model_len=30",  # 14 of it for the reply: the longer boards do not fit
]
ITERATION = re.compile(r"^iteration (\d+)/\d+")


class Command:
    """One `train` command in a session of its own; its output is read line by line."""

    def __init__(self, storage: Path, *arguments: str) -> None:
        module = [sys.executable, "-m", "tune_experiments.cli"]
        path = os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [*module, "train", "sokoban_transformers", *arguments, f"run.storage_path={storage}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=FOLDER.parents[1],
            env={k: v for k, v in os.environ.items() if k != "MLFLOW_TRACKING_URI"} | {"PYTHONPATH": path},
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._family: list[psutil.Process] = []

    @property
    def text(self) -> str:
        """All output so far."""
        return "".join(self.lines)

    @property
    def iterations(self) -> list[int]:
        """Iterations that the output tells of."""
        return [int(found[1]) for line in self.lines if (found := ITERATION.match(line))]

    def wait_for_iteration(self, number: int) -> None:
        """Return as soon as the output tells of iteration ``number``."""
        while number not in self.iterations:
            self._read(f"iteration {number}")

    def wait_for(self, text: str) -> None:
        """Return as soon as ``text`` is in the output."""
        while text not in self.text:
            self._read(text)

    def _read(self, expected: str) -> None:
        line = self._process.stdout.readline()
        assert line, f"ended before {expected!r}:\n{self.text}"
        self.lines.append(line)

    def signal(self, number: int, *, group: bool) -> None:
        """Send a signal to the driver, or to its whole process group as a terminal does."""
        self._family = psutil.Process(self._process.pid).children(recursive=True)
        (os.killpg if group else os.kill)(self._process.pid, number)

    def end(self) -> int:
        """Read the output to its end and return the exit code."""
        self.lines += self._process.stdout.readlines()
        return self._process.wait()

    def close(self) -> None:
        """Leave no process behind, whatever happened."""
        if self._process.poll() is None:
            self.signal(signal.SIGKILL, group=True)
        self._process.stdout.close()
        self._process.wait()
        for process in psutil.wait_procs(self._family, timeout=20)[1]:
            process.kill()


@contextmanager
def command(storage: Path, *arguments: str) -> Iterator[Command]:
    """Run `train` and clean up after it."""
    running = Command(storage, *arguments)
    try:
        yield running
    finally:
        running.close()


# --- wrong settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "code", "message"),
    [
        ("training.lrr=1", 2, "'lrr' (section 'training') is not a setting. Nearest: 'lr'."),
        ("environment.env=arlarena/Soko-v0", 2, "environment.env='arlarena/Soko-v0' is not registered"),
        ("env_runners.groups_per_iteration=0", 2, "env_runners.groups_per_iteration=0 is not allowed"),
        ("model.path=/nowhere", 2, "model path '/nowhere' is not a directory"),
    ],
)
def test_wrong_setting_ends_at_once_with_one_line_and_leaves_nothing(
    tmp_path: Path, override: str, code: int, message: str
) -> None:
    began = time.monotonic()
    with command(tmp_path, override) as running:
        assert running.end() == code
    assert time.monotonic() - began < 60  # imports; far more than a free machine needs
    assert len(running.lines) == 1
    assert message in running.lines[0]
    assert not list(tmp_path.iterdir())


# --- stopped, killed, resumed -------------------------------------------------------------------------------------


def test_terminated_while_cloning_ends_at_once_and_says_so(tmp_path: Path) -> None:
    with command(tmp_path, *CHAIN, "warm_start.steps=5000") as running:
        running.wait_for("cloning 1")
        running.signal(signal.SIGTERM, group=False)
        assert running.end() == 130
    assert running.lines[-1] == "stopped\n"


def test_terminated_in_the_report_keeps_the_training_and_its_pictures(tmp_path: Path) -> None:
    with command(tmp_path, *CHAIN, "run.iterations=1", "run.report_num_tasks=256") as running:
        running.wait_for("phase: report on 256 test tasks")
        running.signal(signal.SIGTERM, group=False)
        assert running.end() == 130
    assert "stopped in the report; the training and its results are kept" in running.text
    assert (tmp_path / "chain" / "learning_curve.png").is_file()
    assert (tmp_path / "chain" / "final" / "model.safetensors").is_file()


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run in four pieces: Ctrl-C, SIGINT to the driver alone, SIGKILL of everything, and on to a later end.

    A copy is kept elsewhere; the third piece has only the copy to go on from.
    """
    storage, bucket = tmp_path_factory.mktemp("chain"), tmp_path_factory.mktemp("bucket")
    copied = [*CHAIN, f"run.upload_to=file://{bucket}"]
    seen: dict[str, Any] = {"storage": storage, "copy": bucket / "chain", "logged": [], "runs": []}
    with command(storage, *copied, "run.iterations=20") as first:
        first.wait_for_iteration(2)
        first.signal(signal.SIGINT, group=True)
        _note(seen, first)
    with command(storage, *copied, "run.iterations=20", "--resume") as second:
        second.wait_for_iteration(seen["logged"][0][-1] + 1)
        second.signal(signal.SIGINT, group=False)
        _note(seen, second)
    shutil.rmtree(storage / "chain")
    seen["checkpoint"] = 3 * (seen["logged"][1][-1] // 3 + 1)
    with command(storage, *copied, "run.iterations=20", "--resume") as third:
        third.wait_for_iteration(seen["checkpoint"] + 1)
        _wait_for_notes(storage / "chain" / "trials")
        third.signal(signal.SIGKILL, group=True)
        _note(seen, third)
    with command(storage, *copied, "run.iterations=22", "--resume") as fourth:
        _note(seen, fourth)
    return seen


def _wait_for_notes(trials: Path) -> None:
    """Return when Tune has written once more what it knows, the newest checkpoint among it."""
    began = time.time()
    while max(file.stat().st_mtime for file in trials.glob("experiment_state-*.json")) < began:
        assert time.time() < began + 30
        time.sleep(0.05)


def _note(seen: dict[str, Any], running: Command) -> None:
    code = running.end()
    run = _trial_run(seen["storage"])
    seen["runs"].append((code, run.info.run_id, run.info.status, running))
    seen["logged"].append(_steps(seen["storage"], run, "training_iteration"))


def _client(storage: Path) -> MlflowClient:
    return MlflowClient(tracking_uri=f"sqlite:///{storage}/mlflow.db")


def _trial_run(storage: Path) -> Any:
    """Return the only trial's run."""
    client = _client(storage)
    runs = client.search_runs([e.experiment_id for e in client.search_experiments()])
    (trial,) = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    assert len(runs) == 2
    return trial


def _steps(storage: Path, run: Any, metric: str) -> list[int]:
    return [point.step for point in _client(storage).get_metric_history(run.info.run_id, metric)]


def test_ctrl_c_ends_after_the_iteration_with_a_checkpoint(chain: dict[str, Any]) -> None:
    code, _, status, running = chain["runs"][0]
    assert (code, status) == (130, "KILLED"), running.text
    assert "stopping after this iteration, with a checkpoint" in running.text
    assert "--resume" in running.lines[-1]
    assert "Traceback" not in running.text
    assert 2 <= len(chain["logged"][0]) < 20
    _, _, _, resumed = chain["runs"][1]
    assert resumed.iterations[0] == chain["logged"][0][-1] + 1  # nothing of the first piece is lost or done again


def test_sigint_to_the_driver_alone_does_the_same(chain: dict[str, Any]) -> None:
    code, _, status, running = chain["runs"][1]
    assert (code, status) == (130, "KILLED"), running.text
    assert "Traceback" not in running.text
    assert len(chain["logged"][0]) < len(chain["logged"][1]) < 20
    assert chain["runs"][2][3].iterations[0] == chain["logged"][1][-1] + 1


def test_run_whose_folder_is_lost_goes_on_from_its_copy(chain: dict[str, Any]) -> None:
    third = chain["runs"][2][3]
    assert f"phase: fetch file://{chain['copy']}" in third.text
    assert third.iterations[0] == chain["logged"][1][-1] + 1


def test_copy_is_complete_at_the_end(chain: dict[str, Any]) -> None:
    here, there = (
        {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        for folder in (chain["storage"] / "chain", chain["copy"])
    )
    assert here.keys() == there.keys()
    assert [name for name in here if here[name] != there[name]] == []
    assert f"a copy of the run is in file://{chain['copy']}" in chain["runs"][3][3].text


def test_killed_run_continues_from_its_last_checkpoint(chain: dict[str, Any]) -> None:
    code, _, status, _ = chain["runs"][2]
    assert code == -signal.SIGKILL
    assert status == "RUNNING"
    resumed = chain["runs"][3][3]
    assert resumed.iterations[0] > chain["checkpoint"], resumed.text
    assert (resumed.iterations[0] - 1) % 3 == 0
    assert "Traceback" not in resumed.text


def test_resumed_run_ends_at_the_new_limit_and_logs_every_iteration_once(chain: dict[str, Any]) -> None:
    code, _, status, running = chain["runs"][3]
    assert code == 0, running.text
    assert status == "FINISHED"
    assert len({run_id for _, run_id, _, _ in chain["runs"]}) == 1
    assert chain["logged"][-1] == list(range(1, 23))
    assert (chain["storage"] / "chain" / "final" / "model.safetensors").is_file()


def test_prompts_beyond_the_model_limit_are_counted_and_the_run_goes_on(chain: dict[str, Any]) -> None:
    history = _client(chain["storage"]).get_metric_history(
        _trial_run(chain["storage"]).info.run_id, "env_runners/stop_prompt_too_long_frac"
    )
    assert len(history) == 22
    assert 0 < sum(point.value for point in history) < 22


def test_resume_with_another_setting_of_the_trial_is_refused(chain: dict[str, Any]) -> None:
    with command(chain["storage"], *CHAIN, "run.iterations=23", "training.lr=1", "--resume") as running:
        assert running.end() == 2, running.text
    assert "training.lr=1 was 0.0003" in running.lines[-1]


# --- an environment or a trial that fails --------------------------------------------------------------------------


def test_failing_trial_ends_with_its_reason_and_a_failed_run(tmp_path: Path, tiny_model_dir: Path) -> None:
    broken = ["environment.env=faulty_env:faulty/Guess-v0", "environment.env_config={}", "run.max_failures=0"]
    model = [f"model.path={tiny_model_dir}", "warm_start.source=none"]
    with command(tmp_path, *TINY, *broken, *model, "run.iterations=2") as running:
        assert running.end() == 1, running.text
    assert "env_error: ConnectionError: the guessing server is down" in running.lines[-1]
    assert "Traceback" not in running.text
    assert _trial_run(tmp_path).info.status == "FAILED"


def test_environment_that_fails_before_training_is_named_with_file_line_and_task(tmp_path: Path) -> None:
    broken = ["environment.env=faulty_env:faulty/Guess-v0", "environment.env_config={}"]
    with command(tmp_path, *TINY, *broken) as running:
        assert running.end() == 1, running.text
    assert re.search(
        r"environment 'faulty_env:faulty/Guess-v0' raised ConnectionError: the guessing server is down "
        r"\(.*faulty_env\.py, line \d+\) with task '.+'\. Run `arlarena envs check",
        running.lines[-1],
    )
    assert "Traceback" not in running.text


# --- a full disk --------------------------------------------------------------------------------------------------


def test_full_disk_at_a_checkpoint_leaves_the_one_before_and_resume_goes_on_from_it(
    tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when Tune, which writes its notes every so many seconds, first writes of the checkpoint when all is over."""
    monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", "60")
    game = ["environment.env=full_disk_env:full/Guess-v0", "environment.env_config={}", "run.max_failures=0"]
    model = [f"model.path={tiny_model_dir}", "warm_start.source=none"]
    arguments = [*TINY, *game, *model, "run.name=full", "run.iterations=14", "run.checkpoint_frequency=2"]
    with command(tmp_path, *arguments) as running:
        running.wait_for_iteration(3)
        (tmp_path / "disk_is_full").touch()
        assert running.end() == 1, running.text
    said = running.lines[-1]
    found = re.search(r"the checkpoint of iteration (\d+) could not be written to .*: No space left on device \(", said)
    assert found, running.text
    failed = int(found[1])
    usable = f"checkpoint_{failed // 2 - 2:06d}"  # the first is that of iteration 2
    assert f"{usable} is whole: make room, then go on from it with --resume" in said
    assert "Traceback" not in running.text
    (trial,) = (tmp_path / "full" / "trials").glob("ARLArena*")
    assert max(folder.name for folder in trial.glob("checkpoint_*")) == usable

    (tmp_path / "disk_is_full").unlink()
    with command(tmp_path, *arguments, "--resume") as resumed:
        assert resumed.end() == 0, resumed.text
    assert "was cut off, by a full disk say; its copy takes its place" in resumed.text
    assert resumed.iterations == list(range(failed - 1, 15))
    run = _trial_run(tmp_path)
    assert run.info.status == "FINISHED"
    assert _steps(tmp_path, run, "training_iteration") == list(range(1, 15))
    assert (tmp_path / "full" / "final" / "model.safetensors").is_file()
