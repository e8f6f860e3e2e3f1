"""Builds an index from a stream of documents: in memory, or in a folder that processes map and share.

Documents are taken in blocks. The postings of a block are sorted by term and kept (in a folder: on disk), and the blocks
are then merged, so that memory is needed for one block, the terms and the ids only.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import tempfile
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from env_connectors.errors import EnvConfigError
from env_connectors.retrieval.analyzer import term_of
from env_connectors.retrieval.bm25 import Bm25Index, norm_inverses
from env_connectors.retrieval.unicode_words import words

FORMAT = "bm25-index/1"
_FACTS = "index.json"
_ARRAYS = ("term_bytes", "term_ends", "starts", "docs", "divisors", "id_bytes", "id_ends")
_BLOCK = 16_000


def build_index(documents: Iterable[tuple[str, str]], folder: Path | None = None, *, block: int = _BLOCK) -> Bm25Index:
    """Return an index of (id, text) documents, read once and in any order.

    Args:
        documents: ids are different from each other.
        folder: where to write it (made if needed, replaced as a whole once all is written); None: in memory only.
        block: documents that are held at a time.

    Raises:
        EnvConfigError: an id occurs twice.
        OSError: the folder cannot be written, or the disk has no room.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="bm25-") as passing:
            arrays, facts = _built(documents, Path(passing), block)
            return Bm25Index({name: np.array(values) for name, values in arrays.items()}, facts["num_with_terms"])
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as passing:
        scratch = Path(passing) / "index"  # not the temporary folder itself: that one only its maker may read
        scratch.mkdir()
        arrays, facts = _built(documents, scratch, block)
        for name, values in arrays.items():
            if not (scratch / f"{name}.npy").exists():
                np.save(scratch / f"{name}.npy", values)
        del arrays
        (scratch / _FACTS).write_text(json.dumps({"format": FORMAT, **facts}))
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(scratch, folder)
    return open_index(folder)


def open_index(folder: Path) -> Bm25Index:
    """Return the index in `folder`, mapped into memory.

    Raises:
        EnvConfigError: there is none, or it is cut short.
    """
    try:
        facts = json.loads((folder / _FACTS).read_text())
        if facts.get("format") != FORMAT:
            raise ValueError(f"its format is {facts.get('format')!r}, wanted {FORMAT!r}")
        arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in _ARRAYS}
        if len(arrays["docs"]) != facts["postings"] or len(arrays["divisors"]) != facts["postings"]:
            raise ValueError(f"it has {len(arrays['docs'])} postings, wanted {facts['postings']}")
    except (OSError, EOFError, ValueError, KeyError, AttributeError) as error:
        raise EnvConfigError(
            f"the index folder {str(folder)!r} cannot be read: {error}. Remedy: build it anew."
        ) from error
    return Bm25Index(arrays, facts["num_with_terms"])


@dataclass
class _Block:
    """Postings of some documents, sorted by term: term and document number and frequency [P]."""

    terms: np.ndarray
    docs: np.ndarray
    tf: np.ndarray


class _TermNumbers(dict[str, int]):
    """Number of the term of every word so far, -1 for stop words."""

    def __init__(self) -> None:
        super().__init__()
        self.terms: dict[str, int] = {}

    def __missing__(self, word: str) -> int:
        term = term_of(word)
        self[word] = number = self.terms.setdefault(term, len(self.terms)) if term else -1
        return number


@dataclass
class _Reader:
    """What is gathered while documents are read: everything of all of them, and the words of the present block."""

    numbers: _TermNumbers = field(default_factory=_TermNumbers)
    ids: list[str] = field(default_factory=list)
    lengths: list[np.ndarray] = field(default_factory=list)
    words: array[int] = field(default_factory=lambda: array("i"))
    sizes: array[int] = field(default_factory=lambda: array("i"))

    def read(self, doc_id: str, text: str) -> None:
        before = len(self.words)
        self.words.extend(map(self.numbers.__getitem__, words(text)))
        self.sizes.append(len(self.words) - before)
        self.ids.append(doc_id)

    def take_block(self) -> _Block:
        size = max(1, len(self.sizes))
        terms, docs = np.array(self.words, np.int64), np.repeat(np.arange(len(self.sizes)), self.sizes)
        is_term = terms >= 0
        terms, docs = terms[is_term], docs[is_term]
        self.lengths.append(np.bincount(docs, minlength=len(self.sizes)))
        keys, tf = np.unique(terms * size + docs, return_counts=True)
        first = len(self.ids) - len(self.sizes)
        self.words, self.sizes = array("i"), array("i")
        return _Block((keys // size).astype(np.int32), (first + keys % size).astype(np.int32), tf.astype(np.int32))


def _built(
    documents: Iterable[tuple[str, str]], scratch: Path, block: int
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    reader, num_blocks = _Reader(), 0
    for doc_id, text in documents:
        reader.read(doc_id, text)
        if len(reader.sizes) == block:
            _keep(reader.take_block(), scratch, num_blocks)
            num_blocks += 1
    _keep(reader.take_block(), scratch, num_blocks)
    return _merged(reader, scratch, num_blocks + 1)


def _keep(block: _Block, scratch: Path, number: int) -> None:
    np.savez(scratch / f"block-{number}.npz", terms=block.terms, docs=block.docs, tf=block.tf)


def _merged(reader: _Reader, scratch: Path, num_blocks: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays of the index and its facts; terms and documents are numbered anew in their order."""
    ids, doc_rank = _ordered(reader.ids)
    if (twice := next((a for a, b in itertools.pairwise(ids) if a == b), None)) is not None:
        raise EnvConfigError(f"document id {twice.decode()!r} occurs twice; every document needs an id of its own.")
    terms, term_rank = _ordered(list(reader.numbers.terms))
    lengths = np.concatenate(reader.lengths)
    num_with_terms = int((lengths > 0).sum())
    inverse = norm_inverses(lengths, float(lengths.sum()) / max(1, num_with_terms))
    files = [scratch / f"block-{number}.npz" for number in range(num_blocks)]
    starts = _starts(files, term_rank, len(terms))
    docs = _array_on_disk(scratch / "docs.npy", np.int32, int(starts[-1]))
    divisors = _array_on_disk(scratch / "divisors.npy", np.float32, int(starts[-1]))
    free = starts[:-1].copy()
    for file in files:
        with np.load(file) as loaded:
            rank, block_docs, tf = term_rank[loaded["terms"]], loaded["docs"], loaded["tf"].astype(np.float32)
        file.unlink()
        places = _places(rank, free)
        docs[places] = doc_rank[block_docs]
        divisors[places] = np.float32(1) + tf * inverse[block_docs]
    term_bytes, term_ends = _joined(terms)
    id_bytes, id_ends = _joined(ids)
    arrays = {
        "term_bytes": term_bytes, "term_ends": term_ends, "starts": starts, "docs": docs, "divisors": divisors,
        "id_bytes": id_bytes, "id_ends": id_ends,
    }  # fmt: skip
    return arrays, {"documents": len(ids), "num_with_terms": num_with_terms, "postings": int(starts[-1])}


def _starts(files: Sequence[Path], term_rank: np.ndarray, num_terms: int) -> np.ndarray:
    """Return where the postings of each term begin, and after the last one where they end [V + 1]."""
    counts = np.zeros(num_terms, dtype=np.int64)
    for file in files:
        with np.load(file) as loaded:
            counts += np.bincount(term_rank[loaded["terms"]], minlength=num_terms)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def _places(rank: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Return the place [P] of each posting of a block, whose equal terms stand together; moves `free` behind them."""
    is_first = np.ones(len(rank), dtype=bool)
    is_first[1:] = rank[1:] != rank[:-1]
    begins = np.flatnonzero(is_first)
    sizes = np.diff(np.append(begins, len(rank)))
    places = np.repeat(free[rank[begins]] - begins, sizes) + np.arange(len(rank))
    free[rank[begins]] += sizes
    return places


def _ordered(texts: list[str]) -> tuple[list[bytes], np.ndarray]:
    """Return the texts as bytes in order, and the place of each one in that order."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    order = sorted(range(len(encoded)), key=encoded.__getitem__)
    rank = np.empty(len(encoded), dtype=np.int32)
    rank[order] = np.arange(len(encoded), dtype=np.int32)
    return [encoded[at] for at in order], rank


def _joined(texts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    return np.frombuffer(b"".join(texts), dtype=np.uint8), np.cumsum([len(text) for text in texts], dtype=np.int64)


def _array_on_disk(path: Path, dtype: Any, size: int) -> np.ndarray:
    """Return a new array in a file; an ordinary empty one when there is nothing to hold (nothing can be mapped then).

    Raises:
        OSError: there is no room for it. Found out here: a write to a mapped page without a place on the disk is SIGBUS.
    """
    if not size:
        np.save(path, np.zeros(0, dtype))
        return np.zeros(0, dtype)
    array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(size,))
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array
