"""What a game asks for: its goal, read from the planning problem, and how much of it is met."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from env_connectors.alfworld.house import House, Thing
from env_connectors.errors import EnvConfigError

PICK, LOOK, CLEAN, HEAT, COOL, TWO = TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
"""The six task types, in ALFWorld's order (its ids are 1 to 6)."""
MARK_OF = {CLEAN: "isclean", HEAT: "ishot", COOL: "iscool"}
STATION_OF = {CLEAN: "sinkbasin", HEAT: "microwave", COOL: "fridge"}
_OBJECT = re.compile(r"objectType \?o1? (\w+)Type", re.IGNORECASE)
_TOGGLE = re.compile(r"objectType \?ot (\w+)Type", re.IGNORECASE)
_RECEPTACLE = re.compile(r"receptacleType \?r (\w+)Type", re.IGNORECASE)


@dataclass(frozen=True)
class Goal:
    """The goal of a game; kinds in lower case.

    Attributes:
        task_type: one of TASK_TYPES.
        thing: kind of the object.
        receptacle: kind of the receptacle, '' for LOOK.
        lamp: kind of the lamp for LOOK, else ''.
    """

    task_type: str
    thing: str
    receptacle: str = ""
    lamp: str = ""


def read_goal(problem: str, task_type: str) -> Goal:
    """Return the goal of a planning problem.

    Raises:
        EnvConfigError: an unknown task type, or a goal that is not of the type's form.
    """
    if task_type not in TASK_TYPES:
        raise EnvConfigError(f"task_type={task_type!r} is not known. Allowed: {', '.join(TASK_TYPES)}.")
    goal = problem[problem.rfind("(:goal") :] if "(:goal" in problem else ""
    found = [pattern.search(goal) for pattern in (_OBJECT, _RECEPTACLE, _TOGGLE)]
    thing, receptacle, lamp = ("" if match is None else match[1].lower() for match in found)
    if not thing or not (lamp if task_type == LOOK else receptacle):
        raise EnvConfigError(f"the problem's goal is not one of {task_type}: {goal[:200]!r}")
    return Goal(task_type, thing, "" if task_type == LOOK else receptacle, lamp if task_type == LOOK else "")


def goal_conditions(goal: Goal, house: House) -> tuple[int, int]:
    """Return (conditions met, all conditions); all are met exactly when the game is won.

    pick: placed (1). look: carried, lamp on where the agent stands (2). clean, heat, cool: placed; cleaned, heated or
    cooled; both by the same object (3). two: the most objects in one receptacle, up to two (2).
    Source: ALFRED 1912.01734 section 5, with the texts' six task types.
    """
    things = [thing for thing in house.things.values() if thing.kind == goal.thing]
    if goal.task_type == LOOK:
        carried = house.carried is not None and house.things[house.carried].kind == goal.thing
        return carried + _is_lit(goal, house), 2
    placed = [thing for thing in things if any(True for _ in _goal_receptacles(thing, goal, house))]
    if goal.task_type == PICK:
        return min(len(placed), 1), 1
    if goal.task_type == TWO:
        counts = Counter(r for thing in placed for r in _goal_receptacles(thing, goal, house))
        return min(max(counts.values(), default=0), 2), 2
    mark = MARK_OF[goal.task_type]
    done = [thing for thing in things if mark in thing.marks]
    return bool(placed) + bool(done) + any(mark in thing.marks for thing in placed), 3


def _goal_receptacles(thing: Thing, goal: Goal, house: House) -> Iterator[str]:
    return (r for r in thing.inside if r in house.receptacles and house.receptacles[r].kind == goal.receptacle)


def _is_lit(goal: Goal, house: House) -> bool:
    here = set(house.within_reach())
    return any(
        thing.kind == goal.lamp and "istoggled" in thing.marks and here & set(thing.inside)
        for thing in house.things.values()
    )
