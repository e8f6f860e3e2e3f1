"""Products and instructions as the shop knows them, and catalogues of them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from env_connectors.retrieval import Bm25Index, build_index

DEFAULT_PRICE = 100.0
NO_RATING = "N.A."
_SEARCHES_KEPT = 1024


@dataclass(frozen=True)
class Instruction:
    """What a customer asks for, in words, and what a product must have for it.

    Attributes:
        text: the request, without a price limit.
        attributes: wanted attributes, at least one.
        options: wanted option values.
    """

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Review:
    """One review of a product."""

    title: str
    score: str
    body: str


@dataclass(frozen=True)
class Product:
    """One product.

    Attributes:
        asin: its id.
        title: its name.
        description: long text, may be empty.
        bullets: its features, in order.
        category: one of a few words, e.g. 'beauty'.
        query: what the product was found by, e.g. 'lip balms'; lower case.
        product_category: path of categories, e.g. 'Beauty > Makeup > Lips' (parted by U+203A).
        options: name -> values, lower case.
        attributes: short phrases, hidden from the pages.
        prices: none, one, or lowest and highest.
        price_text: as shown, e.g. '$7.99' or '$5.0 to $9.0'.
        requests: human instructions.
        request: the instruction written by a machine, without options; None when there is none.
    """

    asin: str
    title: str
    description: str
    bullets: tuple[str, ...]
    category: str
    query: str
    product_category: str
    options: Mapping[str, tuple[str, ...]]
    attributes: tuple[str, ...]
    prices: tuple[float, ...]
    price_text: str
    rating: str = NO_RATING
    reviews: tuple[Review, ...] = ()
    image: str = ""
    requests: tuple[Instruction, ...] = ()
    request: Instruction | None = field(default=None)

    def search_text(self) -> str:
        """Return what the search engine reads: title, description, first feature and options, in lower case."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return " ".join([self.title, self.description, self.bullets[0] if self.bullets else "", options]).lower()

    def record(self) -> dict[str, Any]:
        """Return the product as JSON-able values; `product_of` reads them back."""
        return asdict(self)


def product_of(record: Mapping[str, Any]) -> Product:
    """Return the product of a record."""
    values = dict(record)
    values["options"] = {name: tuple(options) for name, options in record["options"].items()}
    for key in ("bullets", "attributes", "prices"):
        values[key] = tuple(record[key])
    values["reviews"] = tuple(Review(**review) for review in record["reviews"])
    values["requests"] = tuple(_instruction(request) for request in record["requests"])
    values["request"] = None if record["request"] is None else _instruction(record["request"])
    return Product(**values)


def _instruction(record: Mapping[str, Any]) -> Instruction:
    return Instruction(record["text"], tuple(record["attributes"]), tuple(record["options"]))


def keyed_random(*key: object) -> random.Random:
    """Return a generator that depends on the key alone, equal in every process."""
    digest = hashlib.sha256("\n".join(map(str, key)).encode("utf-8", "surrogatepass")).digest()
    return random.Random(int.from_bytes(digest[:16], "big"))


def price_of(product: Product, seed: int) -> float:
    """Return what a product costs: its price, one drawn between lowest and highest by seed and asin, or 100."""
    if len(product.prices) < 2:
        return product.prices[0] if product.prices else DEFAULT_PRICE
    return keyed_random("price", seed, product.asin).uniform(*product.prices[:2])


class Catalogue(Protocol):
    """Products by asin, and a search over them."""

    @property
    def mark(self) -> str:
        """Name of the contents: equal catalogues have equal marks."""

    def __len__(self) -> int:
        """Return the number of products."""

    def __contains__(self, asin: object) -> bool:
        """Return whether there is a product with this asin."""

    def __getitem__(self, asin: str) -> Product:
        """Return a product by asin, KeyError for an unknown one."""

    def search(self, query: str, k: int) -> list[str]:
        """Return the asins of the best `k` products for a query, best first."""

    def requested(self, *, human: bool, seed: int, most: int | None) -> Iterable[Product]:
        """Return the products with a human (or machine-written) instruction; with `most`, that many drawn by seed."""


def remembered_search(index: Bm25Index) -> Callable[[str, int], tuple[str, ...]]:
    """Return the search over an index that remembers its last answers: the episodes of a group ask much the same."""

    @lru_cache(maxsize=_SEARCHES_KEPT)
    def search(query: str, k: int) -> tuple[str, ...]:
        return tuple(hit.doc_id for hit in index.search(query, k))

    return search


def draw_rank(asin: str, seed: int) -> bytes:
    """Return the place of a product in the order in which products are drawn."""
    return hashlib.sha256(f"{seed}:{asin}".encode("utf-8", "surrogatepass")).digest()


class MemoryCatalogue:
    """A catalogue held in memory."""

    def __init__(self, products: Iterable[Product], mark: str) -> None:
        """Take the products in any order and index them."""
        self._by_asin = {product.asin: product for product in products}
        index = build_index((asin, product.search_text()) for asin, product in self._by_asin.items())
        self._search = remembered_search(index)
        self.mark = mark

    def __len__(self) -> int:
        """Return the number of products."""
        return len(self._by_asin)

    def __contains__(self, asin: object) -> bool:
        """Return whether there is a product with this asin."""
        return asin in self._by_asin

    def __iter__(self) -> Iterator[Product]:
        """Return all products in their order."""
        return iter(self._by_asin.values())

    def __getitem__(self, asin: str) -> Product:
        """Return a product by asin."""
        return self._by_asin[asin]

    def search(self, query: str, k: int) -> list[str]:
        """Return the asins of the best `k` products for a query, best first."""
        return list(self._search(query, k))

    def requested(self, *, human: bool, seed: int, most: int | None) -> list[Product]:
        """Return the products with an instruction of the asked kind, all or `most` drawn by seed."""
        found = [product for product in self if (product.requests if human else product.request)]
        return found if most is None else sorted(found, key=lambda product: draw_rank(product.asin, seed))[:most]
