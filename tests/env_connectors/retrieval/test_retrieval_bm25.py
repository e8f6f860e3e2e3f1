"""The index: Lucene's scores and order, equal in memory and on disk, and errors for folders that are no index."""

import gzip
import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from env_connectors import EnvConfigError
from env_connectors.retrieval import build, build_index, open_index
from env_connectors.retrieval.bm25 import quantised

_DOCS = [("b", "red shoe"), ("a", "red shoe"), ("c", "a red red hat for the red box"), ("d", ""), ("e", "blue shoe")]

_WORDS = ["red", "blue", "hat", "shoe", "box", "lamp", "12", "é", "❤"]


def test_score_by_hand() -> None:
    """Four documents with terms, lengths 2, 2, 5, 2: mean 2.75; 'blue' is in one of them, 'red' in three."""
    index = build_index(_DOCS)
    blue = math.log(1 + 3.5 / 1.5) * (1 - 1 / (1 + 1 / (0.9 * (0.6 + 0.4 * 2 / 2.75))))
    red = math.log(1 + 1.5 / 3.5) * (1 - 1 / (1 + 3 / (0.9 * (0.6 + 0.4 * 5 / 2.75))))
    assert index.search("blue")[0].score == pytest.approx(blue, rel=1e-6)
    assert index.search("red hats")[0].doc_id == "c"
    assert index.search("red")[0].score == pytest.approx(red, rel=1e-6)
    assert index.search("red red")[0].score == pytest.approx(2 * red, rel=1e-6)


def test_equal_scores_are_ordered_by_id_and_strangers_left_out() -> None:
    index = build_index(_DOCS)
    assert [hit.doc_id for hit in index.search("shoe")] == ["a", "b", "e"]
    assert [hit.doc_id for hit in index.search("shoe", 2)] == ["a", "b"]
    assert index.search("unheard") == index.search("the of") == index.search("") == index.search("shoe", 0) == []


def test_lengths_are_kept_as_lucene_keeps_them() -> None:
    lengths = (0, 1, 39, 40, 41, 42, 55, 56, 59, 60, 88, 95, 96, 258, 1000)
    assert [quantised(n) for n in lengths] == [0, 1, 39, 40, 40, 42, 54, 56, 56, 60, 88, 88, 96, 248, 984]


def test_blocks_order_and_folder_change_nothing(tmp_path: Path) -> None:
    rng = random.Random(1)
    docs = [(f"id{n:03d}", " ".join(rng.choices(_WORDS, k=9))) for n in range(200)]
    whole = build_index(docs)
    shuffled = rng.sample(docs, len(docs))
    others = [
        build_index(shuffled, block=7),
        build_index(docs, tmp_path / "index", block=64),
        open_index(tmp_path / "index"),
    ]
    for query in ("red hat", "blue blue lamp", "12 ❤", "box"):
        assert all(other.search(query) == whole.search(query) for other in others)
    assert len(whole.search("red hat", 10**6)) <= 200
    assert not [path for path in tmp_path.iterdir() if path.name != "index"]


def test_an_index_of_nothing_finds_nothing(tmp_path: Path) -> None:
    assert build_index([], tmp_path / "empty").search("red") == build_index([("a", "the")]).search("the") == []


def test_an_id_twice_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(EnvConfigError, match="document id 'a' occurs twice"):
        build_index([("a", "red"), ("a", "blue")], tmp_path / "index")
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_written_by_mapping_have_their_room_on_the_disk(tmp_path: Path) -> None:
    build._array_on_disk(path := tmp_path / "docs.npy", np.int32, 100_000)  # without it a full disk kills the process
    assert path.stat().st_blocks * 512 >= path.stat().st_size >= 400_000


def test_a_folder_that_is_no_index_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvConfigError, match=r"the index folder .*nowhere.* cannot be read"):
        open_index(tmp_path / "nowhere")
    build_index(_DOCS, tmp_path / "index")
    np.save(tmp_path / "index" / "docs.npy", np.zeros(1, np.int32))
    with pytest.raises(EnvConfigError, match="it has 1 postings"):
        open_index(tmp_path / "index")


def test_top_50_of_all_given_queries_are_those_of_lucene(webshop_file: Callable[[str], Path]) -> None:
    documents = webshop_file("documents_1k.jsonl.gz")
    expected = json.loads(gzip.decompress(webshop_file("lucene_top50_178queries.json.gz").read_bytes()))
    with gzip.open(documents, "rt", encoding="utf-8") as lines:
        index = build_index((entry["id"], entry["contents"]) for entry in map(json.loads, lines))
    assert (len(index), len(expected)) == (1000, 178)
    for entry in expected:
        hits = index.search(entry["q"])
        assert [hit.doc_id for hit in hits] == [doc_id for doc_id, _ in entry["hits"]], entry["q"]
        assert [hit.score for hit in hits] == pytest.approx([score for _, score in entry["hits"]], abs=1e-4)
