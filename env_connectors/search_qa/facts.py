"""A closed world as facts: entities in groups, relations between them, and multi-hop questions as walks over the facts."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from env_connectors.search_qa.documents import Document


def keyed_random(*key: object) -> random.Random:
    """Return a generator that depends on the key alone, equal in every process."""
    digest = hashlib.sha256("\n".join(map(str, key)).encode("utf-8", "surrogatepass")).digest()
    return random.Random(int.from_bytes(digest[:16], "big"))


@dataclass(frozen=True)
class Relation:
    """A relation from an entity to one value.

    Attributes:
        name: of the relation, and what a thought calls it.
        source: kind of entity that has it.
        target: kind of entity it leads to; '' = a plain value, where a walk ends.
        inner: noun phrases with '{x}' for the value of x, within a question.
        asked: whole questions with '{x}' for the value of x.
        query: words that a searcher adds to the name of x.
    """

    name: str
    source: str
    target: str
    inner: tuple[str, ...]
    asked: tuple[str, ...]
    query: str


@dataclass(frozen=True)
class Fact:
    """The value of a relation of an entity, and the document that tells it.

    Attributes:
        entity: its name.
        relation: the name of the relation.
        value: name of an entity, or a plain value.
        support: title of the document.
        query: what to search for to find the document.
    """

    entity: str
    relation: str
    value: str
    support: str
    query: str


@dataclass(frozen=True)
class World:
    """A closed world; no fact leads from one group to another, so that groups can be held out whole.

    Attributes:
        mark: names the contents: equal worlds have equal marks.
        relations: by name.
        groups: of each group the facts by entity and relation, of those entities that are asked about.
        documents: all documents, in no telling order.
    """

    mark: str
    relations: Mapping[str, Relation]
    groups: Sequence[Mapping[str, Mapping[str, Fact]]]
    documents: Sequence[Document]


@dataclass(frozen=True)
class Question:
    """A question with the walk that answers it.

    Attributes:
        text: the question.
        chain: the facts of the hops, first hop first; the last one's value is the answer.
        group: number of the group that all of them are of.
    """

    text: str
    chain: tuple[Fact, ...]
    group: int

    @property
    def answer(self) -> str:
        """The gold answer."""
        return self.chain[-1].value


def draw_walk(
    group: Mapping[str, Mapping[str, Fact]], relations: Mapping[str, Relation], hops: int, rng: random.Random
) -> tuple[Fact, ...] | None:
    """Return a random walk of `hops` facts that visits nothing twice, None if this try runs into a dead end."""
    entity = rng.choice(sorted(group))
    chain: list[Fact] = []
    seen = {entity}
    for hop in range(hops):
        is_last = hop == hops - 1
        offers = [
            fact
            for name, fact in sorted(group.get(entity, {}).items())
            if fact.value not in seen and (is_last or (relations[name].target and fact.value in group))
        ]
        if not offers:
            return None
        chain.append(rng.choice(offers))
        entity = chain[-1].value
        seen.add(entity)
    return tuple(chain)


def ask(chain: Sequence[Fact], relations: Mapping[str, Relation], rng: random.Random) -> str:
    """Return the question whose answer is the value of the last fact, with the first fact's entity named in it."""
    phrase = chain[0].entity
    for fact in chain[:-1]:
        phrase = rng.choice(relations[fact.relation].inner).format(x=phrase)
    return rng.choice(relations[chain[-1].relation].asked).format(x=phrase)
