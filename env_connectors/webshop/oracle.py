"""A shopper who knows the goal: searches, picks the product and its options, buys; plans from any page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from env_connectors.webshop import pages
from env_connectors.webshop.nouns import telling_words
from env_connectors.webshop.pages import PAGE_SIZE
from env_connectors.webshop.products import Product, keyed_random
from env_connectors.webshop.reward import Goal, options_alike
from env_connectors.webshop.session import MOST_QUERY_CHARS, MOST_RESULTS, Session

Plan = list[tuple[str, str]]
_PRICE_WORDS = re.compile(r",? and price lower than [\d.]+ dollars$")


def wanted_options(product: Product, goal: Goal) -> dict[str, str]:
    """Return the option values to choose, by name: for each wanted one the equal, else the first one alike."""
    if isinstance(goal.options, Mapping):
        return {name: value for name, value in goal.options.items() if value in product.options.get(name, ())}
    chosen: dict[str, str] = {}
    for wanted in goal.options:
        offers = [(name, value) for name, values in product.options.items() if name not in chosen for value in values]
        equal = [offer for offer in offers if offer[1] == wanted]
        found = equal or [offer for offer in offers if options_alike(offer[1], wanted)]
        chosen.update(found[:1])
    return chosen


def plan(session: Session, goal: Goal) -> Plan:
    """Return (thought, action) pairs from where the session stands to the purchase; [] when the product is not found."""
    if session.bought is not None or goal.asin not in session.catalogue:
        return []
    product = session.catalogue[goal.asin]
    ending = list(_on_item_page(product, goal, session.options if session.product == product else {}))
    if session.product == product:
        back = [("back to the product", _click(pages.PREV))] if session.page.kind == "item_sub_page" else []
        return [*back, *ending]
    if session.product is None and session.page.kind == "search_results" and goal.asin in session.results:
        return [*_to_product(goal, session.results, session.page_number), *ending]
    found = _search(session, goal)
    if found is None:
        return []
    query, results = found
    return [(f"look for {goal.query}", f"search[{query}]"), *_to_product(goal, results, 1), *ending]


def queries(goal: Goal) -> list[str]:
    """Return searches in words that a reader of the request could think of, in an order of the goal's own."""
    text = _PRICE_WORDS.sub("", goal.instruction.lower())
    found = [
        " ".join(telling_words(text)),
        " ".join([*goal.attributes, goal.query]),
        " ".join([goal.query, *goal.attributes[:1], *goal.option_values]),
    ]
    keyed_random("query", goal.asin, goal.instruction).shuffle(found)
    return [query for query in dict.fromkeys(map(_as_query, found)) if query]


def careless_queries(goal: Goal) -> list[str]:
    """Return searches, as actions, in which part of the request is forgotten."""
    parts = [goal.query, *goal.attributes, *goal.option_values]
    return [f"search[{query}]" for query in dict.fromkeys(map(_as_query, parts)) if query]


def _as_query(text: str) -> str:
    return " ".join(text.lower().split())[:MOST_QUERY_CHARS]


def _search(session: Session, goal: Goal) -> tuple[str, list[str]] | None:
    """Return the first query with the product on the first page, else the one that ranks it best.

    Only when none of the queries finds it, the product's own title is searched for.
    """
    best: tuple[str, list[str]] | None = None
    for query in [*queries(goal), _as_query(goal.title)]:
        if best is not None and (query == _as_query(goal.title) or best[1].index(goal.asin) < PAGE_SIZE):
            break
        results = session.catalogue.search(query, MOST_RESULTS)
        if goal.asin in results and (best is None or results.index(goal.asin) < best[1].index(goal.asin)):
            best = (query, results)
    return best


def _to_product(goal: Goal, results: list[str], page: int) -> Iterator[tuple[str, str]]:
    target = results.index(goal.asin) // PAGE_SIZE + 1
    for _ in range(page, target):
        yield "not on this page", _click(pages.NEXT)
    for _ in range(target, page):
        yield "it was on a page before", _click(pages.PREV)
    yield f"{goal.asin.lower()} fits", _click(goal.asin)


def _on_item_page(product: Product, goal: Goal, chosen: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in wanted_options(product, goal).items():
        if chosen.get(name.lower()) != value:
            yield f"{name} {value}", f"click[{value}]"
    yield "all is chosen", _click(pages.BUY)


def _click(text: str) -> str:
    return f"click[{text.lower()}]"
