"""The full world: people, works, organisations and towns, each with a page of some sentences; all names made up.

A group has ten people, four works, four organisations and five towns, tied by forward facts only: the page of a novel names its
author, that of the author not the novel. Each group has bystanders besides, whose pages read alike and who share a family
name or a word of a title with someone, and about whom nothing is asked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from env_connectors.errors import EnvConfigError
from env_connectors.search_qa import world_words as w
from env_connectors.search_qa.documents import Document
from env_connectors.search_qa.facts import Fact, World, keyed_random

FORMAT = "world/1"
NUM_GROUPS = 48
MOST_GROUPS = 100
_SIZES = {w.PERSON: 10, w.WORK: 4, w.ORGANISATION: 4, w.TOWN: 5}
_BYSTANDERS = {w.PERSON: 4, w.WORK: 2, w.ORGANISATION: 1, w.TOWN: 1}
_OLDEST, _YOUNGEST, _FIRST_WORK, _LAST_YEAR = 1850, 1950, 1880, 2000


def world(num_groups: int = NUM_GROUPS, seed: int = 0) -> World:
    """Return the world of a seed.

    Raises:
        EnvConfigError: a number of groups that is not allowed.
    """
    if isinstance(num_groups, bool) or not isinstance(num_groups, int) or not 3 <= num_groups <= MOST_GROUPS:
        raise EnvConfigError(f"num_groups={num_groups!r} of the world is not allowed. Allowed: 3 to {MOST_GROUPS}.")
    rng = keyed_random(FORMAT, seed)
    names = _Names(rng)
    groups, documents = [], []
    for _ in range(num_groups):
        cast = {kind: [names.new(kind) for _ in range(size)] for kind, size in _SIZES.items()}
        others = {kind: [names.near(kind, cast[kind]) for _ in range(size)] for kind, size in _BYSTANDERS.items()}
        facts = _facts(cast, rng)
        groups.append(facts)
        documents += _pages(facts, cast, rng)
        # Bystanders know each other only, as far as people, organisations and towns are wanted: nothing leads out of them.
        documents += _pages(_facts(others, rng), others, rng)
    rng.shuffle(documents)
    return World(f"{FORMAT} {num_groups} {seed}", w.RELATIONS, groups, documents)


@dataclass
class _Names:
    """Draws names that are not taken yet."""

    rng: random.Random
    taken: set[str] = field(default_factory=set)

    def new(self, kind: str) -> str:
        """Return a new name of a kind."""
        return self._free(lambda: self._draw(kind, None))

    def near(self, kind: str, models: Sequence[str]) -> str:
        """Return a new name that shares a word with one of `models`, where names of this kind have several."""
        return self._free(lambda: self._draw(kind, self.rng.choice(models)))

    def _free(self, draw: Callable[[], str]) -> str:
        while (name := draw()) in self.taken:
            pass
        self.taken.add(name)
        return name

    def _draw(self, kind: str, model: str | None) -> str:
        if kind == w.PERSON:
            family = self._word(w.FAMILY_ENDINGS) if model is None else model.split()[1]
            return f"{self.rng.choice([*w.WOMEN, *w.MEN])} {family}"
        if kind == w.WORK:
            noun = self.rng.choice(w.WORK_NOUNS) if model is None else model.split()[-1]
            return f"The {self.rng.choice(w.WORK_ADJECTIVES)} {noun}"
        if kind == w.ORGANISATION:
            name = self._word(w.FAMILY_ENDINGS) if model is None else model.split()[0]
            return f"{name} {self.rng.choice(w.ORGANISATION_KINDS)}"
        return self._word(w.TOWN_ENDINGS)

    def _word(self, endings: Sequence[str]) -> str:
        middle = self.rng.choice(w.NAME_MIDDLES) if self.rng.random() < 0.7 else ""
        return self.rng.choice(w.NAME_BEGINNINGS) + middle + self.rng.choice(endings)

    def river(self) -> str:
        """Return the name of a river; two towns may lie on one."""
        return self._word(w.RIVER_ENDINGS)


def _facts(cast: dict[str, list[str]], rng: random.Random) -> dict[str, dict[str, Fact]]:
    """Return the facts of a group by entity and relation."""
    people, towns, organisations = cast[w.PERSON], cast[w.TOWN], cast[w.ORGANISATION]
    circle = rng.sample(people, len(people))
    teachers = dict(zip(circle, [*circle[1:], circle[0]], strict=True))
    couples = rng.sample(people, len(people))
    spouses = {one: couples[at ^ 1] for at, one in enumerate(couples)}
    names = _Names(rng)
    drawn: dict[str, Callable[[str], str]] = {
        "birthplace": lambda _: rng.choice(towns),
        "birth year": lambda _: str(rng.randint(_OLDEST, _YOUNGEST)),
        "teacher": teachers.__getitem__,
        "spouse": spouses.__getitem__,
        "employer": lambda _: rng.choice(organisations),
        "occupation": lambda _: rng.choice(w.OCCUPATIONS),
        "author": lambda _: rng.choice(people),
        "publisher": lambda _: rng.choice(organisations),
        "setting": lambda _: rng.choice(towns),
        "publication year": lambda _: str(rng.randint(_FIRST_WORK, _LAST_YEAR)),
        "founder": lambda _: rng.choice(people),
        "headquarters": lambda _: rng.choice(towns),
        "founding year": lambda _: str(rng.randint(_FIRST_WORK, _LAST_YEAR)),
        "mayor": lambda _: rng.choice(people),
        "river": lambda _: names.river(),
    }
    return {
        entity: {
            name: Fact(entity, name, drawn[name](entity), entity, f"{entity} {relation.query}")
            for name, relation in w.RELATIONS.items()
            if relation.source == kind
        }
        for kind, entities in cast.items()
        for entity in entities
    }


def _pages(facts: dict[str, dict[str, Fact]], cast: dict[str, list[str]], rng: random.Random) -> list[Document]:
    return [
        Document(entity, _PAGES[kind](entity, {name: fact.value for name, fact in facts[entity].items()}, rng))
        for kind, entities in cast.items()
        for entity in entities
    ]


def _person_page(name: str, v: dict[str, str], rng: random.Random) -> str:
    he = "She" if name.split()[0] in w.WOMEN else "He"
    article = "an" if v["occupation"][0] in "aeiou" else "a"
    rest = [
        f"{he} was taught by {v['teacher']}.",
        f"{he} is married to {v['spouse']}.",
        f"{he} works for {v['employer']}.",
    ]
    rng.shuffle(rest)
    return " ".join([f"{name} is {article} {v['occupation']}, born in {v['birthplace']} in {v['birth year']}.", *rest])


def _work_page(name: str, v: dict[str, str], rng: random.Random) -> str:
    rest = [f"It is set in {v['setting']}.", f"It was published by {v['publisher']} in {v['publication year']}."]
    rng.shuffle(rest)
    return " ".join([f"{name} is {rng.choice(w.WORK_KINDS)} written by {v['author']}.", *rest])


def _organisation_page(name: str, v: dict[str, str], rng: random.Random) -> str:
    rest = [f"It was founded by {v['founder']}.", f"It has {rng.randint(12, 400)} members."]
    rng.shuffle(rest)
    return " ".join(
        [f"{name} was founded in {v['founding year']} and has its headquarters in {v['headquarters']}.", *rest]
    )


def _town_page(name: str, v: dict[str, str], rng: random.Random) -> str:
    people = rng.randint(20, 900) * 100
    return f"{name} is a town of {people} people on the river {v['river']}. Its mayor is {v['mayor']}."


_PAGES = {w.PERSON: _person_page, w.WORK: _work_page, w.ORGANISATION: _organisation_page, w.TOWN: _town_page}
