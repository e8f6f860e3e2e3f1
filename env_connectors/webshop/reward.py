"""The score of a purchase, from 0 to 1, and its parts.

score = r_type (matched attributes + matched options + [price <= limit]) / (attributes + options + 1)
Source: princeton-nlp/WebShop, goal.py; differs in: options of machine-written goals are compared by value. There the
original compares with the pair of name and value, in which the colour is then not found (`parity` does that too).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from env_connectors.webshop.fuzzy import token_set_ratio
from env_connectors.webshop.products import Product

ALIKE = 85
CATEGORY_MARK = "\u203a"
COLOURS = (
    "alabaster", "apricot", "aqua", "ash", "asphalt", "azure", "banana", "beige", "black", "blue", "blush", "bordeaux",
    "bronze", "brown", "burgundy", "camel", "camo", "caramel", "champagne", "charcoal", "cheetah", "chestnut", "chocolate",
    "christmas", "coffee", "cognac", "copper", "coral", "cranberry", "cream", "crystal", "dark", "denim", "eggplant",
    "elephant", "espresso", "fuchsia", "gold", "granite", "grape", "graphite", "grass", "gray", "green", "grey", "heather",
    "indigo", "ivory", "ivy", "khaki", "lavender", "lemon", "leopard", "light", "lilac", "lime", "magenta", "maroon",
    "mauve", "merlot", "midnight", "mint", "mocha", "multicolor", "mushroom", "mustard", "natural", "navy", "nude", "olive",
    "orange", "peach", "pewter", "pink", "plum", "purple", "rainbow", "red", "rose", "royal", "rust", "sand", "sapphire",
    "seashell", "silver", "skull", "slate", "steel", "stone", "stonewash", "sunflower", "tan", "taupe", "teal", "tiger",
    "turquoise", "violet", "walnut", "wheat", "white", "wine", "yellow",
)  # fmt: skip
"""The original's list in its order; the first one found anywhere in a value stands for the value ('tan' in 'standard')."""


@dataclass(frozen=True)
class Goal:
    """What is to be bought.

    Attributes:
        asin: a product that fits.
        title: its name.
        query: see Product.
        product_category: see Product.
        instruction: the request with its price limit, as shown.
        attributes: wanted attributes.
        options: wanted option values, by name when the goal was written by a machine.
        price_limit: most that the product may cost.
    """

    asin: str
    title: str
    query: str
    product_category: str
    instruction: str
    attributes: tuple[str, ...]
    options: Mapping[str, str] | tuple[str, ...]
    price_limit: float

    @property
    def option_values(self) -> tuple[str, ...]:
        """The wanted option values without their names."""
        return tuple(self.options.values()) if isinstance(self.options, Mapping) else self.options


@dataclass(frozen=True)
class Score:
    """A score with its parts; `r_option` is None for a goal without options. Weights: w_att + w_option + w_price = 1."""

    score: float
    r_type: float
    r_att: float
    r_option: float | None
    r_price: bool
    w_att: float
    w_option: float
    w_price: float
    title_score: float
    query_match: bool
    category_match: bool


def score_purchase(
    product: Product,
    goal: Goal,
    price: float,
    chosen: Sequence[str],
    *,
    nouns: Callable[[str], tuple[str, ...]],
    parity: bool = False,
) -> Score:
    """Return the score of buying a product.

    Args:
        product: what was bought.
        goal: what was wanted.
        price: what it cost.
        chosen: chosen option values.
        nouns: see nouns.py.
        parity: compare options of machine-written goals as the original does.
    """
    r_type, title_score, query_match, category_match = _type_part(product, goal, nouns)
    num_attributes = sum(has_attribute(product, wanted) for wanted in goal.attributes)
    num_options = _matched_options(chosen, goal, parity)
    is_cheap = price <= goal.price_limit
    wanted, wanted_options = len(goal.attributes), len(goal.options)
    total = wanted + wanted_options + 1
    return Score(
        score=(num_attributes + num_options + is_cheap) / total * r_type,
        r_type=r_type,
        r_att=num_attributes / wanted if wanted else 0.0,
        r_option=num_options / wanted_options if wanted_options else None,
        r_price=is_cheap,
        w_att=wanted / total,
        w_option=wanted_options / total,
        w_price=1 / total,
        title_score=title_score,
        query_match=query_match,
        category_match=category_match,
    )


def has_attribute(product: Product, wanted: str) -> bool:
    """Return whether a product has an attribute: among its own ones, or written in title, features or description."""
    if any(token_set_ratio(own, wanted) > ALIKE for own in product.attributes):
        return True
    texts = (product.title, " ".join(product.bullets), product.description)
    return any(wanted in text.lower() for text in texts)


def options_alike(chosen: str, wanted: str) -> bool:
    """Return whether a chosen option value counts as a wanted one."""
    return token_set_ratio(colour_of(chosen), colour_of(wanted)) > ALIKE


@lru_cache(maxsize=1 << 15)
def colour_of(value: str) -> str:
    """Return the first colour of COLOURS that occurs in a value, else the value."""
    return next((colour for colour in COLOURS if colour in value), value)


def _matched_options(chosen: Sequence[str], goal: Goal, parity: bool) -> int:
    if parity and isinstance(goal.options, Mapping):
        bought = [colour_of(value) for value in chosen]
        pairs = [_original_pair(name, value) for name, value in goal.options.items()]
        return sum(any(token_set_ratio(value, pair) > ALIKE for value in bought) for pair in pairs)
    return sum(any(options_alike(value, wanted) for value in chosen) for wanted in goal.option_values)


def _original_pair(name: str, value: str) -> str:
    """Return what the original compares with: a pair is a colour only if one of its halves is one, else its Python text."""
    return next((colour for colour in COLOURS if colour in (name, value)), str((name, value)))


def _type_part(
    product: Product, goal: Goal, nouns: Callable[[str], tuple[str, ...]]
) -> tuple[float, float, bool, bool]:
    query_match = product.query == goal.query
    category_match = len(_categories(product.product_category) & _categories(goal.product_category)) >= 2
    bought, wanted = nouns(product.title), nouns(goal.title)
    title_score = len(set(bought) & set(wanted)) / len(wanted) if wanted else 0.2
    if title_score == 0.0:
        r_type = 0.0
    elif title_score < 0.1:
        r_type = 0.1
    else:
        r_type = 1.0 if query_match or category_match or title_score > 0.2 else 0.5
    return r_type, title_score, query_match, category_match


def _categories(path: str) -> set[str]:
    return {part.strip() for part in path.split(CATEGORY_MARK)}
