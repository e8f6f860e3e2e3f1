"""Shipped Sokoban levels: what each level is, its file format, and loading it once per process.

A level file is gzip text. Line 1 is a JSON header (format, size, boxes, raw, seed, min_solution, max_solution, count,
sha256 of the rest); every further line is one board: 'raw-index solution twin-key rows', the solution as letters udlr
(optimal in moves), the twin key equal for boards that are mirrored or turned copies of each other, the rows joined by '/'.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from env_connectors.errors import EnvConfigError
from env_connectors.sokoban.text import MOVES

FORMAT = "sokoban-levels/1"
DATA_FOLDER = Path(__file__).parent / "data"
_HEADER_NUMBERS = ("size", "boxes", "raw", "seed", "min_solution", "max_solution", "count")
_ACTION_OF_LETTER = {action[0]: action for action in MOVES}


@dataclass(frozen=True)
class LevelSpec:
    """One difficulty: how its boards are generated and the defaults of its environment.

    Attributes:
        size: rows and columns of the board, border included.
        boxes: number of boxes.
        raw: raw boards to generate for the shipped file (seed 0).
        min_solution: fewest moves of an optimal solution kept.
        max_solution: most moves of an optimal solution kept.
        max_turns: turn budget of an episode.
        n_validation: boards of the validation panel.
        n_test: boards of the test panel.
    """

    size: int
    boxes: int
    raw: int
    min_solution: int
    max_solution: int
    max_turns: int
    n_validation: int
    n_test: int

    @property
    def name(self) -> str:
        """The name used in environment ids and task ids, e.g. '6x6-1'."""
        return level_name(self.size, self.boxes)

    @property
    def path(self) -> Path:
        """The shipped level file."""
        return DATA_FOLDER / f"{self.name}.txt.gz"


def level_name(size: int, boxes: int) -> str:
    """Return the name of a level, e.g. '6x6-1'."""
    return f"{size}x{size}-{boxes}"


LEVELS: Mapping[str, LevelSpec] = {
    spec.name: spec
    for spec in (
        LevelSpec(6, 1, 100_000, 3, 10, 12, 256, 384),
        LevelSpec(6, 2, 8_000, 3, 14, 20, 256, 384),
        LevelSpec(7, 2, 6_000, 4, 20, 25, 256, 384),
        LevelSpec(10, 4, 60, 10, 60, 80, 10, 10),
    )
}


@dataclass(frozen=True, slots=True)
class Level:
    """One board of a level file.

    Attributes:
        index: raw index under the file's seed.
        letters: optimal solution, one letter of 'udlr' a move.
        twin_key: equal for boards that are equal under the 8 symmetries of the square.
        board: rows joined by newlines.
    """

    index: int
    letters: str
    twin_key: str
    board: str

    @property
    def actions(self) -> list[str]:
        """The optimal solution as action words."""
        return [_ACTION_OF_LETTER[letter] for letter in self.letters]


@dataclass(frozen=True)
class LevelFile:
    """A loaded level file: its header and its boards in raw order."""

    header: Mapping[str, Any]
    levels: tuple[Level, ...]

    @property
    def name(self) -> str:
        """The level's name, e.g. '6x6-1'."""
        return level_name(self.header["size"], self.header["boxes"])


def generate_command(path: Path) -> str:
    """Return the command that makes the level file at `path`."""
    for spec in LEVELS.values():
        if spec.path == path:
            return f"python -m env_connectors.sokoban.generate --level {spec.name}"
    return f"python -m env_connectors.sokoban.generate --size 6 --boxes 1 --raw 1000 --min-solution 3 --out {path}"


def load_levels(path: Path) -> LevelFile:
    """Return the level file at `path`; read once per process and shared.

    Raises:
        EnvConfigError: the file is missing, no gzip text, cut short, altered, or of another format.
    """
    return _load_levels(path.resolve())


@lru_cache(maxsize=16)
def _load_levels(path: Path) -> LevelFile:
    try:
        text = gzip.decompress(path.read_bytes()).decode("ascii")
        first, _, body = text.partition("\n")
        header = json.loads(first)
        _check_header(header, body)
        levels = tuple(_parse_level(line) for line in body.splitlines())
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise EnvConfigError(
            f"levels_file={str(path)!r} cannot be read: {error}. Remedy: {generate_command(path)}"
        ) from error
    return LevelFile(header, levels)


def _check_header(header: Any, body: str) -> None:
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"its first line is not a header of format {FORMAT!r}")
    if missing := [key for key in _HEADER_NUMBERS if not isinstance(header.get(key), int)]:
        raise ValueError(f"its header has no number {missing}")
    if hashlib.sha256(body.encode("ascii")).hexdigest() != header.get("sha256"):
        raise ValueError("its boards do not match the sha256 of its header")


def _parse_level(line: str) -> Level:
    index, letters, twin_key, rows = line.split(" ")
    return Level(int(index), letters, twin_key, rows.replace("/", "\n"))


def dump_levels(levels: Sequence[Level], header: Mapping[str, Any]) -> bytes:
    """Return the bytes of a level file; equal arguments give equal bytes (the gzip header carries no time)."""
    lines = (f"{lv.index} {lv.letters} {lv.twin_key} {lv.board.replace(chr(10), '/')}\n" for lv in levels)
    body = "".join(lines)
    full = {
        "format": FORMAT,
        **header,
        "count": len(levels),
        "sha256": hashlib.sha256(body.encode("ascii")).hexdigest(),
    }
    return gzip.compress(f"{json.dumps(full)}\n{body}".encode("ascii"), compresslevel=9, mtime=0)


def symmetries(board: str) -> list[str]:
    """Return the 8 turned and mirrored copies of a board text (rows joined by newlines), itself first."""
    rows = board.split("\n")
    copies = []
    for _ in range(4):
        copies += [rows, [row[::-1] for row in rows]]
        rows = ["".join(column) for column in zip(*reversed(rows), strict=True)]
    return ["\n".join(copy) for copy in copies]


def twin_key(board: str) -> str:
    """Return 12 hex digits that are equal for all turned and mirrored copies of a board."""
    return hashlib.sha256(min(symmetries(board)).encode("ascii")).hexdigest()[:12]
