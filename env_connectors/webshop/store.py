"""A catalogue in files: products in SQLite, the search index mapped into memory; built once, shared by all processes."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from env_connectors.errors import EnvConfigError
from env_connectors.retrieval import build_index, open_index
from env_connectors.webshop.products import Product, draw_rank, product_of, remembered_search

FORMAT = "webshop-store/2"
_FACTS, _PRODUCTS, _INDEX = "store.json", "products.sqlite", "index"
_BATCH = 1000
_KEPT = 2048
_MOST_GOAL_PRODUCTS = 50_000
_TABLE = "CREATE TABLE products (asin TEXT PRIMARY KEY, human INTEGER, machine INTEGER, record BLOB) WITHOUT ROWID"


def open_store(folder: Path, products: Callable[[], Iterable[Product]], mark: Callable[[], str]) -> StoreCatalogue:
    """Return the catalogue in `folder`; the first process builds it there, the others wait for it.

    Args:
        folder: where it is or shall be.
        products: gives the products, asked for only to build.
        mark: gives the mark of the contents, asked for only to build.

    Raises:
        EnvConfigError: the folder cannot be written or read.
    """
    try:
        if not (folder / _FACTS).exists():  # else nothing is written: it may lie where one can only read
            folder.parent.mkdir(parents=True, exist_ok=True)
            with (folder.parent / f".{folder.name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not (folder / _FACTS).exists():
                    _build(folder, products(), mark())
    except (OSError, sqlite3.Error) as error:
        raise EnvConfigError(
            f"the product files cannot be kept in {str(folder)!r}: {error}. Remedy: cache_dir of a place to write to, with "
            "room for them."
        ) from error
    return StoreCatalogue(folder)


def _build(folder: Path, products: Iterable[Product], mark: str) -> None:
    """Build the store; the caller holds its lock."""
    for left in folder.parent.glob(f".{folder.name}.build-*"):
        shutil.rmtree(left, ignore_errors=True)  # of a process that was killed
    scratch = folder.parent / f".{folder.name}.build-{os.getpid()}"
    scratch.mkdir()
    try:
        with closing(sqlite3.connect(scratch / _PRODUCTS)) as connection:
            connection.execute("PRAGMA journal_mode=OFF")
            connection.execute(_TABLE)
            index = build_index(_kept(products, connection), scratch / _INDEX)
            connection.commit()
        size = (scratch / _PRODUCTS).stat().st_size
        facts = {"format": FORMAT, "mark": mark, "products": len(index), "bytes": size}
        (scratch / _FACTS).write_text(json.dumps(facts))
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _kept(products: Iterable[Product], connection: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Return (asin, search text) of the products and write them down on the way."""
    rows: list[tuple[Any, ...]] = []
    for product in products:
        record = zlib.compress(json.dumps(product.record()).encode("ascii"), 1)
        rows.append((product.asin, len(product.requests), int(product.request is not None), record))
        if len(rows) == _BATCH:
            connection.executemany("INSERT INTO products VALUES (?, ?, ?, ?)", rows)
            rows.clear()
        yield product.asin, product.search_text()
    connection.executemany("INSERT INTO products VALUES (?, ?, ?, ?)", rows)


class StoreCatalogue:
    """The catalogue in a folder that open_store has made."""

    def __init__(self, folder: Path) -> None:
        """Open it.

        Raises:
            EnvConfigError: it is not of this format, or damaged.
        """
        try:
            facts = json.loads((folder / _FACTS).read_text())
            if facts["format"] != FORMAT:
                raise ValueError(f"its format is {facts['format']!r}, wanted {FORMAT!r}")
            self.mark: str = facts["mark"]
            size = facts["bytes"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise EnvConfigError(f"{str(folder)!r} is no product store: {error}. Remedy: remove it.") from error
        self._path = (folder / _PRODUCTS).resolve()
        try:
            if (found := self._path.stat().st_size) != size:
                raise OSError(f"{_PRODUCTS} has {found} bytes, wanted {size}")
            self._index = open_index(folder / _INDEX)
        except (OSError, EnvConfigError) as error:
            raise self._damaged(str(error)) from error
        self._search = remembered_search(self._index)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._recent: dict[str, Product] = {}

    def __len__(self) -> int:
        """Return the number of products."""
        return len(self._index)

    def __contains__(self, asin: object) -> bool:
        """Return whether there is a product with this asin."""
        return isinstance(asin, str) and self._index.ids.find(asin) is not None

    def __getitem__(self, asin: str) -> Product:
        """Return a product by asin."""
        found = self._recent.get(asin)
        if found is None:
            rows = self._rows("SELECT record FROM products WHERE asin = ?", asin)
            if not rows:
                raise KeyError(asin)
            found = product_of(json.loads(zlib.decompress(rows[0][0])))
            if len(self._recent) >= _KEPT:
                self._recent.clear()
            self._recent[asin] = found
        return found

    def search(self, query: str, k: int) -> list[str]:
        """Return the asins of the best `k` products for a query, best first."""
        return list(self._search(query, k))

    def requested(self, *, human: bool, seed: int, most: int | None) -> Iterator[Product]:
        """Return the products with an instruction of the asked kind, all or `most` drawn by seed.

        Raises:
            EnvConfigError: more than 50,000 without a limit.
        """
        column = "human" if human else "machine"
        asins = [row[0] for row in self._rows(f"SELECT asin FROM products WHERE {column} > 0 ORDER BY asin")]
        if most is None and len(asins) > _MOST_GOAL_PRODUCTS:
            raise EnvConfigError(
                f"max_goals=None would make goals of {len(asins)} products; without a limit {_MOST_GOAL_PRODUCTS} are "
                "allowed. Remedy: max_goals, e.g. 20000."
            )
        if most is not None:
            asins = sorted(asins, key=lambda asin: draw_rank(asin, seed))[:most]
        return map(self.__getitem__, asins)

    def _rows(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                if self._connection is None or self._process != os.getpid():
                    address = f"{self._path.as_uri()}?mode=ro&immutable=1"
                    self._connection = sqlite3.connect(address, uri=True, check_same_thread=False)
                    self._process = os.getpid()
                return self._connection.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise self._damaged(str(error)) from error

    def _damaged(self, seen: str) -> EnvConfigError:
        folder = str(self._path.parent)
        return EnvConfigError(f"the product store {folder!r} is damaged: {seen}. Remedy: remove it, to build it anew.")
