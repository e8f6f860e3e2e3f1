"""Pages of the shop as rows of parts, and their texts: plain, rich, and HTML for a person.

Texts are those of the original's templates. A page is a row of parts: plain text, a button, an option value, or a link to
a product. The plain text joins them with ' [SEP] '; the rich one marks what can be clicked and what has been.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from env_connectors.webshop.products import Product

SEPARATOR = " [SEP] "
PAGE_SIZE = 10
SEARCH, BACK, NEXT, PREV, BUY = "Search", "Back to Search", "Next >", "< Prev", "Buy Now"
SUB_PAGES = ("Description", "Features", "Reviews", "Attributes")
TEXT, BUTTON, OPTION, LINK = "text", "button", "option", "link"


@dataclass(frozen=True)
class Part:
    """A piece of a page.

    Attributes:
        kind: TEXT, BUTTON, OPTION or LINK.
        text: what is shown.
        name: of an option value: the option that it belongs to.
    """

    kind: str
    text: str
    name: str = ""

    @property
    def clickable(self) -> str:
        """What to click for it: button and link texts in lower case, option values as they are."""
        return self.text if self.kind == OPTION else self.text.lower()


@dataclass(frozen=True)
class Page:
    """One page: its parts in reading order.

    Attributes:
        kind: 'index', 'search_results', 'item_page', 'item_sub_page' or 'done', as in its address.
        parts: what is on it.
        instruction_parts: how many of the first parts say what to buy.
    """

    kind: str
    parts: tuple[Part, ...]
    instruction_parts: int = 0

    def clickables(self) -> dict[str, Part]:
        """Return what can be clicked, by the word for it; an option value hides a button or link of the same word."""
        found = {part.clickable: part for part in self.parts if part.kind in (BUTTON, LINK)}
        return found | {part.clickable: part for part in self.parts if part.kind == OPTION}

    def hasty_clicks(self) -> list[str]:
        """Return the words for all buttons, and for the first link and the first value of each option."""
        first = {(part.kind, part.name): part.clickable for part in reversed(self.parts) if part.kind in (LINK, OPTION)}
        return [*(part.clickable for part in self.parts if part.kind == BUTTON), *reversed(first.values())]


EMPTY_PAGE = Page("done", ())


def _said(instruction: str) -> list[Part]:
    return [Part(TEXT, "Instruction:"), Part(TEXT, instruction)]


def _page(kind: str, instruction: Sequence[Part], *others: Part) -> Page:
    # A template with nothing in a place has no text node there.
    return Page(kind, (*instruction, *(part for part in others if part.text)), len(instruction))


def index_page(instruction: str) -> Page:
    """Return the page that an episode starts on."""
    shop = Part(TEXT, "WebShop")
    return Page("index", (shop, *_said(instruction), Part(BUTTON, SEARCH)), 3)


def results_page(instruction: str, products: Sequence[Product], page: int, total: int) -> Page:
    """Return a page of search results.

    Args:
        instruction: what to buy.
        products: those of this page.
        page: its number, from 1.
        total: results on all pages.
    """
    buttons = [Part(BUTTON, PREV)] if page > 1 else []
    buttons += [Part(BUTTON, NEXT)] if page * PAGE_SIZE < total else []
    rows = [
        part
        for product in products
        for part in (Part(LINK, product.asin), Part(TEXT, product.title), Part(TEXT, product.price_text))
    ]
    heading = Part(TEXT, f"Page {page} (Total results: {total})")
    return _page("search_results", _said(instruction), Part(BUTTON, BACK), heading, *buttons, *rows)


def item_page(instruction: str, product: Product, *, show_attributes: bool) -> Page:
    """Return the page of a product."""
    options = [
        part
        for name, values in product.options.items()
        for part in (Part(TEXT, name), *(Part(OPTION, value, name) for value in values))
    ]
    facts = (
        Part(TEXT, product.title),
        Part(TEXT, f"Price: {product.price_text}"),
        Part(TEXT, f"Rating: {product.rating}"),
    )
    buttons = [Part(BUTTON, name) for name in (SUB_PAGES if show_attributes else SUB_PAGES[:-1])]
    top = (Part(BUTTON, BACK), Part(BUTTON, PREV))
    return _page("item_page", _said(instruction), *top, *options, *facts, *buttons, Part(BUTTON, BUY))


def sub_page(instruction: str, product: Product, name: str) -> Page:
    """Return one of the SUB_PAGES of a product."""
    texts = _sub_page_texts(product, name)
    top = (Part(BUTTON, BACK), Part(BUTTON, PREV))
    return _page("item_sub_page", _said(instruction), *top, *(Part(TEXT, text) for text in texts))


def _sub_page_texts(product: Product, name: str) -> Iterator[str]:
    if name == "Description":
        yield product.description
    elif name == "Features":
        yield from product.bullets
    elif name == "Attributes":
        yield from (*product.attributes, product.category, product.query, product.product_category)
    elif not product.reviews:
        yield "No reviews found"
    for review in product.reviews if name == "Reviews" else ():
        yield from (f'"{review.title}"', review.score, review.body)


def done_page(asin: str, options: Mapping[str, str], score: float) -> Page:
    """Return the page after a purchase; the original shows the same empty places."""
    texts = (
        "Thank you for shopping with us!", "Your code:", "None", "(Paste it in your MTurk interface.)", "Purchased", "asin",
        asin, "options", json.dumps(dict(options)), "attrs", "None", "category", "None", "query", "None",
        "product category", "None", "Target", "asin", "options", "attrs", "price upper", "instuction text", "category",
        "product category", "query", "Goal", "None", "Reward", "Your score (min 0.0, max 1.0)", str(score),
        "Reward Details", "None",
    )  # fmt: skip
    return _page("done", (), *(Part(TEXT, text) for text in texts))


def plain_text(page: Page, *, with_instruction: bool = True) -> str:
    """Return a page as texts joined by ' [SEP] '."""
    return SEPARATOR.join(part.text.strip() for part in page.parts[0 if with_instruction else page.instruction_parts :])


def rich_text(page: Page, chosen: Mapping[str, str], visited: frozenset[str]) -> str:
    """Return a page line by line, with what can be clicked between marks.

    Args:
        page: what is shown.
        chosen: option values chosen so far, by name.
        visited: asins of the products looked at so far.
    """
    text = ""
    for part in page.parts:
        if part.kind == TEXT:
            text += f"{part.text}\n"
        elif part.kind == BUTTON:
            text += f"[button] {part.text} [button_]\n"
        elif part.kind == LINK:
            text += f"\n{_marked(part.text, part.text in visited)}\n"
        else:
            is_chosen = part.text in chosen.values()
            # As in the original, every chosen value is also named above all that stands on the page so far.
            text = (
                f"You have clicked {part.text}.\n" if is_chosen else ""
            ) + f"{text}  {_marked(part.text, is_chosen)}\n"
    return text


def _marked(text: str, is_clicked: bool) -> str:
    return f"[clicked button] {text} [clicked button_]" if is_clicked else f"[button] {text} [button_]"


def page_html(page: Page, chosen: Mapping[str, str]) -> str:
    """Return a page as HTML for a person; whatever is in a product's texts is shown, never run."""
    rows = "\n".join(_html_of(part, chosen) for part in page.parts)
    return f'<!DOCTYPE html>\n<html><head><meta charset="utf-8"><title>WebShop</title></head>\n<body>\n{rows}\n</body></html>\n'


def _html_of(part: Part, chosen: Mapping[str, str]) -> str:
    text = html.escape(part.text)
    if part.kind == TEXT:
        return f"<p>{text}</p>"
    if part.kind == LINK:
        return f'<a class="product-link" href="#">{text}</a>'
    if part.kind == BUTTON:
        return f'<button class="btn">{text}</button>'
    checked = " checked" if chosen.get(part.name) == part.text else ""
    return f'<label><input type="radio" name="{html.escape(part.name)}" value="{text}"{checked}>{text}</label>'
