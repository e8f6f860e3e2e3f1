"""What the alfworld package ships about rooms and things, read without importing the package.

Importing alfworld makes a folder in the user's cache and sets $ALFWORLD_DATA, which decides where games are looked for.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from env_connectors.errors import EnvConfigError

ROOM_KINDS = ("Kitchen", "LivingRoom", "Bedroom", "Bathroom")
_BASINS = {"SinkBasin": "Sink", "BathtubBasin": "Bathtub"}


@dataclass(frozen=True)
class Furniture:
    """A receptacle of a room: its id in ALFRED's form and the place to stand, (x, z, turn, tilt)."""

    name: str
    kind: str
    place: tuple[int, int, int, int]


@dataclass(frozen=True)
class Room:
    """A room: all its furniture, ordered, and the kinds of things that belong there."""

    number: int
    kind: str
    furniture: tuple[Furniture, ...]
    thing_kinds: tuple[str, ...]


@dataclass(frozen=True)
class Catalogue:
    """Kinds and rules.

    Attributes:
        holds: receptacle kind -> thing kinds that it may hold.
        openable: receptacle kinds with a door.
        movable: thing kinds that can hold things themselves.
        able: 'Heatable', 'Coolable', 'Cleanable', 'Toggleable', 'Sliceable' -> thing kinds.
        rooms_of_task: task type -> room kinds.
        goals: task type -> (goal in PDDL, sentences).
        numbers: room kind -> room numbers.
        domain: the PDDL domain.
        grammar: the grammar, its task sentence still UNKNOWN GOAL.
    """

    holds: Mapping[str, frozenset[str]]
    openable: frozenset[str]
    movable: frozenset[str]
    able: Mapping[str, frozenset[str]]
    rooms_of_task: Mapping[str, frozenset[str]]
    goals: Mapping[str, tuple[str, tuple[str, ...]]]
    numbers: Mapping[str, tuple[int, ...]]
    domain: str
    grammar: str


def _package() -> Path:
    spec = importlib.util.find_spec("alfworld")
    if spec is None or not spec.submodule_search_locations:
        raise EnvConfigError(
            "generated games need the package alfworld. Remedy: pip install 'arlarena-rllib[alfworld]'."
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_alfworld_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise EnvConfigError(f"{path} is missing from the installed alfworld. Remedy: install alfworld 0.4.2 again.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def catalogue() -> Catalogue:
    """Return the installed package's catalogue."""
    package = _package()
    constants, library = _load(package / "gen" / "constants.py"), _load(package / "gen" / "goal_library.py")
    movable = frozenset(constants.MOVABLE_RECEPTACLES_SET)
    holds = {kind: frozenset(held) for kind, held in constants.VAL_RECEPTACLE_OBJECTS.items() if kind not in movable}
    return Catalogue(
        holds=holds,
        openable=frozenset(constants.OPENABLE_CLASS_SET) - movable,
        movable=movable,
        able={name: frozenset(kinds) for name, kinds in constants.VAL_ACTION_OBJECTS.items()},
        rooms_of_task={goal: frozenset(kinds) for goal, kinds in constants.GOALS_VALID.items()},
        goals={
            name: (entry["pddl"].replace("#", "-"), tuple(entry["templates"])) for name, entry in library.gdict.items()
        },
        numbers={kind: tuple(constants.SCENE_TYPE[kind]) for kind in ROOM_KINDS},
        domain=(package / "data" / "alfred.pddl").read_text(),
        grammar=(package / "data" / "alfred.twl2").read_text(),
    )


@cache
def room(number: int) -> Room:
    """Return a room by its number.

    Furniture whose place the package knows stands there; the rest (burners, basins, bins) gets a place of its own.
    """
    known = catalogue()
    layouts = _package() / "gen" / "layouts"
    kinds = sorted(set(json.loads((layouts / f"FloorPlan{number}-objects.json").read_text())))
    places = json.loads((layouts / f"FloorPlan{number}-openable.json").read_text())
    furniture = []
    for name, (x, z, turn, tilt) in sorted(places.items()):
        kind = name.split("|")[0]
        if kind in known.holds:
            furniture.append(Furniture(name, kind, (round(x / 0.25), round(z / 0.25), int(turn) // 90, int(tilt))))
    placed = {it.kind for it in furniture}
    for index, kind in enumerate(kind for kind in kinds if kind in known.holds and kind not in placed):
        where = f"|+{index + 20:02d}.00|+00.90|+{index:02d}.50"
        name = f"{_BASINS[kind]}{where}|{kind}" if kind in _BASINS else f"{kind}{where}"
        furniture.append(Furniture(name, kind, (100 + index, index, 0, 30)))
    fitting = frozenset().union(*(known.holds[it.kind] for it in furniture))
    lamps = known.able["Toggleable"]
    things = tuple(kind for kind in kinds if (kind in fitting or kind in lamps) and kind not in known.holds)
    room_kind = next(kind for kind, numbers in known.numbers.items() if number in numbers)
    return Room(number, room_kind, tuple(furniture), things)


def pddl_name(name: str) -> str:
    """Return an id of ALFRED as it stands in a planning problem, e.g. 'Mug|+01.20|-00.50' -> 'Mug_bar__plus_01_dot_20...'."""
    replaced = name.replace("|", "_bar_").replace("-", "_minus_").replace("+", "_plus_").replace(".", "_dot_")
    return re.sub(r"\W", "", replaced)
