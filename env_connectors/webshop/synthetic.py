"""The catalogue that ships: products made up from word lists, equal for equal arguments in every process.

Products come in families of five that share brand, kind and most of the title. Against the first one, the others lack one
of its attributes, come in other options, cost about three times as much, or lack another attribute and an option; so a search
finds several products of which few fit all of a request, and what tells them apart stands in features, options or price.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from env_connectors.errors import EnvConfigError
from env_connectors.webshop.products import Instruction, Product, keyed_random
from env_connectors.webshop.reward import CATEGORY_MARK
from env_connectors.webshop.synthetic_words import (
    BRAND_BEGINNINGS,
    BRAND_ENDINGS,
    DEPARTMENTS,
    DESCRIPTIONS,
    FEATURES,
    OPTIONS,
    REQUESTS,
    Kind,
)

FORMAT = "synthetic/1"
NUM_PRODUCTS = 2500
_FAMILY = 5
_ATTRIBUTES = 4  # of a product; two of them are asked for
_VALUES = 4  # of an option, where there are as many
_REQUESTS_EACH = 2
_MOST_PRODUCTS = 90_000  # asins have five digits
_STRIDE = 48_271  # no common divisor with it: no asin twice, and those of a family are far apart


@dataclass(frozen=True)
class _Draft:
    """What the members of a family vary."""

    department: str
    kind: Kind
    brand: str
    filler: str
    attributes: tuple[str, ...]
    options: dict[str, tuple[str, ...]]
    price: float


def synthetic_products(num_products: int = NUM_PRODUCTS, seed: int = 0) -> list[Product]:
    """Return the first `num_products` products of the endless catalogue of a seed, all departments in turn.

    Raises:
        EnvConfigError: a number below 10 or above 90,000.
    """
    if isinstance(num_products, bool) or not isinstance(num_products, int) or not 10 <= num_products <= _MOST_PRODUCTS:
        raise EnvConfigError(
            f"num_products={num_products!r} of the synthetic catalogue is not allowed. Allowed: 10 to {_MOST_PRODUCTS}."
        )
    first = keyed_random(FORMAT, "asins", seed).randrange(_MOST_PRODUCTS)
    asins = (f"S{10_000 + (first + _STRIDE * at) % _MOST_PRODUCTS}" for at in range(num_products))
    drafts = (draft for family in range(-(-num_products // _FAMILY)) for draft in _family(family, seed))
    return [_product(draft, asin, seed) for asin, draft in zip(asins, drafts, strict=False)]


def _family(number: int, seed: int) -> Iterator[_Draft]:
    rng = keyed_random(FORMAT, "family", seed, number)
    names = list(DEPARTMENTS)
    department = DEPARTMENTS[names[number % len(names)]]
    kind = department.kinds[number // len(names) % len(department.kinds)]
    brand = rng.choice(BRAND_BEGINNINGS) + rng.choice(BRAND_ENDINGS)
    attributes = tuple(rng.sample(department.attributes, _ATTRIBUTES + 2))
    price = round(kind.price * rng.uniform(0.8, 2.2), 2)
    first = _Draft(
        names[number % len(names)], kind, brand, rng.choice(department.fillers), attributes[:_ATTRIBUTES],
        _options(kind, rng), price,
    )  # fmt: skip
    one_option_less = {name: values[:-1] if len(values) > 2 else values for name, values in first.options.items()}
    yield first
    yield replace(first, attributes=(*attributes[1:_ATTRIBUTES], attributes[-1]), price=_near(price, rng))
    yield replace(first, options=_options(kind, rng), price=_near(price, rng))
    yield replace(first, price=round(3 * price, 2))
    swapped = (attributes[0], *attributes[2:_ATTRIBUTES], attributes[-2])
    yield replace(first, attributes=swapped, options=one_option_less, price=_near(price, rng))


def _near(price: float, rng: random.Random) -> float:
    return round(price * rng.uniform(0.9, 1.1), 2)


def _options(kind: Kind, rng: random.Random) -> dict[str, tuple[str, ...]]:
    chosen = {}
    for name in kind.options:
        values = OPTIONS[name]
        kept = set(rng.sample(values, min(_VALUES, len(values) - 1)))
        chosen[name.split()[-1]] = tuple(value for value in values if value in kept)
    return chosen


def _product(draft: _Draft, asin: str, seed: int) -> Product:
    rng = keyed_random(FORMAT, "product", seed, asin)
    department = DEPARTMENTS[draft.department]
    shown = rng.sample(draft.attributes, 2)
    words = {"brand": draft.brand, "name": draft.kind.name.lower()}
    plain = Product(
        asin=asin,
        title=f"{draft.brand} {draft.filler} {draft.kind.name}, {shown[0].title()}",
        description=rng.choice(DESCRIPTIONS).format(**words),
        bullets=tuple(rng.choice(FEATURES).format(attribute=attribute, **words) for attribute in draft.attributes),
        category=draft.department,
        query=draft.kind.query,
        product_category=f" {CATEGORY_MARK} ".join((department.title, *draft.kind.path)),
        options=draft.options,
        attributes=draft.attributes,
        prices=(draft.price,),
        price_text=f"${draft.price}",
    )
    wanted = tuple(rng.sample(draft.attributes, 2))
    machine = Instruction(f"Find me {wanted[0]}, {wanted[1]} {draft.kind.query}", wanted)
    return replace(plain, request=machine, requests=tuple(_requests(draft, rng)))


def _requests(draft: _Draft, rng: random.Random) -> Iterator[Instruction]:
    for form in rng.sample(REQUESTS, _REQUESTS_EACH):
        first, second = rng.sample(draft.attributes, 2)
        chosen = tuple(rng.choice(values) for values in draft.options.values())
        text = form.format(
            query=draft.kind.query, name=draft.kind.name.lower(), first=first, second=second,
            options=_options_in_words(draft.options, chosen),
        )  # fmt: skip
        yield Instruction(text, (first, second), chosen)


def _options_in_words(options: dict[str, tuple[str, ...]], chosen: tuple[str, ...]) -> str:
    named = [f"{name} {value}" if name == "size" else value for name, value in zip(options, chosen, strict=True)]
    return f" in {' and '.join(named)}" if named else ""
