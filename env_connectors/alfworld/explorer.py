"""An expert that knows only what it has seen: it searches like a person, where it fits and is in the open first, and then acts.

Its demonstrations teach to search, which those of the oracle cannot: the oracle always goes straight to the thing.
"""

from __future__ import annotations

from dataclasses import replace

from env_connectors.alfworld.goals import LOOK, PICK, TWO, Goal
from env_connectors.alfworld.house import House, Thing
from env_connectors.alfworld.oracle import Step, plan, plan_to_take


class Explorer:
    """What one agent has seen of a house so far, and the next step that follows from it."""

    def __init__(self, goal: Goal) -> None:
        self._goal = goal
        self._known: dict[str, Thing] = {}
        self._searched: set[str] = set()

    def see(self, house: House) -> None:
        """Take in what can be seen from where the agent stands: furniture within reach that is open, and its hand."""
        within = [r for r in house.within_reach() if house.receptacles[r].is_accessible]
        for thing_id, thing in list(self._known.items()):
            if set(thing.inside) & set(within):
                del self._known[thing_id]
        self._searched.update(within)
        for thing_id, thing in house.things.items():
            if thing_id == house.carried or set(thing.inside) & set(within):
                self._known[thing_id] = thing

    def next_step(self, house: House) -> list[Step]:
        """Return the next thought and command as a list of one, [] when the goal is met."""
        known = replace(house, things=self._known)
        goal = self._goal
        steps = plan(known, goal)
        if not steps and goal.task_type == TWO:
            steps = plan(known, replace(goal, task_type=PICK))
        if not steps and goal.task_type == LOOK and self._wants_to_hold(known):
            steps = plan_to_take(known, goal.thing)
        return steps[:1] or self._search(known)

    def _wants_to_hold(self, known: House) -> bool:
        return known.carried is None and any(it.kind == self._goal.thing for it in known.things.values())

    def _search(self, known: House) -> list[Step]:
        wanted = self._missing(known)
        left = [r for r in known.receptacles if r not in self._searched] or list(known.receptacles)

        def likely(receptacle: str) -> tuple[bool, bool, int, bool, tuple[str, int]]:
            it = known.receptacles[receptacle]
            kinds = sum(kind == it.kind for kind, _ in known.fits)
            is_far = it.place != known.place
            return (it.kind, wanted) not in known.fits, not it.is_accessible, kinds, is_far, known.order(receptacle)

        chosen = min(left, key=likely)
        it = known.receptacles[chosen]
        thought = f"look for a {wanted} in the {it.name}"
        if it.place != known.place:
            return [(thought, f"go to {it.name}")]
        if not it.is_accessible:
            return [(thought, f"open {it.name}")]
        self._searched.clear()  # everything was seen and it is nowhere: things may have been moved, so once more
        return [(thought, "look")]

    def _missing(self, known: House) -> str:
        has_thing = any(it.kind == self._goal.thing for it in known.things.values())
        return self._goal.lamp if self._goal.task_type == LOOK and has_thing else self._goal.thing
