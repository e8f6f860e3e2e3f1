"""Official data by path: read as the original reads it, and files that are missing, cut short or swapped are named."""

import json
import multiprocessing
import os
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from env_connectors import EnvConfigError, make_text_env
from env_connectors.webshop import official
from env_connectors.webshop.official import OfficialFiles, official_catalogue, read_products, stream_array
from env_connectors.webshop.products import Instruction

_ID = "arlarena/WebShop-v0"


def _env(files: OfficialFiles, **settings: Any) -> Any:
    paths = {"products_file": files.products, "attributes_file": files.attributes, "human_file": files.human}
    return make_text_env(_ID, **paths, cache_dir=files.cache_dir, n_validation=0, n_test=0, **settings)


def test_products_are_read_as_the_original_reads_them(small_files: OfficialFiles) -> None:
    first, second, third = read_products(small_files)
    assert (first.asin, first.title, first.query) == ("B000000000", "Cup 0 <b>", "cups")
    assert first.options == {"size": ("8 | 12 oz", "big")} and first.attributes == ("lead free",)
    assert first.search_text() == "cup 0 <b> for tea holds 8/oz size: 8 | 12 oz, big"
    prices = [(product.prices, product.price_text) for product in (first, second, third)]
    assert prices == [((7.9,), "$7.9"), ((1005.0, 1200.5), "$1005.0 to $1200.5"), ((100.0,), "$100.0")]
    assert first.request == Instruction("Find me lead free cups", ("lead free",)) and second.request is None
    assert second.requests == (Instruction("I want a big cup.", ("lead free",), ("big",)),)
    assert third.attributes == ("DUMMY_ATTR",)
    assert "secret" not in repr([first, second, third])
    assert [product.asin for product in read_products(small_files, 2)] == ["B000000000", "B000000001"]


def test_human_goals_come_from_the_human_file(small_files: OfficialFiles) -> None:
    env = _env(small_files)
    assert env.tasks().train == ("B000000001/0",)
    observation, _ = env.reset(options={"task_id": "B000000001/0"})
    assert observation == "WebShop [SEP] Instruction: [SEP] I want a big cup [SEP] Search"  # costs more than any limit
    for action in env.gold_actions("B000000001/0"):
        *_, info = env.step(action)
    assert info["score"] == 1.0
    with pytest.raises(EnvConfigError, match="goals='human': none of 3 products has such an instruction"):
        _env(replace(small_files, human=None))


@pytest.mark.parametrize("key", ["products", "attributes", "human"])
def test_a_missing_file_is_named(small_files: OfficialFiles, key: str) -> None:
    files = replace(small_files, **{key: Path("/nowhere/x.json")})
    with pytest.raises(EnvConfigError, match=f"{key}_file='/nowhere/x.json' is not there. Wanted: "):
        official_catalogue(files)


@pytest.mark.parametrize("key", ["products", "attributes", "human"])
@pytest.mark.parametrize("share", [0.0, 0.4, 0.98])
def test_a_file_cut_short_is_named(small_files: OfficialFiles, key: str, share: float) -> None:
    path: Path = getattr(small_files, key)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(EnvConfigError, match=rf"{key}_file='.*' (ends or breaks off|is no whole|is not of its kind)"):
        official_catalogue(small_files)


@pytest.mark.parametrize("swap", [("products", "attributes"), ("products", "human"), ("attributes", "human")])
def test_swapped_files_are_named(small_files: OfficialFiles, swap: tuple[str, str]) -> None:
    one, other = swap
    files = replace(small_files, **{one: getattr(small_files, other), other: getattr(small_files, one)})
    with pytest.raises(EnvConfigError, match=r"_file='.*' is not of its kind: .*\. Wanted: .* Was it swapped with"):
        official_catalogue(files)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[1, 2]", "entry 0 is a int"), (b'[{"asin": "x"}]', "entry 0 has no name, full_description"),
        (b"\xff\xfe[", "no text in UTF-8"),
        (b"[{]", "breaks off within entry 0"), (b"{}", "it begins with '{}'"),
    ],
)  # fmt: skip
def test_a_file_of_something_else_is_named(small_files: OfficialFiles, content: bytes, message: str) -> None:
    small_files.products.write_bytes(content)
    with pytest.raises(EnvConfigError, match=message):
        official_catalogue(small_files)


@pytest.mark.parametrize("chunk", [1, 7, 64, 10**6])
def test_entries_are_read_whatever_the_size_of_a_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(official, "_CHUNK", chunk)
    entries = [{"a": ["x]", '"', "\u203a\U0001f600"]}, 12345, {}, [], None, "end"]
    path = tmp_path / "list.json"
    path.write_text(json.dumps(entries, indent=1, ensure_ascii=False), encoding="utf-8")
    assert list(stream_array(path, "products_file")) == entries


def test_a_store_on_disk_is_the_catalogue_in_memory(small_files: OfficialFiles, tmp_path: Path) -> None:
    memory = official_catalogue(small_files)
    store = official_catalogue(replace(small_files, cache_dir=tmp_path / "kept"))
    assert (store.mark, len(store)) == (memory.mark, 3)
    for asin in ("B000000000", "B000000001", "B000000002"):
        assert asin in store and store[asin] == memory[asin]
    assert "B" not in store and 7 not in store
    with pytest.raises(KeyError):
        store["B"]
    assert store.search("cup tea", 2) == memory.search("cup tea", 2) == ["B000000000", "B000000001"]
    for human in (True, False):
        for most in (None, 1):
            asked = {"human": human, "seed": 0, "most": most}
            assert list(store.requested(**asked)) == list(memory.requested(**asked))
    assert _env(replace(small_files, cache_dir=tmp_path / "kept")).tasks() == _env(small_files).tasks()


def _open_and_search(files: OfficialFiles) -> list[str]:
    return official_catalogue(files).search("cup", 3)


def test_processes_that_start_together_build_the_store_once(small_files: OfficialFiles, tmp_path: Path) -> None:
    files = replace(small_files, cache_dir=tmp_path / "kept")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.map(_open_and_search, [files] * 2)
    assert found == [["B000000000", "B000000001", "B000000002"]] * 2
    assert [path.name.startswith("webshop-") for path in (tmp_path / "kept").iterdir() if path.is_dir()] == [True]


def test_a_store_is_built_anew_for_changed_files(small_files: OfficialFiles, tmp_path: Path) -> None:
    files = replace(small_files, cache_dir=tmp_path / "kept")
    first = official_catalogue(files)
    items = json.loads(files.products.read_text())
    files.products.write_text(json.dumps(items[:2]))
    assert (len(first), len(official_catalogue(files))) == (3, 2)


def test_a_store_that_cannot_be_written_or_read_is_named(small_files: OfficialFiles, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(EnvConfigError, match=r"cannot be kept in .* Remedy: cache_dir of a place to write to"):
        official_catalogue(replace(small_files, cache_dir=tmp_path / "taken"))
    files = replace(small_files, cache_dir=tmp_path / "kept")
    official_catalogue(files)
    next((tmp_path / "kept").glob("webshop-*/store.json")).write_text("{")
    with pytest.raises(EnvConfigError, match=r"is no product store: .* Remedy: remove it"):
        official_catalogue(files)


def test_a_failed_build_leaves_nothing(small_files: OfficialFiles, tmp_path: Path) -> None:
    small_files.products.write_bytes(small_files.products.read_bytes()[:-40])
    with pytest.raises(EnvConfigError, match="ends or breaks off"):
        official_catalogue(replace(small_files, cache_dir=tmp_path / "kept"))
    assert [path for path in (tmp_path / "kept").iterdir() if path.is_dir()] == []


def test_what_a_killed_build_left_goes_with_the_next_one(small_files: OfficialFiles, tmp_path: Path) -> None:
    files = replace(small_files, cache_dir=tmp_path / "kept")
    official_catalogue(files)
    built = next((tmp_path / "kept").glob("webshop-*"))
    (built / "store.json").unlink()
    built.rename(left := built.with_name(f".{built.name}.build-123456"))
    assert len(official_catalogue(files)) == 3 and not left.exists()


def test_a_store_that_is_there_is_read_without_writing(small_files: OfficialFiles, tmp_path: Path) -> None:
    files = replace(small_files, cache_dir=tmp_path / "kept")
    official_catalogue(files)
    lock = next((tmp_path / "kept").glob(".webshop-*.lock"))
    lock.unlink()
    lock.mkdir()  # nobody, root included, can open it to write
    assert len(official_catalogue(files)) == 3


def test_a_store_can_be_read_by_others(small_files: OfficialFiles, tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        official_catalogue(replace(small_files, cache_dir=tmp_path / "kept"))
    finally:
        os.umask(old)
    made = [path for path in (tmp_path / "kept").rglob("*") if not path.name.startswith(".")]
    assert {path.stat().st_mode & 0o777 for path in made} == {0o755, 0o644}


@pytest.mark.parametrize("file", ["products.sqlite", "index/docs.npy", "index/id_bytes.npy"])
@pytest.mark.parametrize("damage", [None, b"", b"\0" * 40], ids=["gone", "empty", "zeros"])
def test_a_damaged_store_is_named(small_files: OfficialFiles, tmp_path: Path, file: str, damage: bytes | None) -> None:
    files = replace(small_files, cache_dir=tmp_path / "kept")
    official_catalogue(files)
    path = next((tmp_path / "kept").glob("webshop-*")) / file
    path.unlink() if damage is None else path.write_bytes(damage)
    with pytest.raises(EnvConfigError, match=r"product store .* is damaged: .* Remedy: remove it"):
        official_catalogue(files)


def test_a_database_without_room_is_named(
    small_files: OfficialFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("env_connectors.webshop.store._kept", full)
    with pytest.raises(EnvConfigError, match=r"cannot be kept in .* disk is full\. Remedy: cache_dir of a place"):
        official_catalogue(replace(small_files, cache_dir=tmp_path / "kept"))


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("items_shuffle.json", "customization_options", [1], r"products_file=.* entry 1, 'B000000001',"),
        ("items_shuffle.json", "reviews", [None], r"products_file=.* entry 1, 'B000000001',"),
        ("items_ins_v2.json", "attributes", "lead free", r"attributes_file=.*'B000000001'.* attributes is no list of texts"),
        ("items_human_ins.json", "instruction_options", [1], r"human_file=.*'B000000001'.* instruction_options is no list"),
        ("items_human_ins.json", "instruction", ..., r"human_file=.*'B000000001'.* no 'instruction'"),
    ],
)  # fmt: skip
def test_an_entry_of_another_form_is_named(
    small_files: OfficialFiles, tmp_path: Path, name: str, key: str, value: Any, message: str
) -> None:
    content = json.loads((tmp_path / name).read_text())
    entry = content[1] if isinstance(content, list) else content["B000000001"]
    entry = entry[0] if name == "items_human_ins.json" else entry
    entry[key] = value
    if value is ...:
        del entry[key]
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(EnvConfigError, match=message):
        list(read_products(small_files))


@pytest.mark.parametrize("key", ["products", "attributes", "human"])
def test_a_file_that_cannot_be_read_is_named_itself(small_files: OfficialFiles, tmp_path: Path, key: str) -> None:
    files = replace(small_files, cache_dir=tmp_path / "kept", **{key: Path("/proc/self/mem")})  # reading it is an error
    with pytest.raises(EnvConfigError, match=rf"^{key}_file='/proc/self/mem' cannot be read"):
        official_catalogue(files)
    getattr(small_files, key).write_text("[" * 200_000)
    with pytest.raises(EnvConfigError, match=rf"^{key}_file=.* nested too deeply"):
        official_catalogue(small_files)


def test_the_thousand_products_read_as_the_original_indexes_them(
    thousand_products: tuple[OfficialFiles, dict[str, dict[str, Any]]],
) -> None:
    files, documents = thousand_products
    products = list(read_products(files))
    assert len(products) == len(documents) == 1000
    for product in products:
        whole = documents[product.asin]
        assert product.search_text() == whole["contents"] and product.price_text == whole["product"]["Price"]
        assert {name: list(values) for name, values in product.options.items()} == whole["product"]["options"]


def test_the_oracle_fulfils_goals_of_the_thousand_products(
    thousand_products: tuple[OfficialFiles, Any], webshop_file: Callable[[str], Path]
) -> None:
    files, _ = thousand_products
    env = make_text_env(_ID, products_file=files.products, attributes_file=files.attributes, goals="machine")
    for task_id in env.tasks().test:
        env.reset(options={"task_id": task_id})
        for action in env.gold_actions(task_id):
            *_, info = env.step(action)
        assert info["score"] == 1.0, task_id
