"""Transcripts are those of the plain engine, byte for byte, on official and on generated games.

Each game is played with random commands and an impossible one, then with the oracle's until it is won. ALFWORLD_TRANSCRIPTS
sets the number of official games (default 2).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from env_connectors import make_text_env
from env_connectors.alfworld.env import AlfworldTextEnv
from env_connectors.alfworld.generate import write_games
from env_connectors.alfworld.generated import GeneratedSpec

ENV_ID = "arlarena/ALFWorld-v0"
_PLAIN = Path(__file__).with_name("plain_engine.py")
_RANDOM_ACTIONS = 10


def _plain(jobs: list[tuple[Path, list[str]]]) -> list[dict[str, Any]]:
    paths = os.pathsep.join(filter(None, sys.path))
    finished = subprocess.run(
        [sys.executable, str(_PLAIN)],
        input=json.dumps([[str(path), commands] for path, commands in jobs]),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "7"},
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    return json.loads(finished.stdout.splitlines()[-1])


def _ours(env: AlfworldTextEnv, task_id: str) -> tuple[list[str], list[list[Any]]]:
    """Return the commands that were played and their entries, 'help' and all."""
    rng = random.Random(task_id)
    env.reset(options={"task_id": task_id})
    episode = env._playing()
    commands: list[str] = []
    entries = [[episode.view.text, episode.view.commands, episode.view.won]]
    plan: list[str] | None = None
    while not episode.view.won:
        if len(commands) < _RANDOM_ACTIONS:
            command = "fly to the moon" if len(commands) == 5 else rng.choice(episode.view.commands)
        else:
            plan = [action for _, action in env.plan()] if plan is None else plan
            command = plan.pop(0)
        commands.append(command)
        view = episode.step(command)
        entries.append([view.text, view.commands, view.won])
    return commands, entries


def _compare(data: Path, task_ids: list[str]) -> int:
    """Compare the transcripts of these games and return the number of entries."""
    env = make_text_env(ENV_ID, data=str(data))
    assert isinstance(env, AlfworldTextEnv)
    files = [data / "json_2.1.1" / task_id.removeprefix("generated/") / "game.tw-pddl" for task_id in task_ids]
    played = [_ours(env, task_id) for task_id in task_ids]
    plain = _plain([(file, commands) for file, (commands, _) in zip(files, played, strict=True)])
    for task_id, (_, entries), run in zip(task_ids, played, plain, strict=True):
        assert entries == run["entries"], task_id
    return sum(len(entries) for _, entries in played)


def test_official_games_give_the_transcripts_of_the_plain_engine(official: Path) -> None:
    number = int(os.environ.get("ALFWORLD_TRANSCRIPTS", "2"))
    panel = make_text_env(ENV_ID, data=str(official)).tasks()
    ids = random.Random(1).sample(sorted([*panel.validation, *panel.train]), number)
    assert _compare(official, ids) >= number * (_RANDOM_ACTIONS + 3)


def test_generated_games_give_the_transcripts_of_the_plain_engine(tmp_path: Path) -> None:
    spec = GeneratedSpec(n_train=6, n_seen=0, n_unseen=0, rooms=1, unseen_rooms=0, max_receptacles=6, max_things=6)
    write_games(tmp_path, spec)
    ids = list(make_text_env(ENV_ID, data=str(tmp_path)).tasks().train)
    assert _compare(tmp_path, ids) >= 6 * (_RANDOM_ACTIONS + 3)


def test_games_from_before_0_4_are_upgraded_on_load(official: Path, tmp_path: Path) -> None:
    env = make_text_env(ENV_ID, data=str(official), n_train=1)
    task_id = env.tasks().train[0]
    source, folder = official / "json_2.1.1" / task_id, tmp_path / "json_2.1.1" / task_id
    folder.mkdir(parents=True)
    old = json.loads((source / "game.tw-pddl").read_text())
    old["grammar"] = old["grammar"].replace("move {o} to {r}", "put {o} in/on {r}")
    old["pddl_domain"] = "(define (domain alfred))"
    (folder / "game.tw-pddl").write_text(json.dumps(old))
    (folder / "traj_data.json").write_text((source / "traj_data.json").read_text())
    upgraded = make_text_env(ENV_ID, data=str(tmp_path))
    assert upgraded.task(task_id) == env.task(task_id)
    assert upgraded.gold_actions(task_id) == env.gold_actions(task_id)
