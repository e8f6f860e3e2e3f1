"""Games in ALFWorld's official layout: finding them, reading one, and naming what is broken.

Layout: ROOT/json_2.1.1/<split>/<task>/<trial>/{game.tw-pddl, traj_data.json} with the splits train, valid_seen and
valid_unseen. As in alfworld, games without game.tw-pddl, without `solvable: true`, or with movable or sliced objects are
no games for the text engine. Domain and grammar are always those of the installed alfworld, so that games written before
0.4 are upgraded on load: of a game file only its planning problem and its task sentence are used.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from env_connectors.alfworld.goals import TASK_TYPES, Goal, read_goal
from env_connectors.errors import EnvConfigError, EnvConnectorError
from env_connectors.task_panel import Task

LAYOUT = "json_2.1.1"
MADE_BY = "generated.json"  # beside the splits: the games below were made by this project, with these values
SPLIT_FOLDERS = ("train", "valid_seen", "valid_unseen")
GAME_FILE, TRAJECTORY_FILE = "game.tw-pddl", "traj_data.json"
_UNPLAYABLE = ("movable", "Sliced")
_SENTENCE = re.compile(r'"rhs":\s*"Your task is to: ((?:[^"\\]|\\.)*)"')
_NAME = re.compile(r"\(define\s*\(problem [^)]*\)")
_log = logging.getLogger(__name__)


class GameFileError(EnvConnectorError, ValueError):
    """A game that cannot be played as it stands; the message names its file."""


@dataclass(frozen=True)
class GameText:
    """What the engine needs of a game: the planning problem, the task sentence, and the goal read from the problem."""

    problem: str
    sentence: str
    goal: Goal

    @property
    def content(self) -> dict[str, str]:
        """What decides every episode, short: equal for equal games whatever their file looks like."""
        unnamed = _NAME.sub("(define (problem game)", self.problem, count=1)
        digest = hashlib.sha256(" ".join(unnamed.split()).encode()).hexdigest()
        return {"problem": digest, "sentence": self.sentence, "task_type": self.goal.task_type}


class GameSource(Protocol):
    """Where a game comes from; `read` may be called again at any time and gives the same text."""

    def read(self) -> GameText:
        """Return the game; raises GameFileError."""


@dataclass(frozen=True)
class FileSource:
    """A game in a folder of the official layout."""

    folder: Path
    task_type: str

    def read(self) -> GameText:
        """Return the game in this folder; raises GameFileError."""
        return read_game(self.folder / GAME_FILE, self.task_type)


@dataclass(frozen=True)
class Game:
    """One game: its task, its goal, and where its text comes from."""

    task: Task
    goal: Goal
    source: GameSource = field(compare=False)

    @property
    def task_type(self) -> str:
        """One of TASK_TYPES."""
        return self.goal.task_type

    def read(self) -> GameText:
        """Return the game's text.

        Raises:
            GameFileError: it cannot be read, or is not the game that this task was made from.
        """
        text = self.source.read()
        if text.content != self.task.content:
            raise GameFileError(f"the game of task {self.task.task_id!r} is not the one it was; its file has changed.")
        return text


@dataclass(frozen=True)
class GameSet:
    """All games of a data folder by split folder, and what was left out.

    Attributes:
        label: 'official' or 'generated'.
        games: split folder -> games, ordered by id.
        broken: game folder -> why it was skipped.
        unplayable: number of folders that are no games for the text engine.
    """

    label: str
    games: Mapping[str, tuple[Game, ...]]
    broken: Mapping[str, str] = field(default_factory=dict)
    unplayable: int = 0


def read_game(path: Path, task_type: str) -> GameText:
    """Return the game of a game.tw-pddl file.

    Raises:
        GameFileError: the file is missing, cut short, not JSON, or lacks the problem, its goal or the task sentence.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return _game_text(data, task_type)
    except (OSError, ValueError, KeyError, TypeError, EnvConfigError) as error:
        reason = f"{type(error).__name__}: {error}" if isinstance(error, (KeyError, TypeError)) else str(error)
        raise GameFileError(f"{path} cannot be read as a game: {reason}") from error


def _game_text(data: Any, task_type: str) -> GameText:
    problem, sentence = data["pddl_problem"], _SENTENCE.search(data["grammar"])
    if sentence is None:
        raise ValueError("its grammar has no sentence 'Your task is to: ...'")
    if not problem.rstrip().endswith(")") or "(:init" not in problem:
        raise ValueError("its planning problem is cut short")
    return GameText(problem, json.loads(f'"{sentence[1]}"'), read_goal(problem, task_type))


def data_root(path: str | Path) -> Path:
    """Return the folder that holds the splits, given it or the folder above it.

    Raises:
        EnvConfigError: there is no such folder, or it holds no split; the message says what is missing.
    """
    given = Path(os.path.expandvars(str(path))).expanduser()
    root = given / LAYOUT if (given / LAYOUT).is_dir() else given
    if not any((root / split).is_dir() for split in SPLIT_FOLDERS):
        raise EnvConfigError(
            f"data={str(path)!r} holds no ALFWorld games: neither {given / LAYOUT} nor {given} has a folder "
            f"{', '.join(SPLIT_FOLDERS)}. Remedy: download them with alfworld-download, or set data=generated."
        )
    return root.resolve()


@lru_cache(maxsize=4)
def collect_games(root: Path) -> GameSet:
    """Return the games below a folder that `data_root` gave; read once per process.

    Raises:
        EnvConfigError: no game at all can be played.
    """
    label = "generated" if (root / MADE_BY).exists() else "official"
    games: dict[str, tuple[Game, ...]] = {}
    broken: dict[str, str] = {}
    unplayable = 0
    for split in SPLIT_FOLDERS:
        found = []
        for folder in _trial_folders(root / split):
            try:
                game = _read_trial(root, folder, "generated/" if label == "generated" else "")
            except GameFileError as error:
                broken[str(folder)] = str(error)
                continue
            if game is None:
                unplayable += 1
            else:
                found.append(game)
        games[split] = tuple(found)
    if not any(games.values()):
        first = f" The first: {next(iter(broken.values()))}" if broken else ""
        raise EnvConfigError(
            f"data={str(root)!r} holds no playable game: {len(broken)} are broken and {unplayable} are not for the text "
            f"engine.{first} Remedy: download them again, or set data=generated."
        )
    if broken:
        shown = "; ".join(list(broken.values())[:3])
        _log.warning("%d broken ALFWorld games below %s are left out: %s", len(broken), root, shown)
    return GameSet(label, games, broken, unplayable)


def _trial_folders(split: Path) -> list[Path]:
    return sorted(Path(where) for where, _, files in os.walk(split) if TRAJECTORY_FILE in files)


def _read_trial(root: Path, folder: Path, prefix: str) -> Game | None:
    """Return the game in a folder, None if it is none for the text engine."""
    name = folder.relative_to(root).as_posix()
    path = folder / GAME_FILE
    if any(word in name for word in _UNPLAYABLE) or not path.exists():
        return None
    try:
        task_type = json.loads((folder / TRAJECTORY_FILE).read_text(encoding="utf-8"))["task_type"]
        data = json.loads(path.read_text(encoding="utf-8"))
        if task_type not in TASK_TYPES or not data.get("solvable", False):
            return None
        text = _game_text(data, task_type)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EnvConfigError) as error:
        raise GameFileError(f"{folder} cannot be read as a game: {type(error).__name__}: {error}") from error
    return Game(Task(prefix + name, text.content), text.goal, FileSource(folder, task_type))


def find_root(data: str | None) -> Path | None:
    """Return the folder that holds the splits, None for generated games, by the stated order.

    1. `data`, a folder, or 'generated'; 2. $ALFWORLD_DATA; 3. generated games.

    Raises:
        EnvConfigError: a folder is named, by either way, but holds no games: it is never silently replaced.
    """
    if data == "generated":
        return None
    if data:
        return data_root(data)
    if os.environ.get("ALFWORLD_DATA"):
        try:
            return data_root(os.environ["ALFWORLD_DATA"])
        except EnvConfigError as error:
            raise EnvConfigError(f"$ALFWORLD_DATA: {error}") from None
    return None
