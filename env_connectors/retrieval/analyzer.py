"""Text to search terms: Lucene's EnglishAnalyzer (words, possessive 's off, lower case, stop words out, Porter stems)."""

from __future__ import annotations

from functools import lru_cache

from env_connectors.retrieval.porter import stem
from env_connectors.retrieval.unicode_words import words

STOP_WORDS = frozenset(
    (
        "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not", "of",
        "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "will", "with",
    )
)  # fmt: skip
_POSSESSIVE = ("'s", "\u2019s", "\uff07s")


def analyze(text: str) -> list[str]:
    """Return the terms of a text in order, repeated ones included."""
    return [term for word in words(text) if (term := term_of(word))]


@lru_cache(maxsize=1 << 16)
def term_of(word: str) -> str:
    """Return the term of one word, '' for a stop word."""
    # Letter by letter, as Java does: str.lower() would make two letters of some, and looks at the end of a word.
    lower = word.lower() if word.isascii() else "".join(low if len(low := sign.lower()) == 1 else sign for sign in word)
    if lower.endswith(_POSSESSIVE):
        lower = lower[:-2]
    return "" if lower in STOP_WORDS else stem(lower)
