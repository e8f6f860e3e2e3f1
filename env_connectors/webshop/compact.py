"""Observations in few words, for small word-level models: the request, then the page without its buttons."""

from __future__ import annotations

import math
import re

from env_connectors.webshop.pages import BUTTON, OPTION, PAGE_SIZE, Part
from env_connectors.webshop.session import Session

_AMOUNT = re.compile(r"\$(\d[\d,]*(?:\.\d+)?)|(\d[\d,]*(?:\.\d+)?)(?= dollars)")
_ENDS = ",.:;?!"


def compact_text(session: Session) -> str:
    """Return e.g. 'want lip balms with count 2 pack at s59414 holford lip balm price 7 count 1 pack 2 pack chosen nothing'.

    Told is what the page shows, in lower case, without punctuation and with sums in whole dollars, rounded up; and what was
    clicked: `seen` stands before a result that was opened, `chosen` before the option values chosen.
    """
    return f"want {_plain(session.instruction)} {compact_brief(session)}"


def compact_brief(session: Session) -> str:
    """Return the same without the request, for the history."""
    page = session.page
    parts = [part for part in page.parts[page.instruction_parts :] if part.kind != BUTTON]
    if page.kind == "search_results":
        last = max(1, math.ceil(len(session.results) / PAGE_SIZE))
        rows = [f"seen {part.text}" if part.text in session.visited else part.text for part in parts[1:]]
        return " ".join([f"page {session.page_number} of {last}", *map(_plain, rows)])
    if session.product is None or page.kind == "done":
        return "at search" if page.kind == "index" else "bought"
    here = f"at {session.product.asin.lower()}"
    if page.kind == "item_sub_page":
        return " ".join([here, session.sub_page.lower(), *(_plain(part.text) for part in parts)])
    title, price = session.product.title, session.product.price_text
    chosen = [value.lower() for value in session.options.values()] or ["nothing"]
    return " ".join([here, _plain(title), "price", _plain(price), *_options(parts), "chosen", *chosen])


def _options(parts: list[Part]) -> list[str]:
    """Return the options with their values; what can be clicked keeps its punctuation."""
    told: list[str] = []
    last_name = None
    for part in parts:
        if part.kind == OPTION:
            told += [part.text.lower()] if part.name == last_name else [_plain(part.name), part.text.lower()]
            last_name = part.name
    return told


def _plain(text: str) -> str:
    """Return a text in lower case, sums in whole dollars, words without the punctuation at their ends."""
    rounded = _AMOUNT.sub(lambda found: str(math.ceil(float((found[1] or found[2]).replace(",", "")))), text.lower())
    words = (word.strip(_ENDS) for word in rounded.split())
    return " ".join(word for word in words if word)
