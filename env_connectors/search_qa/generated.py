"""Questions of a generated world: drawn group by group, kept where every hop can be found and no shortcut answers them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from env_connectors.search_qa.answer_score import normalise
from env_connectors.search_qa.facts import Question, World, ask, draw_walk, keyed_random
from env_connectors.search_qa.retriever import Retriever
from env_connectors.task_panel import Task

CHECKED_TOPK = 3
_TRIES_EACH = 12


def questions(
    world: World, retriever: Retriever, *, hops: Sequence[int], per_group: int, seed: int, topk: int = CHECKED_TOPK
) -> Iterator[Question]:
    """Yield up to `per_group` questions of each group, of all numbers of hops alike.

    Kept are those of which each hop's query finds its document among the first `topk`, while the question itself, as a
    query, does not find the answer among the first three (nor does the question hold it); no text and no walk twice.
    """
    finds: dict[str, bool] = {}

    def is_found(query: str, support: str) -> bool:
        if query not in finds:
            finds[query] = any(hit.document.title == support for hit in retriever.search(query, topk))
        return finds[query]

    texts: set[str] = set()
    for number, group in enumerate(world.groups):
        for place, count in enumerate(hops):
            wanted = per_group // len(hops) + (place < per_group % len(hops))
            rng = keyed_random("questions", world.mark, seed, number, count)
            walks = set()
            for _ in range(wanted * _TRIES_EACH):
                if not wanted:
                    break
                chain = draw_walk(group, world.relations, count, rng)
                if chain is None or chain in walks:
                    continue
                question = Question(ask(chain, world.relations, rng), chain, number)
                is_good = question.text not in texts and all(is_found(fact.query, fact.support) for fact in chain)
                if not is_good or (count > 1 and has_shortcut(question, retriever)):
                    continue
                walks.add(chain)
                texts.add(question.text)
                wanted -= 1
                yield question


def has_shortcut(question: Question, retriever: Retriever) -> bool:
    """Return whether the answer stands in the question, or in one of the three best documents for the question."""
    texts = [question.text, *(hit.document.search_text for hit in retriever.search(question.text, CHECKED_TOPK))]
    answer = f" {normalise(question.answer)} "
    return any(answer in f" {normalise(text)} " for text in texts)


def task_of(question: Question, world: World, number: int) -> Task:
    """Return a question as a task; tasks of one group, and so all that share a fact, are in one split."""
    hops = [
        {"query": fact.query, "seeks": fact.relation, "of": fact.entity, "support": fact.support}
        for fact in question.chain
    ]
    content: dict[str, Any] = {
        "question": question.text,
        "answers": [question.answer],
        "supports": list(dict.fromkeys(fact.support for fact in question.chain)),
        "hops": hops,
        "kind": f"{len(hops)}_hop",
        "corpus": world.mark,
    }
    return Task(f"{question.group:03d}/{number:05d}", content, split_key=f"group {question.group}")
