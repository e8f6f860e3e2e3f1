"""The official files: small ones made up here, and the real first thousand products where the parity data is."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from env_connectors.webshop.official import OfficialFiles

_KEPT = (
    "asin", "name", "full_description", "small_description", "category", "query", "product_category", "customization_options",
    "images",
)  # fmt: skip


@pytest.fixture(scope="session")
def thousand_products(
    webshop_file: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[OfficialFiles, dict[str, dict[str, Any]]]:
    """The real first thousand products in the official form, and by asin what the original search engine reads of them."""
    attributes = webshop_file("items_ins_v2_1000.json")
    with gzip.open(webshop_file("documents_1k.jsonl.gz"), "rt", encoding="utf-8") as lines:
        documents = {entry["id"]: entry for entry in map(json.loads, lines)}
    products = [document["product"] for document in documents.values()]
    items = [{key: p[key] for key in _KEPT} | {"pricing": p["Price"].replace(" to ", " - ")} for p in products]
    path = tmp_path_factory.mktemp("official") / "items_shuffle_1000.json"
    path.write_text(json.dumps(items), encoding="utf-8")
    return OfficialFiles(path, attributes), documents


@pytest.fixture
def small_files(tmp_path: Path) -> OfficialFiles:
    """Three products in the official form, written for these tests; the second has a human instruction."""
    items = [
        {
            "asin": f"B00000000{n}", "name": f"Cup {n} <b>", "full_description": "For tea",
            "small_description": ["Holds 8/oz", "x"],
            "category": "garden", "query": " Cups ", "product_category": "Home \u203a Cups", "images": ["a.jpg"],
            "pricing": ("$7.90", "$1,005.00 - $1,200.50", None)[n],
            "customization_options": {"Size": [{"value": " 8/12 OZ "}, {"value": "Big"}], "Color": None},
        }
        for n in range(3)
    ]  # fmt: skip
    odd = [{**items[0], "asin": asin} for asin in ("nan", "B0000000001", "B000000000")]
    about = {
        "attributes": ["lead free"],
        "instruction": "Find me lead free cups",
        "instruction_attributes": ["lead free"],
    }
    human = {
        "instruction": "I want a big cup.", "attributes": ["x"], "options": ["size: big"],
        "instruction_attributes": ["lead free"],
        "instruction_options": ["big"], "assignment_id": "A", "worker_id": "secret",
    }  # fmt: skip
    contents = {
        "items_shuffle.json": [*items, *odd],
        "items_ins_v2.json": {"B000000000": about, "B000000001": {**about, "instruction": None}},
        "items_human_ins.json": {"B000000001": [human, {**human, "instruction_attributes": []}]},
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    return OfficialFiles(*(tmp_path / name for name in contents))
