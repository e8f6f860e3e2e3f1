"""Goals made from instructions and products, with prices and price limits drawn by product and seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from env_connectors.webshop.products import Instruction, Product, keyed_random, price_of
from env_connectors.webshop.reward import Goal

NO_LIMIT = 1_000_000.0
_LIMITS = tuple(10.0 * step for step in range(1, 100))
_NEXT = 4  # a limit is drawn from the next four round sums above the price


def price_limit(price: float, *key: object) -> tuple[float, str]:
    """Return a price limit above `price` and the words for it; none at all for what costs 980 dollars or more.

    The limit is the larger of two different sums drawn from the next four multiples of 10 dollars up to 990.

    Args:
        price: what the product costs.
        key: decides the draw.
    """
    above = [limit for limit in _LIMITS if limit > price][:_NEXT]
    if len(above) < 2:
        return NO_LIMIT, ""
    limit = max(keyed_random("limit", *key).sample(above, 2))
    return limit, f", and price lower than {limit:.2f} dollars"


def goals_of(product: Product, *, human: bool, seed: int, most: int | None = None) -> Iterator[Goal]:
    """Return the goals of a product.

    Args:
        product: what shall be bought.
        human: from human instructions, one goal each; else from the machine-written one, one goal for each combination
            of options.
        seed: decides price limits, and which combinations are kept.
        most: combinations to keep, drawn by seed; None = all.
    """
    price = price_of(product, seed)
    if human:
        for number, request in enumerate(product.requests):
            limit, words = price_limit(price, seed, product.asin, number)
            text = request.text.strip(".") + words
            yield _goal(product, request, text, request.options, limit)
    elif product.request is not None:
        limit, words = price_limit(price, seed, product.asin)
        for options in _combinations(product, seed, most):
            named = ", and ".join(f"{name}: {value}" for name, value in options.items())
            text = product.request.text + (f" with {named}" if named else "") + words
            yield _goal(product, product.request, text, options, limit)


def _combinations(product: Product, seed: int, most: int | None) -> Iterator[dict[str, str]]:
    names = sorted(product.options)
    sizes = [len(product.options[name]) for name in names]
    total = math.prod(sizes)
    numbers: Iterable[int] = range(total)
    if most is not None and total > most:
        numbers = keyed_random("options", seed, product.asin).sample(range(total), most)
    for number in numbers:
        chosen, left = {}, number
        for name, size in zip(reversed(names), reversed(sizes), strict=True):
            left, at = divmod(left, size)
            chosen[name] = product.options[name][at]
        yield {name: chosen[name] for name in names}


def _goal(
    product: Product, request: Instruction, text: str, options: Mapping[str, str] | tuple[str, ...], limit: float
) -> Goal:
    return Goal(
        product.asin, product.title, product.query, product.product_category, text, request.attributes, options, limit
    )


def goal_content(goal: Goal) -> dict[str, Any]:
    """Return a goal as JSON-able values; `goal_of` reads them back."""
    options: Any = dict(goal.options) if isinstance(goal.options, Mapping) else list(goal.options)
    return {
        "asin": goal.asin,
        "title": goal.title,
        "query": goal.query,
        "product_category": goal.product_category,
        "instruction": goal.instruction,
        "attributes": list(goal.attributes),
        "options": options,
        "price_limit": goal.price_limit,
    }


def goal_of(content: Mapping[str, Any]) -> Goal:
    """Return the goal of a task's content."""
    options = content["options"]
    return Goal(
        content["asin"],
        content["title"],
        content["query"],
        content["product_category"],
        content["instruction"],
        tuple(content["attributes"]),
        dict(options) if isinstance(options, Mapping) else tuple(options),
        content["price_limit"],
    )
