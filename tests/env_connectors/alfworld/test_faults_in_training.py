"""What happens to an iteration whose engine dies or hangs, whose games break, or whose temporary folder is full."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from arlarena_rllib import ARLArena, ARLArenaConfig
from env_connectors import make_text_env
from env_connectors.alfworld import host
from env_connectors.alfworld.host import RemoteEpisode

ENV_ID = "arlarena/ALFWorld-v0"
EPISODES = 6


def _engines() -> list[psutil.Process]:
    children = psutil.Process().children(recursive=True)
    return [child for child in children if "env_connectors.alfworld.worker" in " ".join(child.cmdline())]


@pytest.fixture
def build(tiny_model_dir: Path) -> Iterator[Any]:
    """Build an algorithm of 2 groups of 3 episodes, whose failures are not tried again; it is stopped afterwards."""
    built: list[ARLArena] = []

    def make(env_config: dict[str, Any]) -> ARLArena:
        config = (
            ARLArenaConfig()
            .environment(ENV_ID, env_config={"max_turns": 4, "observation": "compact", **env_config})
            .policy(model_path=str(tiny_model_dir))
            .env_runners(groups_per_iteration=2, group_size=3, prompt_style="compact", max_response_tokens=4)
            .env_runners(episode_retries=0)
            .training(method="grpo", num_minibatches=1)
            .serving(engine="transformers", num_replicas=0, max_model_len=1024)
            .debugging(seed=1)
        )
        built.append(config.build_algo())
        return built[-1]

    yield make
    for algorithm in built:
        algorithm.stop()
    host.close_engine()
    assert not _engines()


def _at_step(monkeypatch: pytest.MonkeyPatch, number: int, fault: Any) -> None:
    """Let ``fault`` happen right before the step of this number, counted over all episodes."""
    step, seen = RemoteEpisode.step, []

    def faulty(episode: RemoteEpisode, command: str) -> Any:
        seen.append(command)
        if len(seen) == number:
            fault()
        return step(episode, command)

    monkeypatch.setattr(RemoteEpisode, "step", faulty)


def _counts(result: dict[str, Any]) -> tuple[int, int]:
    metrics = result["env_runners"]
    return int(metrics["num_episodes"]), int(metrics["num_failed_episodes"])


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGSTOP])
def test_engine_that_dies_or_hangs_fails_the_episode_that_it_played_alone(
    build: Any, small: dict[str, Any], monkeypatch: pytest.MonkeyPatch, stop: signal.Signals
) -> None:
    algorithm = build({**small, "step_timeout_s": 10.0})
    _at_step(monkeypatch, 8, lambda: os.kill(host.engine().pid, stop))
    assert _counts(algorithm.train()) == (EPISODES - 1, 1)
    assert _counts(algorithm.train()) == (EPISODES, 0)
    assert len(_engines()) == 1


def test_game_that_breaks_fails_its_episodes_alone(build: Any, tmp_path: Path) -> None:
    """All games of one folder of the official layout are found, then one is cut off before it is played."""
    command = [sys.executable, "-m", "env_connectors.alfworld.generate", "--out", str(tmp_path / "games")]
    sizes = ["--n-train", "2", "--n-seen", "2", "--n-unseen", "2", "--rooms", "2"]
    subprocess.run([*command, *sizes], check=True, capture_output=True)
    algorithm = build({"data": str(tmp_path / "games")})
    broken, whole = make_text_env(ENV_ID, data=str(tmp_path / "games")).tasks().train
    (file,) = (tmp_path / "games").rglob("/".join([*Path(broken).parts[-2:], "game.tw-pddl"]))
    os.truncate(file, file.stat().st_size // 2)
    assert _counts(algorithm.train()) == (3, 3)
    assert whole != broken


def test_engine_needs_no_room_in_the_temporary_folder(
    build: Any, small: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nowhere = tmp_path / "full"
    nowhere.touch()  # no file can be made in a file
    host.close_engine()
    assert tempfile.gettempdir() != str(nowhere)  # this process keeps its own, for the weights
    monkeypatch.setenv("TMPDIR", str(nowhere))
    assert _counts(build(small).train()) == (EPISODES, 0)
    assert _engines()[0].environ()["TMPDIR"] == str(nowhere)
