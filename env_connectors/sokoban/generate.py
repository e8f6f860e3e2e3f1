"""Makes Sokoban level files: python -m env_connectors.sokoban.generate --level 6x6-1

Or any other level: --size 8 --boxes 2 --raw 2000 --seed 0 --min-solution 4 --max-solution 30 --out 8x8-2.txt.gz
Same arguments, same bytes. One process; progress goes to stderr.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from env_connectors.sokoban.engine import generate_board
from env_connectors.sokoban.levels import LEVELS, Level, dump_levels, level_name, twin_key
from env_connectors.sokoban.solver import solve

_SECONDS_BETWEEN_REPORTS = 5.0


def generate_levels(
    size: int, boxes: int, raw: int, seed: int, min_solution: int, max_solution: int
) -> Iterator[tuple[int, Level | None]]:
    """Yield (raw index, level) for every raw board; None for one that is unusable, seen before, too short or too long."""
    seen: set[str] = set()
    for index in range(raw):
        board = generate_board(size, boxes, seed, index)
        text = "" if board is None else board.to_text()
        if board is None or text in seen:
            yield index, None
            continue
        seen.add(text)
        actions = solve(board)
        if actions is None or not min_solution <= len(actions) <= max_solution:
            yield index, None
            continue
        yield index, Level(index, "".join(action[0] for action in actions), twin_key(text), text)


def _with_progress(items: Iterator[tuple[int, Level | None]], label: str, raw: int) -> list[Level]:
    levels: list[Level] = []
    started = reported = time.monotonic()
    for index, level in items:
        if level is not None:
            levels.append(level)
        now = time.monotonic()
        if now - reported >= _SECONDS_BETWEEN_REPORTS or index + 1 == raw:
            reported, pace_ms = now, 1000 * (now - started) / (index + 1)
            print(f"{label}: {index + 1}/{raw} raw, {len(levels)} kept, {pace_ms:.1f} ms each", file=sys.stderr)
    return levels


def _parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", choices=sorted(LEVELS), help="a shipped level; sets everything below")
    for option in ("size", "boxes", "raw", "min-solution", "max-solution"):
        parser.add_argument(f"--{option}", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="default for --level: the shipped file")
    options = parser.parse_args(arguments)
    if options.level:
        spec = LEVELS[options.level]
        for name in ("size", "boxes", "raw", "min_solution", "max_solution"):
            setattr(options, name, getattr(options, name) or getattr(spec, name))
        options.out = options.out or spec.path
    if not (options.size and options.boxes and options.raw and options.out):
        parser.error("give --level, or all of --size --boxes --raw --out")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Generate one level file and return the exit code."""
    options = _parse_arguments(arguments)
    bounds = {
        "min_solution": options.min_solution or 1,
        "max_solution": options.max_solution or 10**6,
    }
    origin = {"size": options.size, "boxes": options.boxes, "raw": options.raw, "seed": options.seed}
    levels = _with_progress(generate_levels(**origin, **bounds), level_name(options.size, options.boxes), options.raw)
    options.out.write_bytes(dump_levels(levels, {**origin, **bounds}))
    print(f"{options.out}: {len(levels)} boards, {options.out.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
