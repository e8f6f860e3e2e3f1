"""Sokoban boards as text: the board type, its symbols, and the observation texts made from it.

Symbols (ASCII): '#' wall, '_' floor, 'O' target, 'X' box, '*' box on target, 'P' player, 'S' player on target.
Cells are (row, column), counted from 0 at the top left corner of the board, border included.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from env_connectors.errors import EnvConfigError

Cell = tuple[int, int]
SYMBOLS = "#_OX*PS"
MOVES: dict[str, Cell] = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
OBSERVATIONS = ("coords", "grid", "grid_coords")


@dataclass(frozen=True)
class Board:
    """One Sokoban position.

    Attributes:
        height: rows, border included.
        width: columns, border included.
        walls: wall cells, border included.
        targets: cells that want a box.
        boxes: cells that hold a box (on a target or not).
        player: cell of the player.
    """

    height: int
    width: int
    walls: frozenset[Cell]
    targets: frozenset[Cell]
    boxes: frozenset[Cell]
    player: Cell

    @classmethod
    def from_text(cls, text: str) -> Board:
        """Return the board drawn in `text` (rows joined by newlines).

        Raises:
            EnvConfigError: rows of different lengths, an unknown symbol, an open border, not exactly one player, no
                box, or a number of boxes that is not the number of targets.
        """
        rows = text.split("\n")
        cells = {(r, c): symbol for r, row in enumerate(rows) for c, symbol in enumerate(row)}
        if len(cells) != len(rows) * len(rows[0]) or not set(cells.values()) <= set(SYMBOLS):
            raise EnvConfigError(f"board={text!r} is not a rectangle of the symbols {SYMBOLS!r}.")
        players = _cells_with(cells, "PS")
        boxes, targets = _cells_with(cells, "X*"), _cells_with(cells, "O*S")
        if len(players) != 1 or not boxes or len(boxes) != len(targets):
            raise EnvConfigError(
                f"board={text!r} has {len(players)} players, {len(boxes)} boxes and {len(targets)} targets; "
                "allowed: one player, at least one box, as many targets as boxes."
            )
        walls = _cells_with(cells, "#")
        if any(r in (0, len(rows) - 1) or c in (0, len(rows[0]) - 1) for r, c in cells.keys() - walls):
            raise EnvConfigError(f"board={text!r} is open at the border; every border cell must be a wall '#'.")
        return cls(len(rows), len(rows[0]), walls, targets, boxes, min(players))

    def to_text(self) -> str:
        """Return the board as rows joined by newlines; `Board.from_text` reads it back."""
        return "\n".join("".join(self.symbol((r, c)) for c in range(self.width)) for r in range(self.height))

    def symbol(self, cell: Cell) -> str:
        """Return the symbol drawn at `cell`."""
        if cell in self.walls:
            return "#"
        is_target = cell in self.targets
        if cell in self.boxes:
            return "*" if is_target else "X"
        if cell == self.player:
            return "S" if is_target else "P"
        return "O" if is_target else "_"

    @property
    def inner_walls(self) -> frozenset[Cell]:
        """Wall cells that are not on the border."""
        return frozenset((r, c) for r, c in self.walls if 0 < r < self.height - 1 and 0 < c < self.width - 1)

    @property
    def is_solved(self) -> bool:
        """True when every box is on a target."""
        return self.boxes == self.targets


def _cells_with(cells: dict[Cell, str], symbols: str) -> frozenset[Cell]:
    return frozenset(cell for cell, symbol in cells.items() if symbol in symbols)


def cell_text(cell: Cell) -> str:
    """Return a cell as 'row,column'."""
    return f"{cell[0]},{cell[1]}"


def _listing(word: str, cells: Iterable[Cell]) -> str:
    return " ".join([word, *map(cell_text, sorted(cells))])


def brief_text(board: Board) -> str:
    """Return what can change in a board, e.g. 'you 4,2 box 3,2' (boxes sorted)."""
    return f"you {cell_text(board.player)} {_listing('box', board.boxes)}"


def coords_text(board: Board) -> str:
    """Return the board as coordinates, e.g. 'walls 1,4 2,4 goal 2,3 you 4,2 box 3,2'.

    Only inner walls are named; the word 'walls' is there even when there are none.
    """
    return f"{_listing('walls', board.inner_walls)} {_listing('goal', board.targets)} {brief_text(board)}"


def grid_text(board: Board) -> str:
    """Return the board as rows of symbols parted by blanks, so that a tokenizer sees one sign a cell."""
    return "\n".join(" ".join(row) for row in board.to_text().split("\n"))


def observation_text(board: Board, kind: str) -> str:
    """Return the observation of the asked `kind` (one of OBSERVATIONS)."""
    if kind == "coords":
        return coords_text(board)
    if kind == "grid":
        return grid_text(board)
    return f"{grid_text(board)}\n{coords_text(board)}"
