"""Reads the official data files: items_shuffle*.json, items_ins_v2*.json and items_human_ins.json.

Products are read one by one, so that a file of five gigabytes needs no more memory than a small one. Names of the crowd
workers in the human file are not kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from env_connectors.errors import EnvConfigError
from env_connectors.webshop.products import DEFAULT_PRICE, Catalogue, Instruction, MemoryCatalogue, Product, Review
from env_connectors.webshop.store import open_store

_CHUNK = 1 << 22
_IN_MEMORY = 100 * 2**20
_MOST_ASIN_CHARS = 10
_NO_ATTRIBUTES = ("DUMMY_ATTR",)
_PRODUCT_KEYS = (
    "asin", "name", "full_description", "small_description", "category", "query", "product_category",
    "customization_options", "images",
)  # fmt: skip
_KINDS = {
    "products_file": "a list of products, as items_shuffle.json",
    "attributes_file": "attributes by asin, as items_ins_v2.json",
    "human_file": "lists of human instructions by asin, as items_human_ins.json",
}


@dataclass(frozen=True)
class OfficialFiles:
    """Where the official data is.

    Attributes:
        products: items_shuffle*.json.
        attributes: items_ins_v2*.json.
        human: items_human_ins.json; None = no human instructions.
        cache_dir: where to keep products and index as files that processes share; None = in memory if the products file
            has at most 100 MB, else beside it.
    """

    products: Path
    attributes: Path
    human: Path | None = None
    cache_dir: Path | None = None

    @property
    def by_key(self) -> dict[str, Path]:
        """The files by the argument that names them."""
        found = {"products_file": self.products, "attributes_file": self.attributes, "human_file": self.human}
        return {key: path for key, path in found.items() if path is not None}


def official_catalogue(files: OfficialFiles, num_products: int | None = None) -> Catalogue:
    """Return the catalogue of the official files, of their first `num_products` products if given.

    Raises:
        EnvConfigError: a file is missing, cut short, or not of its kind.
    """
    for key, path in files.by_key.items():
        if not os.path.isfile(path):  # Path.is_file raises when the name is too long
            raise EnvConfigError(f"{key}={str(path)!r} is not there. Wanted: {_KINDS[key]}.")
    if files.cache_dir is None and files.products.stat().st_size <= _IN_MEMORY:
        return MemoryCatalogue(read_products(files, num_products), contents_mark(files, num_products))
    folder = (files.cache_dir or files.products.resolve().parent) / f"webshop-{_stamp(files, num_products)}"
    return open_store(folder, lambda: read_products(files, num_products), lambda: contents_mark(files, num_products))


def contents_mark(files: OfficialFiles, num_products: int | None) -> str:
    """Return a mark of the contents of the files: 16 hex digits, wherever they lie."""
    whole = hashlib.sha256(str(num_products).encode())
    for key, path in files.by_key.items():
        with _reading(key, path), path.open("rb") as file:
            whole.update(f"{key} {hashlib.file_digest(file, 'sha256').hexdigest()}".encode())
    return f"official {whole.hexdigest()[:16]}"


def _stamp(files: OfficialFiles, num_products: int | None) -> str:
    """Return a mark of the files by place, size and time, found without reading them."""
    stats = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in files.by_key.values()]
    return hashlib.sha256(repr((stats, num_products)).encode()).hexdigest()[:16]


def read_products(files: OfficialFiles, num_products: int | None = None) -> Iterator[Product]:
    """Return the products as the original shop keeps them: without those with a strange or repeated asin.

    Raises:
        EnvConfigError: a file is cut short or not of its kind; the message names it and the place.
    """
    attributes = _by_asin(files.attributes, "attributes_file", dict)
    human = {} if files.human is None else _by_asin(files.human, "human_file", list)
    seen: set[str] = set()
    for number, item in enumerate(stream_array(files.products, "products_file")):
        if number == num_products:
            return
        _check_product(item, number, files.products)
        asin = item["asin"]
        if asin == "nan" or len(asin) > _MOST_ASIN_CHARS or asin in seen:
            continue
        seen.add(asin)
        entry = f"entry {asin!r}"
        with _in_form("attributes_file", files.attributes, entry):
            own, request = _machine_texts(attributes.get(asin, {}))
        with _in_form("human_file", files.human or Path(), entry):
            requests = _human_requests(human.get(asin, []))
        with _in_form("products_file", files.products, f"entry {number}, {asin!r},"):
            product = _product(item, own, request, requests)
        yield product


def stream_array(path: Path, key: str) -> Iterator[Any]:
    """Return the entries of a JSON list in a file, one by one.

    Raises:
        EnvConfigError: it is no list, or ends within an entry.
    """
    decoder, number = json.JSONDecoder(), 0
    try:
        with _reading(key, path), path.open(encoding="utf-8") as file:
            text = file.read(_CHUNK).lstrip("\ufeff \t\r\n")
            if not text.startswith("["):
                raise _wrong_kind(key, path, f"it begins with {text[:20]!r}")
            at, is_end = 1, False
            while True:
                at = _skip(text, at)
                if at < len(text) and text[at] == "]":
                    return
                try:
                    entry, after = decoder.raw_decode(text, at)
                    if after == len(text) and not is_end:
                        raise json.JSONDecodeError("a number may go on", text, after)
                except json.JSONDecodeError as error:
                    more = file.read(max(_CHUNK, len(text) - at))
                    if not more:
                        raise EnvConfigError(
                            f"{key}={str(path)!r} ends or breaks off within entry {number}: {error.msg}. It holds "
                            f"{path.stat().st_size} bytes. Remedy: get the whole file."
                        ) from error
                    text, at, is_end = text[at:] + more, 0, False
                    continue
                yield entry
                number, at = number + 1, after
    except UnicodeDecodeError as error:
        raise EnvConfigError(f"{key}={str(path)!r} is no text in UTF-8: {error}.") from error
    except RecursionError as error:
        raise _wrong_kind(key, path, f"entry {number} is nested too deeply") from error


@contextmanager
def _reading(key: str, path: Path) -> Iterator[None]:
    """Name the file that cannot be read."""
    try:
        yield
    except OSError as error:
        raise EnvConfigError(f"{key}={str(path)!r} cannot be read: {error.strerror or error}.") from error


@contextmanager
def _in_form(key: str, path: Path, entry: str) -> Iterator[None]:
    """Name the file and the entry of which something is missing or of another type."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        seen = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise EnvConfigError(
            f"{key}={str(path)!r}: {entry} is not in the official form: {seen}. Wanted: {_KINDS[key]}."
        ) from error


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,":
        at += 1
    return at


def _by_asin(path: Path, key: str, kind: type) -> dict[str, Any]:
    try:
        with _reading(key, path):
            found = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise _wrong_kind(key, path, "it is nested too deeply") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise EnvConfigError(
            f"{key}={str(path)!r} is no whole JSON file: {error}. Remedy: get the whole file."
        ) from error
    if not isinstance(found, dict):
        raise _wrong_kind(key, path, f"it holds a {type(found).__name__}")
    wrong = next((asin for asin, entry in found.items() if not isinstance(entry, kind)), None)
    if wrong is not None:
        raise _wrong_kind(key, path, f"its entry of {wrong!r} is a {type(found[wrong]).__name__}")
    return found


def _wrong_kind(key: str, path: Path, seen: str) -> EnvConfigError:
    others = ", ".join(other for other in _KINDS if other != key)
    return EnvConfigError(
        f"{key}={str(path)!r} is not of its kind: {seen}. Wanted: {_KINDS[key]}. Was it swapped with {others}?"
    )


def _check_product(item: Any, number: int, path: Path) -> None:
    if not isinstance(item, dict):
        raise _wrong_kind("products_file", path, f"entry {number} is a {type(item).__name__}")
    missing = [key for key in _PRODUCT_KEYS if key not in item]
    if missing or not isinstance(item["asin"], str):
        raise _wrong_kind("products_file", path, f"entry {number} has no {', '.join(missing) or 'asin in words'}")


def _product(
    item: Mapping[str, Any], attributes: tuple[str, ...], request: Instruction | None, requests: tuple[Instruction, ...]
) -> Product:
    prices, price_text = _prices(item.get("pricing"))
    bullets = item["small_description"]
    images = item["images"] or [""]
    return Product(
        asin=item["asin"],
        title=_text(item["name"]),
        description=_text(item["full_description"]),
        bullets=tuple(map(_text, bullets if isinstance(bullets, list) else [bullets])),
        category=_text(item["category"]),
        query=_text(item["query"]).lower().strip(),
        product_category=_text(item["product_category"]),
        options=_options(item["customization_options"]),
        attributes=attributes,
        prices=prices,
        price_text=price_text,
        reviews=tuple(_review(review) for review in item.get("reviews") or []),
        image=_text(images[0]),
        requests=requests,
        request=request,
    )


def _human_requests(entries: list[Mapping[str, Any]]) -> tuple[Instruction, ...]:
    return tuple(
        Instruction(
            _text(one["instruction"]), _texts(one, "instruction_attributes"), _texts(one, "instruction_options")
        )
        for one in entries
        if one.get("instruction_attributes")
    )


def _machine_texts(about: Mapping[str, Any]) -> tuple[tuple[str, ...], Instruction | None]:
    """Return the attributes of a product, and its machine-written instruction if it has one."""
    attributes = _texts(about, "attributes") if "attributes" in about else _NO_ATTRIBUTES
    if not about.get("instruction") or not about.get("instruction_attributes"):
        return attributes, None
    return attributes, Instruction(_text(about["instruction"]), _texts(about, "instruction_attributes"))


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _texts(entry: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return a list of texts; a single text is none: its letters would be taken for texts."""
    values = entry[name]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"{name} is no list of texts")
    return tuple(values)


def _review(review: Mapping[str, Any]) -> Review:
    score, body = review.get("score", review.get("stars")), review.get("review", review.get("body"))
    return Review(_text(review.get("title")), _text(score), _text(body))


def _options(groups: Any) -> dict[str, tuple[str, ...]]:
    return {
        name.lower(): tuple(_text(entry["value"]).strip().replace("/", " | ").lower() for entry in entries)
        for name, entries in (groups or {}).items()
        if entries is not None
    }


def _prices(pricing: Any) -> tuple[tuple[float, ...], str]:
    """Return the prices of '$7.99' or '$5.00 - $9.00', and how they are shown; 100 dollars when there is none to read."""
    found: list[float] = []
    for part in _text(pricing).split("$")[1:]:
        try:
            found.append(float(re.sub(r"[^\d.]", "", part)))
        except ValueError:
            return (DEFAULT_PRICE,), f"${DEFAULT_PRICE}"
    if not found:
        return (DEFAULT_PRICE,), f"${DEFAULT_PRICE}"
    if len(found) == 1:
        return (found[0],), f"${found[0]}"
    return (found[0], found[1]), f"${found[0]} to ${found[1]}"
