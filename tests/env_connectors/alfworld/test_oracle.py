"""Plans and goal conditions in a house that is written out by hand."""

from dataclasses import replace

import pytest

from env_connectors.alfworld.explorer import Explorer
from env_connectors.alfworld.goals import CLEAN, COOL, LOOK, PICK, TWO, Goal, goal_conditions, read_goal
from env_connectors.alfworld.house import House, Receptacle, Thing
from env_connectors.alfworld.oracle import plan
from env_connectors.errors import EnvConfigError

CAN = frozenset({"pickupable"})


def _house(**changes: object) -> House:
    receptacles = {
        "f": Receptacle("fridge 1", "fridge", "at fridge", True, False),
        "s1": Receptacle("shelf 1", "shelf", "at shelf", False, False),
        "s2": Receptacle("shelf 2", "shelf", "at shelf", False, False),
        "b": Receptacle("sinkbasin 1", "sinkbasin", "at basin", False, False),
    }
    things = {
        "e": Thing("egg 1", "egg", ("f",), CAN),
        "m": Thing("mug 1", "mug", ("s1",), CAN),
        "n": Thing("mug 2", "mug", ("b",), CAN),
        "l": Thing("desklamp 1", "desklamp", ("s2",), frozenset({"toggleable"})),
    }
    fits = frozenset((r, t) for r in ("fridge", "shelf", "sinkbasin") for t in ("egg", "mug"))
    return replace(House("start", None, receptacles, things, fits), **changes)  # type: ignore[arg-type]


def _commands(house: House, goal: Goal) -> list[str]:
    return [command for _, command in plan(house, goal)]


def test_plan_opens_takes_and_puts() -> None:
    assert plan(_house(), Goal(PICK, "egg", "shelf")) == [
        ("get the egg 1 from the fridge 1", "go to fridge 1"),
        ("get the egg 1 from the fridge 1", "open fridge 1"),
        ("get the egg 1 from the fridge 1", "take egg 1 from fridge 1"),
        ("put the egg 1 on the shelf 1", "go to shelf 1"),
        ("put the egg 1 on the shelf 1", "move egg 1 to shelf 1"),
    ]


def test_plan_puts_down_what_it_carries_by_mistake() -> None:
    things = {**_house().things, "e": Thing("egg 1", "egg", (), CAN)}
    house = _house(carried="e", place="at basin", things=things)
    assert _commands(house, Goal(CLEAN, "mug", "shelf")) == [
        "move egg 1 to sinkbasin 1",
        "take mug 2 from sinkbasin 1",
        "clean mug 2 with sinkbasin 1",
        "go to shelf 1",
        "move mug 2 to shelf 1",
    ]


def test_plan_for_two_completes_the_receptacle_that_holds_one() -> None:
    assert _commands(_house(), Goal(TWO, "mug", "shelf")) == [
        "go to sinkbasin 1",
        "take mug 2 from sinkbasin 1",
        "go to shelf 1",
        "move mug 2 to shelf 1",
    ]


def test_plan_for_light_carries_the_thing_to_the_lamp() -> None:
    assert _commands(_house(place="at basin"), Goal(LOOK, "mug", lamp="desklamp")) == [
        "take mug 2 from sinkbasin 1",
        "go to shelf 2",
        "use desklamp 1",
    ]


def test_plan_is_empty_when_the_goal_is_met_or_out_of_reach() -> None:
    assert plan(_house(), Goal(PICK, "mug", "shelf")) == []
    assert plan(_house(), Goal(PICK, "apple", "shelf")) == []


@pytest.mark.parametrize(
    ("goal", "marks", "met"),
    [
        (Goal(PICK, "mug", "shelf"), {}, (1, 1)),
        (Goal(PICK, "egg", "shelf"), {}, (0, 1)),
        (Goal(TWO, "mug", "shelf"), {}, (1, 2)),
        (Goal(CLEAN, "mug", "shelf"), {}, (1, 3)),
        (Goal(CLEAN, "mug", "shelf"), {"n": "isclean"}, (2, 3)),  # placed one dirty, cleaned another one
        (Goal(CLEAN, "mug", "shelf"), {"m": "isclean"}, (3, 3)),
        (Goal(COOL, "egg", "shelf"), {"e": "iscool"}, (1, 3)),
        (Goal(LOOK, "mug", lamp="desklamp"), {"l": "istoggled"}, (0, 2)),  # the lamp is on, but elsewhere
    ],
)
def test_goal_conditions(goal: Goal, marks: dict[str, str], met: tuple[int, int]) -> None:
    things = {o: replace(it, marks=it.marks | {marks[o]}) if o in marks else it for o, it in _house().things.items()}
    assert goal_conditions(goal, _house(things=things)) == met


def test_explorer_searches_in_the_open_before_it_opens_anything() -> None:
    explorer = Explorer(Goal(PICK, "egg", "shelf"))
    house = _house()
    explorer.see(house)
    thought, command = explorer.next_step(house)[0]
    assert command in ("go to shelf 1", "go to sinkbasin 1") and thought.startswith("look for a egg in the ")
    for place in ("at shelf", "at basin"):
        explorer.see(replace(house, place=place))
    assert explorer.next_step(house)[0][1] == "go to fridge 1"
    assert explorer.next_step(replace(house, place="at fridge"))[0][1] == "open fridge 1"


def test_read_goal_of_the_wrong_form_is_refused() -> None:
    with pytest.raises(EnvConfigError, match=r"task_type=.cook. is not known\. Allowed: pick_and_place_simple"):
        read_goal("(:goal (and))", "cook")
    with pytest.raises(EnvConfigError, match="not one of pick_and_place_simple"):
        read_goal("(:goal (and))", PICK)
