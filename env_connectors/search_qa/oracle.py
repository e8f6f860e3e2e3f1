"""A searcher who knows the hops: looks each one up whose document it has not seen, then answers; plans from any state."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from env_connectors.search_qa.documents import Document
from env_connectors.search_qa.reply import ANSWER, SEARCH, written

Plan = list[tuple[str, str]]
_MOST_SEARCHES = 6
_MOST_ANSWERS = 4


def plan(content: Mapping[str, Any], seen: Collection[str], *, has_searched: bool, is_compact: bool) -> Plan:
    """Return (thought, action) pairs that answer a task, given the titles of the documents seen so far.

    A task without known hops is answered after one search for the question itself.
    """
    answer = content["answers"][0]
    if not content["hops"]:
        search = [] if has_searched else [("look up the question", written(SEARCH, content["question"]))]
        return [*search, ("that is the answer", written(ANSWER, answer))]
    missing = [hop for hop in content["hops"] if hop["support"] not in seen]
    last = content["hops"][-1]
    found = f"found {last['seeks']}" if is_compact else f"The {last['seeks']} of {last['of']} is {answer}."
    searches = [(_need(hop, is_compact), written(SEARCH, hop["query"])) for hop in missing]
    return [*searches, (found, written(ANSWER, answer))]


def _need(hop: Mapping[str, str], is_compact: bool) -> str:
    return f"need {hop['seeks']}" if is_compact else f"I need the {hop['seeks']} of {hop['of']}."


def choices(content: Mapping[str, Any], found: Sequence[Document], planned: Plan, *, is_compact: bool) -> list[str]:
    """Return some actions that come to mind: what the planned one is, searches for what is in sight, answers in sight."""
    searches = [
        *_searches(content, is_compact),
        *(written(SEARCH, document.title) for document in found if document.title),
    ]
    answers = [written(ANSWER, name) for name in _names(found, is_compact)]
    sensible = [action for _, action in planned[:1]]
    listed = [*sensible, *_some(searches, _MOST_SEARCHES), *_some(answers, _MOST_ANSWERS)]
    return list(dict.fromkeys(listed))


def _searches(content: Mapping[str, Any], is_compact: bool) -> Iterator[str]:
    """Yield searches that a look at the question suggests: all that it asks for of whom it names, and the name alone."""
    if not content["hops"]:
        yield written(SEARCH, content["question"])
    for hop in content["hops"]:
        name, seeks = content["hops"][0]["of"], hop["seeks"]
        yield written(SEARCH, f"{seeks} of {name}" if is_compact else f"{name} {seeks}")
    if content["hops"]:
        yield written(SEARCH, content["hops"][0]["of"])


def _names(found: Sequence[Document], is_compact: bool) -> Iterator[str]:
    for document in found:
        value = document.text.rpartition(" is ")[2] if is_compact else document.title
        if value.strip() and "</" not in value:
            yield value


def _some(actions: Sequence[str], most: int) -> list[str]:
    return list(dict.fromkeys(actions))[:most]
