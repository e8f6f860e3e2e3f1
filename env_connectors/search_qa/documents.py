"""Documents, and how those that were found are shown to the agent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from env_connectors.search_qa.reply import ANSWER, SEARCH

NOTHING_FOUND = "nothing found"
_TAG = re.compile(rf"<\s*(/?)\s*(think|{SEARCH}|{ANSWER}|information)\s*>", re.IGNORECASE)
_CUT = " ..."


@dataclass(frozen=True)
class Document:
    """A document of the corpus.

    Attributes:
        title: names it; documents with equal titles count as the same support.
        text: without the title.
    """

    title: str
    text: str

    @property
    def search_text(self) -> str:
        """What the index reads."""
        return f"{self.title} {self.text}"


@dataclass(frozen=True)
class Found:
    """A document that a search found, with its score."""

    document: Document
    score: float


def results_text(documents: Sequence[Document], most_chars: int) -> str:
    """Return what was found, in the form of Search-R1, 'Doc 1(Title: t) text' line by line within its tags.

    The text between the tags has at most `most_chars` characters: a longer one is cut at the last blank that leaves room
    for ' ...', its end. The tags are always whole.
    """
    lines = [
        f"Doc {number}(Title: {_tame(found.title)}) {_tame(found.text)}"
        for number, found in enumerate(documents, start=1)
    ]
    return f"\n\n<information>{_cut(chr(10).join(lines) or NOTHING_FOUND, most_chars)}</information>\n\n"


def compact_results_text(documents: Sequence[Document], most_chars: int) -> str:
    """Return what was found in few words, without titles: every word, also the first, has one blank before it."""
    texts = " . ".join(" ".join(_tame(found.text).split()) for found in documents)
    return f"<information> {_cut(texts or NOTHING_FOUND, most_chars)}</information>"


def _tame(text: str) -> str:
    """Return a text in which no tag of the reply's form is left: <answer> becomes (answer)."""
    return _TAG.sub(r"(\1\2)", text)


def _cut(text: str, most_chars: int) -> str:
    if len(text) <= most_chars:
        return text
    kept = text[: max(0, most_chars - len(_CUT)) + 1]
    at = max(kept.rfind(" "), kept.rfind("\n"))
    return (kept[:at] if at > 0 else kept[:-1]).rstrip() + _CUT
