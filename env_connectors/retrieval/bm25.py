"""BM25 ranking over an index of postings, with the scores and the order of Lucene.

score(q, d) = sum over the terms t of q of  n(t, q) idf(t) (1 - 1 / (1 + tf(t, d) / norm(d)))
norm(d) = k1 (1 - b + b length(d) / mean length),  idf(t) = ln(1 + (N - df(t) + 0.5) / (df(t) + 0.5))
Source: Lucene's BM25Similarity. It keeps length(d) in one byte (`quantised`), takes the mean of the true lengths over the
documents with any term (their number is N), calculates in float32, and orders equal scores by document id.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from env_connectors.retrieval.analyzer import analyze

K1 = 0.9
B = 0.4
_EXACT = 24  # a length is kept as 24 plus the first four binary digits of the rest
_DIGITS = 4
_ONE = np.float32(1)


@dataclass(frozen=True)
class Hit:
    """A document that was found: its id and its score."""

    doc_id: str
    score: float


def quantised(length: int) -> int:
    """Return a document length as Lucene keeps it: exact up to 39, rounded down above (SmallFloat.intToByte4)."""
    shift = max(0, (length - _EXACT).bit_length() - _DIGITS) if length > _EXACT else 0
    return length if not shift else _EXACT + ((length - _EXACT) >> shift << shift)


def norm_inverses(lengths: np.ndarray, mean_length: float) -> np.ndarray:
    """Return 1 / norm(d) [N] float32 of documents with these true lengths [N]; 0 where none has a term."""
    if not mean_length:
        return np.zeros(len(lengths), dtype=np.float32)
    distinct, at = np.unique(lengths, return_inverse=True)
    kept = np.array([quantised(int(length)) for length in distinct], dtype=np.float32)
    k1, b = np.float32(K1), np.float32(B)
    return (_ONE / (k1 * ((_ONE - b) + b * kept / np.float32(mean_length))))[at].astype(np.float32)


def idf(num_documents: int, document_frequency: int) -> np.float32:
    """Return the weight of a term that is in `document_frequency` of the documents."""
    return np.float32(math.log(1 + (num_documents - document_frequency + 0.5) / (document_frequency + 0.5)))


class Strings:
    """A row of strings as one array of bytes; the array may be mapped from disk."""

    def __init__(self, joined: np.ndarray, ends: np.ndarray) -> None:
        """Take the UTF-8 bytes [.] uint8 of all strings and where each one ends [n] int64."""
        self._joined, self._ends = joined, ends

    def __len__(self) -> int:
        """Return the number of strings."""
        return len(self._ends)

    def bytes_at(self, number: int) -> bytes:
        """Return a string as UTF-8 bytes."""
        start = self._ends[number - 1] if number else 0
        return self._joined[start : self._ends[number]].tobytes()

    def __getitem__(self, number: int) -> str:
        """Return a string."""
        return self.bytes_at(number).decode()

    def find(self, text: str) -> int | None:
        """Return the number of a string, None when it is not there; the strings must be in the order of their bytes."""
        wanted, low, high = text.encode("utf-8", "surrogatepass"), 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.bytes_at(middle) < wanted:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self) and self.bytes_at(low) == wanted else None


def _kth_best(scores: np.ndarray, k: int) -> np.float32:
    return np.partition(scores, len(scores) - k)[len(scores) - k]


class Bm25Index:
    """An index in memory or mapped from disk; documents are numbered in the order of their ids."""

    def __init__(self, arrays: Mapping[str, np.ndarray], num_with_terms: int) -> None:
        """Take the arrays of build.py.

        Args:
            arrays: `term_bytes`, `term_ends` (terms in order, see Strings); `starts` [V + 1] int64 (where the postings of a
                term begin); `docs` [P] int32 and `divisors` [P] float32, 1 + tf / norm(d); `id_bytes`, `id_ends`.
            num_with_terms: documents with any term.
        """
        self.terms = Strings(arrays["term_bytes"], arrays["term_ends"])
        self.ids = Strings(arrays["id_bytes"], arrays["id_ends"])
        self._starts, self._docs, self._divisors = arrays["starts"], arrays["docs"], arrays["divisors"]
        self._num_with_terms = num_with_terms

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.ids)

    def search(self, query: str, k: int = 50) -> list[Hit]:
        """Return the best `k` documents for a query, best first; documents with none of its terms are never found."""
        parts = [
            part for term, count in Counter(analyze(query)).items() if (part := self._part(term, count)) is not None
        ]
        if not parts or k < 1:
            return []
        total = np.zeros(len(self), dtype=np.float64)
        for docs, scores in parts:
            total[docs] += scores
        rounded = total.astype(np.float32)
        # At least k documents score what the k-th best of one term's documents does: few others need a closer look.
        enough = min((docs for docs, _ in parts if len(docs) >= k), key=len, default=None)
        found = np.flatnonzero(rounded) if enough is None else np.flatnonzero(rounded >= _kth_best(rounded[enough], k))
        scores = rounded[found]
        best = np.lexsort((found, -scores))[:k]
        return [Hit(self.ids[int(found[at])], float(scores[at])) for at in best]

    def _part(self, term: str, count: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the documents of a term and what it adds to their scores, None for an unknown term."""
        number = self.terms.find(term)
        if number is None:
            return None
        start, end = int(self._starts[number]), int(self._starts[number + 1])
        weight = np.float32(count) * idf(self._num_with_terms, end - start)
        return self._docs[start:end], weight - weight / self._divisors[start:end]
