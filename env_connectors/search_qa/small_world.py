"""A world of few words, for word-level models: 'boss of kira stone is milo frost'.

A group is ten people; each has a boss, friend, teacher and neighbor among the others and a home, job, pet and meal. Names are
made of two short lists, so that every word of a held-out group is met in training, and each fact is a document of its own.
Being someone's boss goes round in a circle: for each fact there is one that reads the other way, with the same words.
"""

from __future__ import annotations

import random

from env_connectors.errors import EnvConfigError
from env_connectors.search_qa.documents import Document
from env_connectors.search_qa.facts import Fact, Relation, World, keyed_random

FORMAT = "small_world/1"
NUM_GROUPS = 40
_PEOPLE = 10
_FIRST = (
    "kira milo ada jon nora otto lena hugo ines paul rita tom vera max ella finn gina leo maya nils olga rene sara ugo "
    "abel bela carl dina edna fritz greta hans ivo jana karl lars mara nina oscar petra ralf sofie timo ursa victor wanda "
    "xenia yuri zora amos"
)
_LAST = (
    "stone frost reed wolf hill lake moss fox dale ford marsh crane finch thorn birch vale north brook cliff hart swan drake "
    "lamb snow ash bell cole dunn east flint glen holt ivey jay knox lowe mead nash oak page quill rose shaw tate upton "
    "voss west york zane blake"
)
_VALUES = {
    "home": "paris oslo rome lima cairo delhi tokyo quito minsk dakar riga sofia bern accra havana tunis seoul kyoto porto malmo",
    "job": "baker pilot nurse judge farmer singer tailor miner guard clerk actor cook dentist editor broker diver porter "
    "tutor welder mason",
    "pet": "cat dog parrot rabbit snake turtle goat pony duck hamster lizard canary ferret gecko newt toad hen mule llama ox",
    "meal": "rice soup bread cheese pasta fish salad curry beans eggs pizza tofu stew toast yogurt figs plums corn kale olives",
}
_PEOPLE_RELATIONS = ("boss", "friend", "teacher", "neighbor")
RELATIONS = {
    name: Relation(
        name, "person", "person" if name in _PEOPLE_RELATIONS else "", (name + " of {x}",), (name + " of {x} ?",), name
    )
    for name in (*_PEOPLE_RELATIONS, *_VALUES)
}
MOST_GROUPS = len(_FIRST.split()) * len(_LAST.split()) // _PEOPLE


def small_world(num_groups: int = NUM_GROUPS, seed: int = 0) -> World:
    """Return the world of a seed.

    Raises:
        EnvConfigError: more groups than the names suffice for, or fewer than 3.
    """
    if isinstance(num_groups, bool) or not isinstance(num_groups, int) or not 3 <= num_groups <= MOST_GROUPS:
        raise EnvConfigError(
            f"num_groups={num_groups!r} of the small world is not allowed. Allowed: 3 to {MOST_GROUPS}."
        )
    rng = keyed_random(FORMAT, seed)
    names = [f"{first} {last}" for first in _FIRST.split() for last in _LAST.split()]
    rng.shuffle(names)
    groups = [_group(names[at : at + _PEOPLE], rng) for at in range(0, num_groups * _PEOPLE, _PEOPLE)]
    facts = [fact for group in groups for by_name in group.values() for fact in by_name.values()]
    documents = [Document(fact.support, f"{fact.support} is {fact.value}") for fact in facts]
    rng.shuffle(documents)
    return World(f"{FORMAT} {num_groups} {seed}", RELATIONS, groups, documents)


def _group(people: list[str], rng: random.Random) -> dict[str, dict[str, Fact]]:
    facts: dict[str, dict[str, Fact]] = {person: {} for person in people}
    for name in RELATIONS:
        if name in _PEOPLE_RELATIONS:
            circle = rng.sample(people, len(people))
            pairs = zip(circle, [*circle[1:], circle[0]], strict=True)
        else:
            pairs = zip(people, rng.sample(_VALUES[name].split(), len(people)), strict=True)
        for person, value in pairs:
            title = f"{name} of {person}"
            facts[person][name] = Fact(person, name, value, title, title)
    return facts
