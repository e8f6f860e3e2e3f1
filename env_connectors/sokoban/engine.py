"""The gym-sokoban engine behind the text environment: silent import, board generation, one board in play."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from env_connectors.errors import EnvConfigError
from env_connectors.sokoban.text import MOVES, Board

_ENGINE_CODES = "#_O*XP"  # position = gym-sokoban's code; 6 (player on target) is only ever drawn
_ENGINE_ACTIONS = {action: number for number, action in enumerate(MOVES, start=1)}
_NO_OPERATION = 0
_NO_STEP_LIMIT = 10**9


@lru_cache(maxsize=1)
def load_engine() -> ModuleType:
    """Return the module gym_sokoban.envs.sokoban_env, imported without notices and warnings.

    gym-sokoban imports the old `gym`, which prints that it is no longer maintained, and `pkg_resources`, which warns
    that it is deprecated. Both are known and of no use to a user, so they are silenced here and nowhere else.

    Raises:
        EnvConfigError: the engine is not installed.
    """
    try:
        from gym_notices import notices

        notices.notices.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from gym_sokoban.envs import sokoban_env
    except ImportError as error:
        raise EnvConfigError(
            f"Sokoban needs gym-sokoban ({error}). Remedy: pip install 'gym-sokoban==0.0.6' 'gym==0.26.2' 'setuptools<81'."
        ) from error
    return sokoban_env


@contextmanager
def _global_random_state(seeds: tuple[int, int]) -> Iterator[None]:
    """Seed `random` and `numpy.random` inside the block and put their states back after it."""
    states = random.getstate(), np.random.get_state()
    random.seed(seeds[0])
    np.random.seed(seeds[1])
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


def generate_board(size: int, boxes: int, seed: int, index: int) -> Board | None:
    """Return raw board `index` of a seed, or None where gym-sokoban finds no room for it.

    The generator draws from the two global generators, so both are seeded from SeedSequence([seed, size, boxes, index])
    and their states are restored afterwards.
    """
    engine = load_engine()
    first, second = np.random.SeedSequence([seed, size, boxes, index]).generate_state(2)
    with _global_random_state((int(first), int(second))):
        try:
            fixed, state, _ = engine.generate_room(dim=(size, size), num_steps=int(1.7 * 2 * size), num_boxes=boxes)
        except (RuntimeError, RuntimeWarning):  # its two words for "no room found with these random numbers"
            return None
    return _board_from_arrays(fixed, state)


def _board_from_arrays(fixed: np.ndarray, state: np.ndarray) -> Board:
    """Return the board of gym-sokoban's arrays: fixed parts and full state, [rows, columns] int, codes 0-5."""
    rows = [[_ENGINE_CODES[int(code)] for code in row] for row in state]
    (row, column), *_ = np.argwhere(state == 5)
    if fixed[row, column] == 2:
        rows[row][column] = "S"
    return Board.from_text("\n".join(map("".join, rows)))


class BoardInPlay:
    """One Sokoban board played by the rules and rewards of gym_sokoban.SokobanEnv.

    The engine's own step limit is switched off: the turn budget belongs to the text environment.
    """

    def __init__(self) -> None:
        self._engine: Any = load_engine().SokobanEnv(reset=False)
        self._engine.render = lambda mode: None  # step() would paint a picture that nobody looks at

    def put(self, board: Board) -> None:
        """Set up `board` as the start of a new episode."""
        state = np.array([[_code(board, (r, c)) for c in range(board.width)] for r in range(board.height)])
        engine = self._engine
        engine.room_state = state
        engine.room_fixed = np.where(state == 4, 1, state)
        for cell in board.targets:
            engine.room_fixed[cell] = 2
        engine.room_fixed[board.player] = 2 if board.player in board.targets else 1
        engine.player_position = np.array(board.player)
        engine.num_boxes = len(board.boxes)
        engine.boxes_on_target = len(board.boxes & board.targets)
        engine.num_env_steps, engine.reward_last, engine.max_steps = 0, 0, _NO_STEP_LIMIT

    def move(self, action: str | None) -> tuple[float, bool]:
        """Play one of the four moves (None: stand still) and return (reward, did the player move)."""
        number = _NO_OPERATION if action is None else _ENGINE_ACTIONS[action]
        _, reward, _, info = self._engine.step(number, observation_mode="tiny_rgb_array")
        return float(reward), bool(info["action.moved_player"])

    def board(self) -> Board:
        """Return the current position."""
        return _board_from_arrays(self._engine.room_fixed, self._engine.room_state)


def _code(board: Board, cell: tuple[int, int]) -> int:
    symbol = board.symbol(cell)
    return 5 if symbol == "S" else _ENGINE_CODES.index(symbol)
