"""The score: equal to a second implementation written from the published formulas, and numbers by hand."""

import random
import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest

from env_connectors import EnvConfigError
from env_connectors.webshop.fuzzy import token_set_ratio
from env_connectors.webshop.goals import goals_of
from env_connectors.webshop.nouns import MODELS, _spacy_model, noun_finder, telling_words
from env_connectors.webshop.official import OfficialFiles, read_products
from env_connectors.webshop.products import Product, price_of
from env_connectors.webshop.reward import COLOURS, Goal, has_attribute, score_purchase
from env_connectors.webshop.synthetic import synthetic_products


def _edit_steps(one: str, other: str) -> int:
    """Letters to insert or delete, by the textbook table."""
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, start=1):
        last, row = row, [at]
        for place, wanted in enumerate(other):
            row.append(last[place] if letter == wanted else 1 + min(last[place + 1], row[place]))
    return row[-1]


def _likeness(first: object, second: object) -> int:
    """Token set ratio, from the three strings that its description compares."""
    sides = []
    for side in (str(first), str(second)):
        kept = "".join(sign for sign in side if not 128 <= ord(sign) < 256)
        sides.append(set("".join(sign if sign.isalnum() else " " for sign in kept).lower().split()))
    if not all(sides):
        return 0
    shared = " ".join(sorted(sides[0] & sides[1]))
    longer = [" ".join([shared, *sorted(side - (sides[0] & sides[1]))]).strip() for side in sides]
    pairs = [(longer[0], longer[1]), *([(shared, longer[0]), (shared, longer[1])] if shared else [])]
    return max(round(100 - 100 * _edit_steps(a, b) / (len(a) + len(b))) for a, b in pairs)


def _long_words(title: str) -> tuple[str, ...]:
    """A stand-in for nouns, for both implementations."""
    return tuple(word for word in title.lower().split() if len(word) > 3)


def _second_score(product: Product, goal: Goal, price: float, chosen: Sequence[str], *, as_pairs: bool) -> float:
    """The score as upstream's goal.py describes it."""

    def colour(value):  # type: ignore[no-untyped-def]
        for name in COLOURS:
            if name in value:
                return name
        return value

    wanted_options = list(goal.options.items() if as_pairs else goal.options.values())  # type: ignore[union-attr]
    points = 0
    for attribute in goal.attributes:
        text = "\n".join([product.title, " ".join(product.bullets), product.description]).lower()
        points += any(_likeness(own, attribute) > 85 for own in product.attributes) or attribute in text
    for option in wanted_options:
        points += any(_likeness(colour(value), colour(option)) > 85 for value in chosen)
    points += price <= goal.price_limit
    nouns = _long_words(goal.title)
    share = len(set(nouns) & set(_long_words(product.title))) / len(nouns) if nouns else 0.2
    paths = [
        {part.strip() for part in path.split("\u203a")} for path in (product.product_category, goal.product_category)
    ]
    kind = 1.0 if product.query == goal.query or len(paths[0] & paths[1]) > 1 or share > 0.2 else 0.5
    kind = 0.0 if share == 0 else 0.1 if share < 0.1 else kind
    return points / (len(goal.attributes) + len(wanted_options) + 1) * kind


def _triples(products: Sequence[Product], count: int) -> list[tuple[Goal, Product, tuple[str, ...]]]:
    """Goals with their own product, one of the same kind, or any, and options that are partly the wanted ones."""
    rng = random.Random(0)
    wanted = [product for product in products if product.request is not None]
    found = []
    for _ in range(count):
        own = rng.choice(wanted)
        goal = next(goals_of(own, human=False, seed=0, most=1))
        alike = [other for other in products if other.query == own.query]
        bought = rng.choice([own, rng.choice(alike), rng.choice(products)])
        chosen = {name: rng.choice(values) for name, values in bought.options.items() if rng.random() < 0.8}
        assert isinstance(goal.options, dict)
        chosen |= {name: value for name, value in goal.options.items() if name in chosen and rng.random() < 0.5}
        found.append((goal, bought, tuple(chosen.values())))
    return found


def _compare(products: Sequence[Product], count: int, parity: bool) -> set[float]:
    """Compare both implementations on `count` triples and return the scores."""
    seen = set()
    for goal, bought, chosen in _triples(products, count):
        price = price_of(bought, 0)
        mine = score_purchase(bought, goal, price, chosen, nouns=_long_words, parity=parity)
        assert mine.score == _second_score(bought, goal, price, chosen, as_pairs=parity), (goal, bought.asin, chosen)
        seen.add(mine.score)
    return seen


@pytest.mark.parametrize("parity", [False, True])
def test_scores_are_those_of_the_second_implementation(parity: bool) -> None:
    seen = _compare(synthetic_products(300), 1200, parity)
    assert min(seen) == 0.0 and max(seen) == 1.0 and len(seen) > 10


@pytest.mark.parametrize("parity", [False, True])
def test_scores_of_real_products_are_those_of_the_second_implementation(
    parity: bool, thousand_products: tuple[OfficialFiles, object]
) -> None:
    seen = _compare(list(read_products(thousand_products[0])), 1200, parity)
    assert min(seen) == 0.0 and max(seen) == 1.0 and len(seen) > 20


def test_likeness_is_that_of_the_second_implementation() -> None:
    rng = random.Random(0)
    pool = ["red", "rod", "12", "x-large", "large", "a_b", "é", "café", "one size", "3", "中", "32 gb"]
    for _ in range(3000):
        one, other = (" ".join(rng.choices(pool, k=rng.randint(0, 4))) for _ in range(2))
        assert token_set_ratio(one, other) == _likeness(one, other), (one, other)


@pytest.mark.parametrize(
    ("one", "other", "ratio"),
    [
        ("x-large", "large", 100), ("2 pack", "3 pack", 83), ("pack of 2", "pack of 3", 89), ("", "a", 0), ("-", "-", 0),
        ("Red!", "red", 100),
    ],
)  # fmt: skip
def test_likeness_by_hand(one: str, other: str, ratio: int) -> None:
    assert token_set_ratio(one, other) == ratio


_LAMP = replace(
    synthetic_products(10)[0], title="Oak Table Lamp", query="lamps", product_category="Home \u203a Light \u203a Lamps",
    attributes=("solid wood", "lead free"), bullets=("Dims by touch",), description="A warm glow",
    options={"color": ("red", "tan")},
)  # fmt: skip
_GOAL = Goal(
    _LAMP.asin, _LAMP.title, "lamps", _LAMP.product_category, "buy", ("lead free", "warm glow"), {"color": "red"}, 50.0
)


def _score(bought: Product, price: float, *chosen: str, **changes: object) -> float:
    return score_purchase(bought, replace(_GOAL, **changes), price, chosen, nouns=telling_words).score  # type: ignore[arg-type]


def test_score_by_hand() -> None:
    assert _score(_LAMP, 50.0, "red") == 1.0
    assert _score(_LAMP, 50.01, "red") == 3 / 4
    assert _score(_LAMP, 9.0) == 3 / 4
    assert _score(replace(_LAMP, attributes=(), description=""), 9.0, "red") == 2 / 4
    assert _score(_LAMP, 9.0, options=("blue", "red")) == 3 / 5
    assert _score(replace(_LAMP, query="sofas", product_category="x", title="Table Oak Lamp Sofa"), 9.0, "red") == 1.0
    assert _score(replace(_LAMP, query="sofas", product_category="x", title="Sofa"), 9.0, "red") == 0.0
    far = {"title": "Lamp a1 one two three four", "query": "x", "product_category": "y"}
    assert _score(_LAMP, 9.0, "red", **far, asin="Z") == 1.0  # 'lamp' is one of its four telling words, more than 0.2
    assert _score(_LAMP, 9.0, "red", **{**far, "title": "Lamp two three four five"}) == 0.5
    assert _score(_LAMP, 9.0, "red", title="Lamp " + "box " * 10) == pytest.approx(0.1)
    assert _score(_LAMP, 9.0, "red", title="12", query="x", product_category="y") == 0.5


def test_a_title_with_a_repeated_noun_is_less_like_itself() -> None:
    twice = replace(_LAMP, title="Lamp Lamp Lamp Lamp Lamp Lamp Lamp Lamp Lamp Lamp Lamp")
    assert _score(twice, 9.0, "red", title=twice.title) == pytest.approx(0.1)


def test_colours_stand_for_values_and_pairs_only_with_parity() -> None:
    goal = replace(_GOAL, options={"size": "standard twin"})
    by_value = score_purchase(_LAMP, goal, 9.0, ("tan",), nouns=telling_words)
    as_original = score_purchase(_LAMP, goal, 9.0, ("tan",), nouns=telling_words, parity=True)
    assert (by_value.r_option, as_original.r_option) == (1.0, 0.0)
    assert score_purchase(_LAMP, _GOAL, 9.0, ("dark red",), nouns=telling_words).r_option == 0.0
    assert len(COLOURS) == 102 and list(COLOURS) == sorted(COLOURS)


def test_weights_and_parts_make_up_the_score() -> None:
    score = score_purchase(_LAMP, _GOAL, 60.0, ("red",), nouns=telling_words)
    assert (score.w_att, score.w_option, score.w_price) == (0.5, 0.25, 0.25)
    assert score.r_option is not None
    total = score.w_att * score.r_att + score.w_option * score.r_option + score.w_price * score.r_price
    assert score.score == pytest.approx(score.r_type * total)
    assert score_purchase(_LAMP, replace(_GOAL, options={}), 9.0, (), nouns=telling_words).r_option is None


def test_attributes_are_looked_for_in_the_texts() -> None:
    assert (
        has_attribute(_LAMP, "by touch") and has_attribute(_LAMP, "wood solid") and not has_attribute(_LAMP, "dimmable")
    )


def test_nouns_need_a_known_kind() -> None:
    assert noun_finder("words")("The 12 Men's Shoes, for men") == ("men's", "shoes", "men")
    with pytest.raises(EnvConfigError, match=r"nouns='verbs' is not known\. Allowed: words, spacy"):
        noun_finder("verbs")


def test_spacy_tags_nouns_and_its_shop_is_won_by_the_oracle() -> None:
    spacy = pytest.importorskip("spacy")
    if not any(spacy.util.is_package(name) for name in MODELS):
        with pytest.raises(EnvConfigError, match=r"needs one of the models en_core_web_sm, .* Remedy: python -m spacy"):
            noun_finder("spacy")
        pytest.skip("spaCy is here without a model")
    nouns = noun_finder("spacy")("A Lamp with very soft Light for the Table")
    assert {"lamp", "light", "table"} <= set(nouns) and not {"with", "very", "for"} & set(nouns)
    products = synthetic_products(20)
    for product in products:
        goal = next(goals_of(product, human=True, seed=0))
        score = score_purchase(product, goal, price_of(product, 0), goal.option_values, nouns=noun_finder("spacy"))
        assert score.score == 1.0


def test_without_spacy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    _spacy_model.cache_clear()
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(
        EnvConfigError, match=r"nouns='spacy' needs spaCy: .* Remedy: pip install spacy, or nouns='words'"
    ):
        noun_finder("spacy")
