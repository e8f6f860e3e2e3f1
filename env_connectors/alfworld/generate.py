"""Writes generated games in the official layout: `python -m env_connectors.alfworld.generate --out DIR [--n-train 480 ...]`.

Then `data=DIR` (or ALFWORLD_DATA=DIR) plays them, here and with the plain alfworld package. A file generated.json beside
the splits says how they were made; by it they are labelled as generated wherever they are loaded.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from env_connectors.alfworld.catalogue import catalogue
from env_connectors.alfworld.games import GAME_FILE, LAYOUT, MADE_BY, TRAJECTORY_FILE, Game
from env_connectors.alfworld.generated import LABEL, GeneratedSource, GeneratedSpec, generate_games, spec_dict
from env_connectors.alfworld.goals import TASK_TYPES
from env_connectors.errors import EnvConfigError


def write_games(out: Path, spec: GeneratedSpec, task_types: Sequence[str] = TASK_TYPES) -> dict[str, int]:
    """Write the games of a spec below `out` and return how many there are in each split.

    Raises:
        EnvConfigError: `out` holds games already, or the spec gives none.
    """
    root = out / LAYOUT
    if root.exists():
        raise EnvConfigError(f"out={str(out)!r} holds games already. Remedy: another folder.")
    games = generate_games(spec, tuple(task_types)).games
    for found in games.values():
        for game in found:
            _write_game(root, game)
    made = spec_dict(spec) | {"task_types": list(task_types)}
    (root / MADE_BY).write_text(json.dumps(made, indent=2) + "\n")
    return {split: len(found) for split, found in games.items()}


def _write_game(root: Path, game: Game) -> None:
    folder = root / game.task.task_id.removeprefix(f"{LABEL}/")
    folder.mkdir(parents=True)
    text, source = game.read(), game.source
    assert isinstance(source, GeneratedSource)
    asked, is_look = source.combination, bool(text.goal.lamp)
    grammar = catalogue().grammar.replace("UNKNOWN GOAL", text.sentence.removesuffix("."))
    game_file = {
        "pddl_domain": catalogue().domain,
        "grammar": grammar,
        "pddl_problem": text.problem,
        "solvable": True,
    }
    targets = {
        "object_target": asked.thing,
        "parent_target": "" if is_look else asked.receptacle,
        "toggle_target": asked.receptacle if is_look else "",
        "mrecep_target": "",
        "object_sliced": False,
    }
    trajectory = {
        "task_id": folder.name,
        "task_type": asked.task_type,
        "pddl_params": targets,
        "scene": {"floor_plan": f"FloorPlan{asked.room}", "scene_num": asked.room},
        "turk_annotations": {"anns": []},
    }
    (folder / GAME_FILE).write_text(json.dumps(game_file))
    (folder / TRAJECTORY_FILE).write_text(json.dumps(trajectory))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the games that the command line asks for; return 1 with one line when that cannot be done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--task-types", nargs="+", default=list(TASK_TYPES), choices=TASK_TYPES)
    for entry in fields(GeneratedSpec):
        many = {"nargs": "+", "type": str} if entry.name == "room_kinds" else {"type": int}
        parser.add_argument(f"--{entry.name.replace('_', '-')}", default=entry.default, **many)  # type: ignore[arg-type]
    options = vars(parser.parse_args(arguments))
    out, task_types = options.pop("out"), options.pop("task_types")
    try:
        counts = write_games(out, GeneratedSpec.read(options), task_types)
    except (EnvConfigError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(f"wrote {counts} to {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
