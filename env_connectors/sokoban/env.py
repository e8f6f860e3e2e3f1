"""Sokoban in text: push every box onto a target.

Observation   coords: 'walls 1,4 goal 2,3 you 4,2 box 3,2' (inner walls; row,column) | grid: rows of symbols | grid_coords: both.
Action        up | down | left | right, in any case. Anything else: nothing moves, action_valid False, the turn counts.
Start         a board of the level file; the same board for the same task id everywhere.
Reward/turn   -0.1, +-1 when the number of boxes on targets rises or falls, +10 when all are (gym-sokoban's own).
Ends          SUCCESS, or truncated after max_turns. Deadlocks are not detected (solver.is_deadlocked tells).
Info          moved (the player moved), boxes_left; progress = share of boxes on targets.
Tasks         raw boards of the level file, e.g. '6x6-1/000123'; split by board, mirrored and turned copies together
              (one of them in a held-out panel).
Needs         gym-sokoban==0.0.6. Arguments: see SokobanTextEnv.__init__.
Versions      v0 first.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from env_connectors.errors import EnvConfigError, EnvContractError
from env_connectors.sokoban.engine import BoardInPlay
from env_connectors.sokoban.levels import LEVELS, Level, LevelFile, LevelSpec, generate_command, load_levels
from env_connectors.sokoban.solver import push_plan, solve
from env_connectors.sokoban.text import MOVES, OBSERVATIONS, Board, brief_text, observation_text
from env_connectors.task_panel import Task, TaskSet
from env_connectors.text_env import StopReason, TextEnv, TextStep

_HELD_OUT_TWINS = 1  # boards of a held-out panel differ even after mirroring and turning, so they count singly
_RULES = (
    "You are solving a Sokoban puzzle: push every box onto a target. You move one cell up, down, left or right. "
    "Walking against a box pushes it one cell further if the cell behind it is free. Boxes cannot be pulled, and two "
    "boxes cannot be pushed at once, so a box in a corner that is not a target can never be freed."
)
_GRID_LEGEND = "Signs: # wall, _ floor, O target, X box, * box on target, P you, S you on a target."
_COORDS_LEGEND = (
    "Cells are given as row,column, counted from 0 at the top left: inner walls, goals (targets), you, boxes."
)


class SokobanTextEnv(TextEnv):
    """A Sokoban board played one move a turn; see the head of this file."""

    def __init__(
        self,
        level: str = "6x6-1",
        *,
        observation: str = "coords",
        max_turns: int | None = None,
        levels_file: str | Path | None = None,
        min_solution: int | None = None,
        max_solution: int | None = None,
        panel_seed: int = 0,
        n_validation: int | None = None,
        n_test: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Load the boards and build the panel (both once per process).

        Args:
            level: key of LEVELS; gives the default of every argument that is None.
            observation: 'coords', 'grid' or 'grid_coords'.
            max_turns: turn budget of an episode.
            levels_file: another level file of the same size and number of boxes.
            min_solution: fewest moves of an optimal solution; not below the bound the file was made with.
            max_solution: most moves of an optimal solution; not above the bound the file was made with.
            panel_seed: decides which boards are held out.
            n_validation: boards held out for validation.
            n_test: boards held out for the test.
            render_mode: None or 'ansi'.

        Raises:
            EnvConfigError: unknown level or observation, unreadable level file, bounds outside the file's.
            PanelError: fewer boards than the panels need.
        """
        spec = _spec(level)
        if observation not in OBSERVATIONS:
            raise EnvConfigError(f"observation={observation!r} is not known. Allowed: {', '.join(OBSERVATIONS)}.")
        path = spec.path if levels_file is None else Path(levels_file).resolve()
        bounds = (_default(min_solution, spec.min_solution), _default(max_solution, spec.max_solution))
        sizes = (_default(n_validation, spec.n_validation), _default(n_test, spec.n_test))
        self._levels, task_set = _boards(level, path, bounds, panel_seed, sizes)
        super().__init__(task_set, max_turns=_default(max_turns, spec.max_turns), render_mode=render_mode)
        legends = {"coords": _COORDS_LEGEND, "grid": _GRID_LEGEND, "grid_coords": f"{_GRID_LEGEND} {_COORDS_LEGEND}"}
        self.instructions = f"{_RULES} {legends[observation]}"
        self.observation = observation
        self.board: Board | None = None
        self._play = BoardInPlay()

    def begin(self, task: Task) -> TextStep:
        """Put up the task's board."""
        self._play.put(Board.from_text(task.content["board"]))
        return self._step(reward=0.0, action_valid=True, has_moved=False)

    def act(self, action: str) -> TextStep:
        """Play one of the four moves; anything else stands still."""
        word = action.strip().lower()
        is_valid = word in MOVES
        reward, has_moved = self._play.move(word if is_valid else None)
        return self._step(reward, is_valid, has_moved)

    def gold(self, task: Task) -> list[str]:
        """Return an optimal solution (fewest moves)."""
        level = self._levels.get(task.task_id)
        if level is not None and level.board == task.content["board"]:
            return level.actions
        actions = solve(Board.from_text(task.content["board"]))
        if actions is None:
            raise EnvConfigError(f"task {task.task_id!r} has a board without a solution: {task.content['board']!r}.")
        return actions

    def explain(self, task: Task, actions: list[str]) -> list[str]:
        """Return for each move the next push of the plan, e.g. 'push right from 2,1'."""
        return push_plan(Board.from_text(task.content["board"]), actions)

    def plan(self) -> list[tuple[str, str]]:
        """Return an optimal solution from the current position with its pushes; [] when it is deadlocked."""
        if self.board is None:
            raise EnvContractError("SokobanTextEnv has no position to plan from. Remedy: call reset() first.")
        actions = solve(self.board)
        return [] if actions is None else list(zip(push_plan(self.board, actions), actions, strict=True))

    def admissible(self) -> list[str]:
        """Return the four moves (all are always allowed; some may not move anything)."""
        return list(MOVES)

    def draw(self) -> str:
        """Return the current board as rows of symbols, '' before the first reset."""
        return "" if self.board is None else self.board.to_text()

    def _step(self, reward: float, action_valid: bool, has_moved: bool) -> TextStep:
        board = self.board = self._play.board()
        brief = brief_text(board)
        boxes_left = len(board.boxes - board.targets)
        return TextStep(
            observation=observation_text(board, self.observation),
            reward=reward,
            action_valid=action_valid,
            stop=StopReason.SUCCESS if board.is_solved else None,
            success=board.is_solved,
            anchor=f"{self._layout()} {brief}",
            brief=None if self.observation == "grid" else brief,
            progress=1.0 - boxes_left / len(board.boxes),
            info={"moved": has_moved, "boxes_left": boxes_left},
        )

    def _layout(self) -> str:
        """Return a mark of the current task, so that anchors of different boards differ."""
        return "" if self._task is None else self._task.content_hash[:12]


def _default(value: int | None, default: int) -> int:
    return default if value is None else value


def _spec(level: str) -> LevelSpec:
    if level not in LEVELS:
        raise EnvConfigError(f"level={level!r} is not known. Allowed: {', '.join(LEVELS)}.")
    return LEVELS[level]


@lru_cache(maxsize=16)
def _boards(
    level: str, path: Path, bounds: tuple[int, int], panel_seed: int, sizes: tuple[int, int]
) -> tuple[dict[str, Level], TaskSet]:
    """Return the boards within the bounds by task id, and their tasks with the panel; shared by all instances."""
    loaded = load_levels(path)
    _check_file(loaded, level, path, bounds)
    kept = {
        f"{level}/{entry.index:06d}": entry for entry in loaded.levels if bounds[0] <= len(entry.letters) <= bounds[1]
    }
    tasks = [Task(task_id, {"board": entry.board}, split_key=entry.twin_key) for task_id, entry in kept.items()]
    n_validation, n_test = sizes
    return kept, TaskSet.split(
        tasks, seed=panel_seed, n_validation=n_validation, n_test=n_test, held_out_per_key=_HELD_OUT_TWINS
    )


def _check_file(loaded: LevelFile, level: str, path: Path, bounds: tuple[int, int]) -> None:
    if loaded.name != level:
        raise EnvConfigError(f"levels_file={str(path)!r} holds level {loaded.name}, but level={level!r} was asked for.")
    low, high = loaded.header["min_solution"], loaded.header["max_solution"]
    if bounds[0] < low or bounds[1] > high or bounds[0] > bounds[1]:
        raise EnvConfigError(
            f"min_solution={bounds[0]} and max_solution={bounds[1]} do not fit levels_file={str(path)!r}, made with "
            f"{low} to {high} moves. Remedy: bounds inside, or a new file: {generate_command(path)}"
        )
