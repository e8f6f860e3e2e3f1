"""Games made by the project from what alfworld ships: the same layout, the same six task types, every game solvable.

A game is a room with its furniture, things laid out at random, and a task. What is asked for is there: the things, a place
that may hold them, the basin, microwave, fridge or lamp that the task needs, and the goal is not met at the start.
Splits: valid_unseen plays in rooms of its own; train and valid_seen share rooms but no combination of task type, thing,
receptacle and room.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from typing import Any

from env_connectors.alfworld.catalogue import ROOM_KINDS, Furniture, Room, catalogue, pddl_name, room
from env_connectors.alfworld.games import SPLIT_FOLDERS, Game, GameSet, GameText
from env_connectors.alfworld.goals import CLEAN, COOL, HEAT, LOOK, STATION_OF, TASK_TYPES, TWO, read_goal
from env_connectors.errors import EnvConfigError
from env_connectors.task_panel import Task

LABEL = "generated"
_ABLE = {CLEAN: "Cleanable", HEAT: "Heatable", COOL: "Coolable"}
_PROPERTIES = {"Cleanable": "cleanable", "Heatable": "heatable", "Coolable": "coolable", "Sliceable": "sliceable"}
_SEEN_SHARE = 5  # every fifth combination of a room is held out for valid_seen


@dataclass(frozen=True)
class GeneratedSpec:
    """Which games are made; equal specs give equal games everywhere.

    Attributes:
        seed: decides rooms, combinations and where things lie.
        n_train: games of train.
        n_seen: games of valid_seen.
        n_unseen: games of valid_unseen.
        rooms: rooms of each kind for train and valid_seen, at most 29.
        unseen_rooms: further rooms of each kind for valid_unseen; together at most 30.
        room_kinds: those to use.
        max_receptacles: most pieces of furniture in a room, at least 4.
        max_things: most things in a room, at least 2.
    """

    seed: int = 0
    n_train: int = 480
    n_seen: int = 60
    n_unseen: int = 60
    rooms: int = 24
    unseen_rooms: int = 6
    room_kinds: tuple[str, ...] = ROOM_KINDS
    max_receptacles: int = 24
    max_things: int = 36

    def __post_init__(self) -> None:
        """Refuse values that give no game."""
        least = {
            "n_train": 1,
            "n_seen": 0,
            "n_unseen": 0,
            "rooms": 1,
            "unseen_rooms": 0,
            "max_receptacles": 4,
            "max_things": 2,
        }
        for name, low in least.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise EnvConfigError(f"generated.{name}={value!r} is not allowed. Allowed: whole numbers from {low}.")
        if self.rooms + self.unseen_rooms > 30:
            raise EnvConfigError(
                f"generated.rooms={self.rooms} and unseen_rooms={self.unseen_rooms} exceed the 30 there are."
            )
        if self.n_unseen and not self.unseen_rooms:
            raise EnvConfigError(f"generated.n_unseen={self.n_unseen} needs unseen_rooms of at least 1.")
        if not self.room_kinds or set(self.room_kinds) - set(ROOM_KINDS):
            raise EnvConfigError(
                f"generated.room_kinds={list(self.room_kinds)!r} is not allowed. Allowed: {', '.join(ROOM_KINDS)}."
            )

    @classmethod
    def read(cls, values: Mapping[str, Any] | None) -> GeneratedSpec:
        """Return the spec of a configuration's mapping; raises EnvConfigError naming the key."""
        known = [entry.name for entry in fields(cls)]
        for key in values or {}:
            if key not in known:
                raise EnvConfigError(f"generated.{key} is not known. Allowed: {', '.join(known)}.")
        made = dict(values or {})
        if "room_kinds" in made:
            kinds = made["room_kinds"]
            if not isinstance(kinds, (list, tuple)) or not all(isinstance(kind, str) for kind in kinds):
                raise EnvConfigError(f"generated.room_kinds={kinds!r} is not allowed. Allowed: a list of names.")
            made["room_kinds"] = tuple(kinds)
        if type(made.get("seed", 0)) is not int:
            raise EnvConfigError(f"generated.seed={made['seed']!r} is not allowed. Allowed: whole numbers.")
        return cls(**made)


@dataclass(frozen=True)
class Combination:
    """What a game asks for: type, kinds of thing and receptacle (the lamp's for LOOK), and the room."""

    task_type: str
    thing: str
    receptacle: str
    room: int

    @property
    def folder(self) -> str:
        """The task folder of the official layout."""
        return f"{self.task_type}-{self.thing}-None-{self.receptacle}-{self.room}"


@dataclass(frozen=True)
class GeneratedSource:
    """One generated game: its combination and the number that decides where things lie."""

    spec: GeneratedSpec
    combination: Combination
    variant: int

    def read(self) -> GameText:
        """Return the game; the same one at every call."""
        return _write_game(self)


@lru_cache(maxsize=8)
def generate_games(spec: GeneratedSpec, task_types: Sequence[str] = TASK_TYPES) -> GameSet:
    """Return the generated games of a spec; made once per process.

    Raises:
        EnvConfigError: no combination of one of the types fits into the rooms.
    """
    games: dict[str, tuple[Game, ...]] = {}
    sizes = dict(zip(SPLIT_FOLDERS, (spec.n_train, spec.n_seen, spec.n_unseen), strict=True))
    for split in SPLIT_FOLDERS:
        found = []
        for combination, variant in _drawn(spec, tuple(task_types), split, sizes[split]):
            source = GeneratedSource(spec, combination, variant)
            text = source.read()
            name = f"{LABEL}/{split}/{combination.folder}/{trial_name(spec, variant)}"
            found.append(Game(Task(name, text.content), text.goal, source))
        games[split] = tuple(found)
    return GameSet(LABEL, games)


def trial_name(spec: GeneratedSpec, variant: int) -> str:
    """Return the trial folder of a generated game."""
    return f"{LABEL}_{spec.seed}_{variant:03d}"


def _drawn(
    spec: GeneratedSpec, task_types: tuple[str, ...], split: str, count: int
) -> Iterator[tuple[Combination, int]]:
    """Yield (combination, variant), the task types in turn, each through its combinations and then again."""
    by_type = {name: _combinations(spec, name, split) for name in task_types}
    for name, combinations in by_type.items():
        if count and not combinations:
            raise EnvConfigError(
                f"generated: no game of type {name} fits into the rooms of {split}. Remedy: more rooms, other room_kinds, "
                "or other task_types."
            )
    for number in range(count):
        combinations = by_type[task_types[number % len(task_types)]]
        variant, at = divmod(number // len(task_types), len(combinations))
        yield combinations[at], variant


def _combinations(spec: GeneratedSpec, task_type: str, split: str) -> list[Combination]:
    known = catalogue()
    found = []
    for kind in ROOM_KINDS:
        if kind not in spec.room_kinds or kind not in known.rooms_of_task[task_type]:
            continue
        numbers = sorted(known.numbers[kind], key=lambda number: _rank(spec.seed, "room", number))
        is_unseen = split == "valid_unseen"
        chosen = numbers[spec.rooms : spec.rooms + spec.unseen_rooms] if is_unseen else numbers[: spec.rooms]
        for number in chosen:
            combinations = _of_room(spec, room(number), task_type)
            combinations.sort(key=lambda it: _rank(spec.seed, "combination", it.folder))
            n_seen = len(combinations) // _SEEN_SHARE or (len(combinations) > 1)
            parts = {"valid_seen": combinations[:n_seen], "train": combinations[n_seen:], "valid_unseen": combinations}
            found += parts[split]
    found.sort(key=lambda it: _rank(spec.seed, "order", it.folder))
    return found


def _of_room(spec: GeneratedSpec, home: Room, task_type: str) -> list[Combination]:
    """Return everything that can be asked for in a room."""
    known = catalogue()
    kinds = {it.kind for it in _furniture(spec, home)}
    station = STATION_OF.get(task_type)
    if station is not None and station not in {kind.lower() for kind in kinds}:
        return []
    lamps = known.able["Toggleable"]
    things = [kind for kind in home.thing_kinds if kind not in lamps]
    if task_type in _ABLE:
        things = [kind for kind in things if kind in known.able[_ABLE[task_type]]]
    if task_type == LOOK:
        return [
            Combination(task_type, thing, lamp, home.number)
            for thing in things
            for lamp in home.thing_kinds
            if lamp in lamps and _homes(spec, home, thing)
        ]
    return [
        Combination(task_type, thing, receptacle, home.number)
        for thing in things
        for receptacle in sorted(kinds)
        if thing in known.holds[receptacle] and len(_homes(spec, home, thing, without=receptacle)) > 0
    ]


def _furniture(spec: GeneratedSpec, home: Room) -> tuple[Furniture, ...]:
    """Return the furniture of a room that the spec's size leaves, the same for all its games: all kinds first."""
    return _chosen_furniture(spec.seed, spec.max_receptacles, home.number)


@lru_cache(maxsize=512)
def _chosen_furniture(seed: int, most: int, number: int) -> tuple[Furniture, ...]:
    home = room(number)
    stations = set(STATION_OF.values())
    order = sorted(home.furniture, key=lambda it: _rank(seed, "furniture", number, it.name))
    first: dict[str, Furniture] = {}
    for it in order:
        first.setdefault(it.kind, it)
    kinds = sorted(first.values(), key=lambda it: (it.kind.lower() not in stations, _rank(seed, "kind", it.kind)))
    rest = [it for it in order if it not in first.values()]
    return tuple((kinds + rest)[:most])


def _homes(spec: GeneratedSpec, home: Room, thing: str, without: str = "") -> list[Furniture]:
    """Return the furniture that a thing may lie in or on at the start."""
    holds = catalogue().holds
    return [it for it in _furniture(spec, home) if thing in holds[it.kind] and it.kind != without]


def _rank(*parts: object) -> str:
    return hashlib.sha256(":".join(map(str, parts)).encode()).hexdigest()


@dataclass
class _Layout:
    """Where the things of one game lie: (id, kind, furniture)."""

    spec: GeneratedSpec
    home: Room
    rng: random.Random
    things: list[tuple[str, str, Furniture]] = field(default_factory=list)

    def add(self, kind: str, homes: Sequence[Furniture]) -> None:
        """Lay one more thing of a kind into one of `homes`."""
        index = len(self.things)
        name = f"{kind}|+{self.rng.randrange(10):02d}.{self.rng.randrange(100):02d}|+00.{index:02d}|+{index:02d}.00"
        self.things.append((name, kind, homes[self.rng.randrange(len(homes))]))


def _write_game(source: GeneratedSource) -> GameText:
    spec, asked = source.spec, source.combination
    home = room(asked.room)
    rng = random.Random(_rank(spec.seed, "game", asked.folder, source.variant))
    layout = _Layout(spec, home, rng)
    is_look = asked.task_type == LOOK
    homes = _homes(spec, home, asked.thing, without="" if is_look else asked.receptacle)
    for _ in range(2 if asked.task_type == TWO else 1 + (rng.random() < 0.3)):
        layout.add(asked.thing, homes)
    lamps = catalogue().able["Toggleable"]
    if is_look:
        stands = [it for it in _furniture(spec, home) if it.kind not in catalogue().openable]
        layout.add(asked.receptacle, stands or _furniture(spec, home))
    others = [
        kind for kind in home.thing_kinds if kind not in lamps and kind != asked.thing and _homes(spec, home, kind)
    ]
    rng.shuffle(others)
    while others and len(layout.things) < spec.max_things:
        kind = others.pop()
        for _ in range(min(1 + (rng.random() < 0.3), spec.max_things - len(layout.things))):
            layout.add(kind, _homes(spec, home, kind))
    goal, sentences = catalogue().goals[asked.task_type]
    slots = {"obj": asked.thing, "recep": asked.receptacle, "toggle": asked.receptacle}
    sentence = sentences[rng.randrange(len(sentences))].format(**{k: v.lower() for k, v in slots.items()})
    problem = _problem(layout, trial_name(spec, source.variant)) + goal.format(**slots)
    return GameText(problem, sentence + ".", read_goal(problem, asked.task_type))


def _problem(layout: _Layout, name: str) -> str:
    """Return the planning problem up to its goal, in the form of the official games."""
    known = catalogue()
    furniture = _furniture(layout.spec, layout.home)
    kinds = sorted({kind for _, kind, _ in layout.things})
    places = {it.place: pddl_name("loc|" + "|".join(map(str, it.place))) for it in furniture}
    start = pddl_name("loc|" + "|".join(map(str, (90 + layout.rng.randrange(9), 0, 0, 30))))
    objects = ["agent1 - agent", *(f"{place} - location" for place in (*places.values(), start))]
    objects += [f"{kind}Type - otype" for kind in kinds]
    objects += [f"{kind}Type - rtype" for kind in sorted({it.kind for it in furniture})]
    objects += [f"{pddl_name(it.name)} - receptacle" for it in furniture]
    objects += [f"{pddl_name(thing)} - object" for thing, _, _ in layout.things]
    facts = [f"(atLocation agent1 {start})"]
    for it in furniture:
        facts += [f"(receptacleType {pddl_name(it.name)} {it.kind}Type)"]
        facts += [f"(receptacleAtLocation {pddl_name(it.name)} {places[it.place]})"]
        facts += [f"(openable {pddl_name(it.name)})"] if it.kind in known.openable else []
    for receptacle in sorted({it.kind for it in furniture}):
        facts += [f"(canContain {receptacle}Type {kind}Type)" for kind in kinds if kind in known.holds[receptacle]]
    for thing, kind, where in layout.things:
        short = pddl_name(thing)
        facts += [f"(objectType {short} {kind}Type)", f"(inReceptacle {short} {pddl_name(where.name)})"]
        facts += [f"(objectAtLocation {short} {places[where.place]})"]
        facts += [f"({word} {short})" for able, word in _PROPERTIES.items() if kind in known.able[able]]
        facts += [f"(isReceptacleObject {short})"] if kind in known.movable else []
        facts += [f"({'toggleable' if kind in known.able['Toggleable'] else 'pickupable'} {short})"]
    lines = "\n        "
    return (
        f"\n(define (problem plan_{name})\n(:domain alfred)\n(:objects{lines}{lines.join(objects)}\n    )\n"
        f"(:init{lines}{lines.join(facts)}\n    )\n"
    )


def spec_dict(spec: GeneratedSpec) -> dict[str, Any]:
    """Return the spec as a configuration's mapping."""
    return asdict(spec) | {"room_kinds": list(spec.room_kinds)}
