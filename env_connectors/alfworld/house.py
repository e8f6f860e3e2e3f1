"""What is true in a house, read from the engine's facts, and what an episode shows of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Fact = tuple[str, tuple[str, ...]]
NOTHING_HAPPENS = "Nothing happens."
"""The engine's answer to a command that is not admissible."""


@dataclass(frozen=True)
class Receptacle:
    """A piece of furniture that things are in or on.

    Attributes:
        name: as in the game's texts, e.g. 'fridge 1'.
        kind: type in lower case, e.g. 'fridge'.
        place: id of the place where an agent stands to use it; several pieces may share one.
        is_openable: it has a door or a lid.
        is_open: it is open now.
    """

    name: str
    kind: str
    place: str
    is_openable: bool
    is_open: bool

    @property
    def is_accessible(self) -> bool:
        """True when things can be seen, taken out and put in."""
        return self.is_open or not self.is_openable


@dataclass(frozen=True)
class Thing:
    """An object.

    Attributes:
        name: as in the game's texts, e.g. 'apple 1'.
        kind: type in lower case, e.g. 'apple'.
        inside: ids of the receptacles that it is in or on; () while it is carried.
        marks: which of pickupable, toggleable, istoggled, isclean, ishot, iscool hold.
    """

    name: str
    kind: str
    inside: tuple[str, ...]
    marks: frozenset[str]


@dataclass(frozen=True)
class House:
    """The whole state of a game; ids are those of the planning problem.

    Attributes:
        place: where the agent stands.
        carried: id of the thing in its hand, or None.
        receptacles: by id.
        things: by id; only those that are somewhere or carried.
        fits: pairs (receptacle kind, thing kind) that the game allows.
    """

    place: str
    carried: str | None
    receptacles: Mapping[str, Receptacle]
    things: Mapping[str, Thing]
    fits: frozenset[tuple[str, str]] = field(repr=False)

    def within_reach(self) -> list[str]:
        """Return the ids of the receptacles where the agent stands, in the order of their names."""
        return sorted((r for r, it in self.receptacles.items() if it.place == self.place), key=self.order)

    def order(self, receptacle: str) -> tuple[str, int]:
        """Return a sort key: kind, then number."""
        kind, _, number = self.receptacles[receptacle].name.partition(" ")
        return kind, int(number or 0)

    def of_kind(self, kind: str) -> list[str]:
        """Return the ids of the receptacles of a kind, in the order of their names."""
        return sorted((r for r, it in self.receptacles.items() if it.kind == kind), key=self.order)


@dataclass(frozen=True)
class View:
    """What an episode shows after reset or a step.

    Attributes:
        text: the engine's answer.
        commands: admissible commands, sorted, 'help' among them.
        won: the goal is reached.
        met: goal conditions met.
        conditions: all goal conditions.
        state_key: equal for equal states of a game, but for what the engine notes about the past.
    """

    text: str
    commands: list[str]
    won: bool
    met: int
    conditions: int
    state_key: str


_MARKS = frozenset({"pickupable", "toggleable", "istoggled", "isclean", "ishot", "iscool"})


def read_house(facts: Iterable[Fact], names: Mapping[str, str]) -> House:
    """Return the house of these facts, (predicate, arguments) in lower case; `names` gives the texts' names by id."""
    by: dict[str, list[tuple[str, ...]]] = {}
    for predicate, arguments in facts:
        by.setdefault(predicate, []).append(arguments)
    marks: dict[str, set[str]] = {}
    for mark in _MARKS & by.keys():
        for (thing,) in by[mark]:
            marks.setdefault(thing, set()).add(mark)
    inside: dict[str, list[str]] = {}
    for thing, receptacle in by.get("inreceptacle", []):
        inside.setdefault(thing, []).append(receptacle)
    places = {r: place for r, place in by.get("receptacleatlocation", [])}
    openable, opened = ({r for (r,) in by.get(word, [])} for word in ("openable", "opened"))
    receptacles = {
        r: Receptacle(names[r].strip(), _kind(t), places[r], r in openable, r in opened)
        for r, t in by.get("receptacletype", [])
        if r in places
    }
    carried = next((thing for _, thing in by.get("holds", [])), None)
    things = {
        o: Thing(names[o].strip(), _kind(t), tuple(sorted(inside.get(o, []))), frozenset(marks.get(o, ())))
        for o, t in by.get("objecttype", [])
        if o in inside or o == carried
    }
    fits = frozenset((_kind(r), _kind(o)) for r, o in by.get("cancontain", []))
    return House(by["atlocation"][0][1], carried, receptacles, things, fits)


def _kind(type_name: str) -> str:
    return type_name.removesuffix("type")
