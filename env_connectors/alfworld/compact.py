"""Observations in few words, for small word-level models: the task, what is carried, here, seen so far, and elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from env_connectors.alfworld.house import NOTHING_HAPPENS, House, Thing

_STATES = {"isclean": "clean", "ishot": "hot", "iscool": "cool", "istoggled": "on"}


def compact_text(sentence: str, house: House, visited: Sequence[str], answer: str) -> str:
    """Return e.g. 'task put a mug in shelf hold nothing at fridge 1 egg 1 been cabinet 1 fridge 1 room cabinet 2 shelf 1'.

    Things are told only of furniture within reach, and only while it is open; `been` is what was gone to before, `room`
    the rest.

    Args:
        sentence: the task.
        house: the state; nothing hidden of it is told.
        visited: names of furniture gone to so far.
        answer: the engine's text; the words 'nothing happens' are kept from it.
    """
    here = {house.receptacles[r].name for r in house.within_reach()}
    rest = [house.receptacles[r].name for r in sorted(house.receptacles, key=house.order)]
    been = [name for name in visited if name not in here] or ["nowhere"]
    room = [name for name in rest if name not in here and name not in visited]
    return " ".join([f"task {sentence.rstrip('.')}", compact_brief(house, answer), "been", *been, "room", *room])


def compact_brief(house: House, answer: str) -> str:
    """Return what is carried and seen here, e.g. 'hold nothing at fridge 1 egg 1', for the history."""
    parts = []
    for receptacle_id in house.within_reach():
        receptacle = house.receptacles[receptacle_id]
        seen = sorted((it for it in house.things.values() if receptacle_id in it.inside), key=lambda it: it.name)
        shown = [_told(it) for it in seen] or ["empty"]
        parts += [receptacle.name, *(shown if receptacle.is_accessible else ["closed"])]
    carried = "nothing" if house.carried is None else _told(house.things[house.carried])
    failed = ["nothing happens"] if answer == NOTHING_HAPPENS else []
    return " ".join([*failed, "hold", carried, "at", *(parts or ["start"])])


def _told(thing: Thing) -> str:
    return " ".join([thing.name, *(word for mark, word in _STATES.items() if mark in thing.marks)])
