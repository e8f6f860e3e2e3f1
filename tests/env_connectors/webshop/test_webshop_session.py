"""A visit: page texts of the original, what actions do, and what they leave alone."""

import json
from dataclasses import replace

import pytest

from env_connectors.webshop import pages
from env_connectors.webshop.products import MemoryCatalogue, Review, product_of
from env_connectors.webshop.session import Session, parse_action
from env_connectors.webshop.statistics import action_statistics
from env_connectors.webshop.synthetic import synthetic_products

_PLAIN = replace(
    synthetic_products(10)[0], asin="B0A", title="Red Cup", description="", bullets=("Holds tea", "By hand"), category="garden",
    query="cups", product_category="Home \u203a Cups", options={"size": ("8 oz", "12 oz"), "Color": ("red",)},
    attributes=("lead free",), prices=(9.5,), price_text="$9.5",
)  # fmt: skip
_CUPS = [replace(_PLAIN, asin=f"B{n:02d}", title=f"Cup number {n}", options={}) for n in range(23)]
_SAID = "Instruction: [SEP] a cup [SEP] Back to Search [SEP] "


def _session(**settings: bool) -> Session:
    return Session(MemoryCatalogue([_PLAIN, *_CUPS], "cups"), "a cup", **settings)


def _after(*actions: str, **settings: bool) -> Session:
    session = _session(**settings)
    assert all(session.act(action) for action in actions)
    return session


def _text(session: Session) -> str:
    return pages.plain_text(session.page)


def test_first_page() -> None:
    assert _text(_session()) == "WebShop [SEP] Instruction: [SEP] a cup [SEP] Search"


def test_results_and_their_pages() -> None:
    session = _after("search[number]")
    first = " [SEP] ".join(f"B{n:02d} [SEP] Cup number {n} [SEP] $9.5" for n in range(10))
    assert _text(session) == f"{_SAID}Page 1 (Total results: 23) [SEP] Next > [SEP] {first}"
    assert session.act("click[next >]") and session.act("click[next >]")
    last = " [SEP] ".join(f"B{n} [SEP] Cup number {n} [SEP] $9.5" for n in range(20, 23))
    assert _text(session) == f"{_SAID}Page 3 (Total results: 23) [SEP] < Prev [SEP] {last}"
    assert not session.act("click[next >]")
    assert session.act("click[< prev]") and session.page_number == 2
    assert _text(_after("search[nothing]")) == f"{_SAID}Page 1 (Total results: 0)"


def test_item_page_and_its_sub_pages() -> None:
    item = (
        f"{_SAID}< Prev [SEP] size [SEP] 8 oz [SEP] 12 oz [SEP] Color [SEP] red [SEP] Red Cup [SEP] Price: $9.5 [SEP] "
        "Rating: N.A. [SEP] Description [SEP] Features [SEP] Reviews [SEP] Buy Now"
    )
    session = _after("search[red]", "click[b0a]")
    assert _text(session) == item
    for name, text in (("features", "Holds tea [SEP] By hand"), ("reviews", "No reviews found"), ("description", "")):
        assert session.act(f"click[{name}]")
        assert _text(session) == f"{_SAID}< Prev" + (f" [SEP] {text}" if text else "")
        assert session.act("click[< prev]") and _text(session) == item
    shown = _after("search[red]", "click[b0a]", "click[attributes]", show_attributes=True)
    assert _text(shown).endswith("< Prev [SEP] lead free [SEP] garden [SEP] cups [SEP] Home \u203a Cups")
    assert not session.act("click[attributes]")


def test_reviews_are_shown() -> None:
    page = pages.sub_page("a cup", replace(_PLAIN, reviews=(Review("Good", "4", "I like it"),)), "Reviews")
    assert pages.plain_text(page).endswith('< Prev [SEP] "Good" [SEP] 4 [SEP] I like it')


def test_last_page() -> None:
    text = pages.plain_text(pages.done_page("B0A", {"size": "8 oz"}, 0.5))
    assert text.startswith(
        'Thank you for shopping with us! [SEP] Your code: [SEP] None [SEP] (Paste it in your MTurk interface.) [SEP] Purchased '
        '[SEP] asin [SEP] B0A [SEP] options [SEP] {"size": "8 oz"} [SEP] attrs [SEP] None'
    )  # fmt: skip
    assert text.endswith("Reward [SEP] Your score (min 0.0, max 1.0) [SEP] 0.5 [SEP] Reward Details [SEP] None")


def test_another_value_replaces_the_first_one_and_names_are_kept_in_lower_case() -> None:
    session = _after(
        "search[red]", "click[B0A]", "click[8 oz]", "click[red]", "click[12 oz]", "click[features]", "click[< prev]"
    )
    assert session.options == {"size": "12 oz", "color": "red"}
    rich = pages.rich_text(session.page, session.options, frozenset())
    assert rich.startswith(
        "You have clicked red.\nYou have clicked 12 oz.\nInstruction:\na cup\n[button] Back to Search [button_]\n"
    )
    assert "  [button] 8 oz [button_]\n  [clicked button] 12 oz [clicked button_]\n" in rich


def test_a_search_or_the_way_back_forgets_product_and_options() -> None:
    on_item = ("search[red]", "click[b0a]", "click[red]")
    for way in ("search[cup]", "click[< prev]"):
        session = _after(*on_item, way)
        assert (session.product, session.options, session.visited) == (None, {}, {"B0A"})
    rich = pages.rich_text(session.page, {}, frozenset(session.visited))
    assert "\n\n[clicked button] B0A [clicked button_]\nRed Cup\n$9.5\n" in rich
    assert _after(*on_item, "click[back to search]").state_key == _session().state_key


def test_addresses_are_those_of_the_original() -> None:
    base = "http://127.0.0.1:3000"
    assert _session().url == base
    assert _after("search[red cup]").url == f"{base}/search_results/red+cup/1"
    item = ("search[red]", "click[b0a]", "click[red]")
    assert _after(*item).url == f'{base}/item_page/B0A/red/1/{{"color": "red"}}'
    assert _after(*item, "click[features]").url == f"{base}/item_sub_page/B0A/red/1/Features/{{'color': 'red'}}"


@pytest.mark.parametrize(
    ("action", "parsed"),
    [
        ("search[red cup]", ("search", "red cup")), (" Click[B0A] please", ("click", "b0a")), ("search[ ]", ("search", " ")),
        ("click[12 [pack]]", ("click", "12 [pack]")), ("search[]", None), ("search", None), ("buy[x]", None), ("", None),
        ("click[x", None), ("click[a\nb]", None), ("research[x]", None), ("click(x)", None),
    ],
)  # fmt: skip
def test_actions_are_read(action: str, parsed: tuple[str, str] | None) -> None:
    assert parse_action(action) == parsed


def test_what_is_not_there_changes_nothing() -> None:
    for actions in ((), ("search[red]",), ("search[red]", "click[b0a]")):
        session = _after(*actions)
        before = session.state_key
        assert not any(
            session.act(f"click[{word}]") for word in ("b99", "buy nowhere", "16 oz", "search", "instruction:")
        )
        assert session.state_key == before and session.counts.invalid == 5


def test_an_option_named_like_a_button_does_what_the_button_does() -> None:
    odd = replace(_PLAIN, options={"view": ("features", "next >", "buy now", "search")})
    session = Session(MemoryCatalogue([odd], "odd"), "a cup")
    assert session.act("search[red]") and session.act("click[b0a]") and session.act("click[next >]")
    assert session.options == {"view": "next >"} and not session.act("click[search]")
    assert session.act("click[features]") and session.page.kind == "item_sub_page"


def test_statistics_of_a_visit_by_hand() -> None:
    session = _after(
        "search[number]", "click[next >]", "click[< prev]", "click[next >]", "search[red]", "click[b0a]", "click[features]",
        "click[< prev]", "click[red]",
    )  # fmt: skip
    session.act("fly")
    session.act("click[buy now]")
    assert action_statistics(session) == {
        "searches": 2, "search_refinements": 1, "items_viewed": 1, "sub_pages": 1, "next_pages": 2, "pages_seen_again": 2,
        "option_clicks": 1, "invalid_actions": 1, "purchases": 1, "options_missing_at_purchase": 1, "premature_purchase": 1,
    }  # fmt: skip


def test_html_shows_markup_and_runs_none() -> None:
    evil = replace(_PLAIN, title="<script>alert(1)</script>", options={'a" onclick="x': ('"><img src=x onerror=y>',)})
    html = pages.page_html(pages.item_page("<b>buy</b>", evil, show_attributes=False), {})
    assert "<script" not in html and "<img" not in html and "<b>" not in html and 'onclick="' not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html


def test_records_of_products_are_read_back() -> None:
    for product in (*synthetic_products(10), replace(_PLAIN, reviews=(Review("Good", "4", "Yes"),), request=None)):
        assert product_of(json.loads(json.dumps(product.record()))) == product
