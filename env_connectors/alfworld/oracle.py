"""A planner that knows where everything is: the way from any state of a house to its goal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from env_connectors.alfworld.goals import LOOK, MARK_OF, STATION_OF, TWO, Goal
from env_connectors.alfworld.house import House, Thing

Step = tuple[str, str]
"""A short thought and a command."""


def plan(house: House, goal: Goal) -> list[Step]:
    """Return (thought, command) pairs that lead from this state to the goal; [] when it is met or cannot be met."""
    walker = _Walker(house)
    if goal.task_type == LOOK:
        _look(walker, goal)
    elif goal.task_type == TWO:
        _two(walker, goal)
    else:
        _one(walker, goal)
    return walker.steps if walker.can else []


def plan_to_take(house: House, kind: str) -> list[Step]:
    """Return the steps to carry a thing of a kind; [] when one is carried or there is none."""
    walker = _Walker(house)
    things = walker.things(kind)
    if things:
        walker.take(things[0])
    return walker.steps if walker.can else []


class _Walker:
    """Writes a plan while it keeps track of what the commands change."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.steps: list[Step] = []
        self.can = True

    def things(self, kind: str) -> list[str]:
        """Return the ids of the things of a kind, the carried one first, then those in open places."""
        return sorted((o for o, it in self.house.things.items() if it.kind == kind), key=self._effort)

    def _effort(self, thing: str) -> tuple[int, int, str]:
        it = self.house.things[thing]
        if thing == self.house.carried:
            return 0, 0, it.name
        places = [self.house.receptacles[r] for r in it.inside if r in self.house.receptacles]
        is_near = any(r.place == self.house.place for r in places)
        is_open = any(r.is_accessible for r in places)
        return 2 if not is_open else 1, 0 if is_near else 1, it.name

    def go(self, receptacle: str, thought: str) -> None:
        """Stand at a receptacle."""
        it = self.house.receptacles[receptacle]
        if it.place != self.house.place:
            self._do(thought, f"go to {it.name}", place=it.place)

    def open(self, receptacle: str, thought: str) -> None:
        """Open a receptacle that the agent stands at, if it is closed."""
        it = self.house.receptacles[receptacle]
        if not it.is_accessible:
            changed = {**self.house.receptacles, receptacle: replace(it, is_open=True)}
            self._do(thought, f"open {it.name}", receptacles=changed)

    def take(self, thing: str) -> None:
        """Carry a thing, after putting down another one."""
        if self.house.carried == thing:
            return
        if self.house.carried is not None:
            self.put_aside()
        it = self.house.things[thing]
        home = min(
            (r for r in it.inside if r in self.house.receptacles),
            key=lambda r: (not self.house.receptacles[r].is_accessible, self.house.order(r)),
            default=None,
        )
        if home is None or not self.can:
            self.can = False
            return
        where = self.house.receptacles[home].name
        thought = f"get the {it.name} from the {where}"
        self.go(home, thought)
        self.open(home, thought)
        left = tuple(r for r in it.inside if r != home)
        self._do(thought, f"take {it.name} from {where}", carried=thing, things=self._with(thing, inside=left))

    def put(self, receptacle: str, thought: str | None = None) -> None:
        """Put the carried thing into a receptacle."""
        thing = self.house.carried
        if thing is None or not self.can:
            self.can = False
            return
        it, where = self.house.things[thing], self.house.receptacles[receptacle].name
        thought = thought or f"put the {it.name} on the {where}"
        self.go(receptacle, thought)
        self.open(receptacle, thought)
        moved = self._with(thing, inside=(*it.inside, receptacle))
        self._do(thought, f"move {it.name} to {where}", carried=None, things=moved)

    def put_aside(self) -> None:
        """Put the carried thing anywhere, here if possible."""
        thing = self.house.things[self.house.carried or ""]
        choices = [r for r, it in self.house.receptacles.items() if (it.kind, thing.kind) in self.house.fits]
        if not choices:
            self.can = False
            return
        chosen = min(choices, key=self._put_effort)
        self.put(chosen, f"the {thing.name} is not needed")

    def _put_effort(self, receptacle: str) -> tuple[bool, bool, tuple[str, int]]:
        it = self.house.receptacles[receptacle]
        return it.place != self.house.place, not it.is_accessible, self.house.order(receptacle)

    def treat(self, goal: Goal, mark: str) -> None:
        """Clean, heat or cool the carried thing."""
        thing, stations = self.house.carried, self.house.of_kind(STATION_OF[goal.task_type])
        if thing is None or not stations or not self.can:
            self.can = False
            return
        station = min(stations, key=self._put_effort)
        it, where = self.house.things[thing], self.house.receptacles[station].name
        verb = {"isclean": "clean", "ishot": "heat", "iscool": "cool"}[mark]
        thought = f"{verb} the {it.name} with the {where}"
        self.go(station, thought)
        marks = frozenset({*it.marks, mark} - {{"ishot": "iscool", "iscool": "ishot"}.get(mark, "")})
        self._do(thought, f"{verb} {it.name} with {where}", things=self._with(thing, marks=marks))

    def use(self, lamp: str) -> None:
        """Switch on a lamp."""
        it = self.house.things[lamp]
        home = min((r for r in it.inside if r in self.house.receptacles), key=self.house.order, default=None)
        if home is None or not self.can:
            self.can = False
            return
        thought = f"use the {it.name} on the {self.house.receptacles[home].name}"
        self.go(home, thought)
        if "istoggled" not in it.marks:
            self._do(thought, f"use {it.name}", things=self._with(lamp, marks=it.marks | {"istoggled"}))

    def _with(self, thing: str, **changes: object) -> dict[str, Thing]:
        return {**self.house.things, thing: replace(self.house.things[thing], **changes)}  # type: ignore[arg-type]

    def _do(self, thought: str, command: str, **changes: object) -> None:
        self.house = replace(self.house, **changes)  # type: ignore[arg-type]
        self.steps.append((thought, command))


def _placed(walker: _Walker, goal: Goal, thing: str) -> list[str]:
    """Return the receptacles of the goal's kind that a thing is in."""
    receptacles = walker.house.receptacles
    return [r for r in walker.house.things[thing].inside if r in receptacles and receptacles[r].kind == goal.receptacle]


def _nearest(walker: _Walker, receptacles: Iterable[str]) -> str | None:
    return min(receptacles, key=walker._put_effort, default=None)


def _one(walker: _Walker, goal: Goal) -> None:
    mark = MARK_OF.get(goal.task_type)
    things = walker.things(goal.thing)
    targets = walker.house.of_kind(goal.receptacle)
    is_ready: Callable[[str], bool] = lambda o: mark is None or mark in walker.house.things[o].marks  # noqa: E731
    if any(_placed(walker, goal, o) and is_ready(o) for o in things):
        return
    things.sort(key=lambda o: (o != walker.house.carried, not is_ready(o)))
    if not things or not targets:
        walker.can = False
        return
    walker.take(things[0])
    if mark is not None and walker.can and not is_ready(things[0]):
        walker.treat(goal, mark)
    target = _nearest(walker, targets)
    if target is not None:
        walker.put(target)


def _two(walker: _Walker, goal: Goal) -> None:
    things = walker.things(goal.thing)
    targets = walker.house.of_kind(goal.receptacle)
    if len(things) < 2 or not targets:
        walker.can = False
        return
    held = {r: sum(r in walker.house.things[o].inside for o in things) for r in targets}
    target = min(
        targets, key=lambda r: (-held[r], not walker.house.receptacles[r].is_accessible, walker._put_effort(r))
    )
    for _ in range(2 - min(held[target], 2)):
        rest = [o for o in walker.things(goal.thing) if target not in walker.house.things[o].inside]
        if not rest or not walker.can:
            walker.can = False
            return
        walker.take(rest[0])
        walker.put(target)


def _look(walker: _Walker, goal: Goal) -> None:
    things, lamps = walker.things(goal.thing), walker.things(goal.lamp)
    if not things or not lamps:
        walker.can = False
        return
    walker.take(things[0])
    walker.use(lamps[0])
