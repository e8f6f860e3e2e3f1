"""A visit to the shop: what search[...] and click[...] do, page by page, as in the original.

A search is possible on every page and forgets product and options; so does a way back to the results. Differences: 'Next >'
is only there while there is a next page (the original goes on to empty ones), and an argument goes from the first bracket
to the last (there, a value with a bracket in it cannot be clicked).
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field

from env_connectors.webshop import pages
from env_connectors.webshop.pages import LINK, OPTION, PAGE_SIZE, Page, Part
from env_connectors.webshop.products import Catalogue, Product

MOST_RESULTS = 50
MOST_QUERY_CHARS = 1000
_ACTION = re.compile(r"\s*(search|click)\[([^\n]+)\]", re.IGNORECASE)
_BASE_URL = "http://127.0.0.1:3000"


def parse_action(action: str) -> tuple[str, str] | None:
    """Return the name of an action ('search' or 'click') and its argument in lower case, None for anything else."""
    match = _ACTION.match(action)
    return (match[1].lower(), match[2].lower()) if match else None


@dataclass
class Counts:
    """What was done so far in an episode; see statistics.py."""

    searches: int = 0
    items_viewed: int = 0
    sub_pages: int = 0
    next_pages: int = 0
    pages_seen_again: int = 0
    options_clicked: int = 0
    invalid: int = 0


@dataclass
class Session:
    """One visit with its instruction.

    Attributes:
        catalogue: the shop's products.
        instruction: what to buy, shown on every page.
        show_attributes: item pages have a button for the hidden attributes.
        page: the page being shown.
        keywords: the last search, in words; empty before the first one.
        results: asins found by it.
        page_number: page of results, from 1.
        product: the product being looked at.
        options: option values chosen for it, by name.
        sub_page: name of the sub page being shown.
        visited: asins looked at since the visit began or went back to the start.
        bought: the product that was bought; the visit is over, and its last page is the caller's to make.
        counts: what was done so far.
    """

    catalogue: Catalogue
    instruction: str
    show_attributes: bool = False
    keywords: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    page_number: int = 1
    product: Product | None = None
    sub_page: str = ""
    options: dict[str, str] = field(default_factory=dict)
    visited: set[str] = field(default_factory=set)
    bought: Product | None = None
    counts: Counts = field(default_factory=Counts)
    _pages_seen: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Open the first page."""
        self.page: Page = pages.index_page(self.instruction)

    def act(self, action: str) -> bool:
        """Play one action and return whether it meant anything here; if not, nothing changes."""
        parsed = parse_action(action)
        is_valid = parsed is not None and (self._search(parsed[1]) if parsed[0] == "search" else self._click(parsed[1]))
        self.counts.invalid += not is_valid
        return is_valid

    @property
    def url(self) -> str:
        """Address of the page being shown."""
        asin = self.product.asin if self.product else ""
        words = "+".join(self.keywords)
        tails = {
            "index": "",
            "search_results": f"/{words}/{self.page_number}",
            "item_page": f"/{asin}/{words}/{self.page_number}/{json.dumps(self.options)}",
            "item_sub_page": f"/{asin}/{words}/{self.page_number}/{self.sub_page}/{self.options}",
            "done": f"/{asin}/{self.options}",
        }
        kind = "" if self.page.kind == "index" else f"/{self.page.kind}"
        return f"{_BASE_URL}{kind}{tails[self.page.kind]}"

    @property
    def state_key(self) -> str:
        """Mark of everything that decides what can be seen and done from here: equal marks, equal states."""
        state = [
            self.page.kind,
            self.keywords,
            self.page_number,
            self.product.asin if self.product else "",
            self.sub_page,
        ]
        full = json.dumps([*state, sorted(self.options.items())])
        return f"{self.page.kind} {hashlib.sha256(full.encode()).hexdigest()[:16]}"

    def _search(self, words: str) -> bool:
        self.keywords = words[:MOST_QUERY_CHARS].split(" ")
        self.results = self.catalogue.search(" ".join(self.keywords), MOST_RESULTS)
        self.counts.searches += 1
        self._pages_seen = {1}
        self._show_results(1)
        return True

    def _click(self, word: str) -> bool:
        part = self.page.clickables().get(word)
        if part is None or word == pages.SEARCH.lower():
            return False
        kind, button = self.page.kind, _BUTTON_OF_WORD.get(word)
        if button == pages.BUY:
            self._buy()
        elif button == pages.BACK:
            self._start_anew()
        elif button in (pages.NEXT, pages.PREV) and kind == "search_results":
            self._turn_page(1 if button == pages.NEXT else -1)
        elif button == pages.PREV and kind == "item_page":
            self._show_results(self.page_number)
        elif button in pages.SUB_PAGES:
            self._show_sub_page(button)
        else:
            self._choose(part)
        return True

    def _buy(self) -> None:
        self.bought = self.product
        self.page = pages.EMPTY_PAGE

    def _start_anew(self) -> None:
        self.keywords, self.results, self.page_number = [], [], 1
        self.product, self.sub_page, self.options, self.visited = None, "", {}, set()
        self.page = pages.index_page(self.instruction)

    def _turn_page(self, step: int) -> None:
        number = self.page_number + step
        self.counts.next_pages += step > 0
        self.counts.pages_seen_again += number in self._pages_seen
        self._pages_seen.add(number)
        self._show_results(number)

    def _show_results(self, number: int) -> None:
        self.page_number, self.product, self.sub_page, self.options = number, None, "", {}
        shown = self.results[(number - 1) * PAGE_SIZE : number * PAGE_SIZE]
        products = [self.catalogue[asin] for asin in shown]
        self.page = pages.results_page(self.instruction, products, number, len(self.results))

    def _show_item(self) -> None:
        assert self.product is not None, "item pages are reached through a product"
        self.sub_page = ""
        self.page = pages.item_page(self.instruction, self.product, show_attributes=self.show_attributes)

    def _show_sub_page(self, name: str) -> None:
        assert self.product is not None, "sub pages are reached through a product"
        self.sub_page = name
        self.counts.sub_pages += 1
        self.page = pages.sub_page(self.instruction, self.product, name)

    def _choose(self, part: Part) -> None:
        if part.kind == LINK:
            self.product = self.catalogue[part.text]
            self.visited.add(part.text)
            self.counts.items_viewed += 1
        elif part.kind == OPTION:
            self.options[part.name.lower()] = part.text
            self.counts.options_clicked += 1
        self._show_item()


_BUTTONS = (pages.BUY, pages.BACK, pages.NEXT, pages.PREV, *pages.SUB_PAGES)
_BUTTON_OF_WORD = {name.lower(): name for name in _BUTTONS}
