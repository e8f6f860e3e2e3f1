"""Retrievers: anything that finds documents for a query; BM25 over a corpus in memory is the default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from env_connectors.retrieval import build_index
from env_connectors.search_qa.documents import Document, Found

MOST_QUERY_CHARS = 1000
MOST_TOPK = 100


class Retriever(Protocol):
    """Finds documents, the best first; safe to call from several threads."""

    def search(self, query: str, topk: int) -> list[Found]:
        """Return at most `topk` documents; of a query at most MOST_QUERY_CHARS characters are read.

        Raises:
            RetrieverError: the service behind it does not answer as it should.
        """
        ...


class Bm25Retriever:
    """BM25 over titles and texts, as Lucene ranks them; equal scores in the order of the corpus."""

    def __init__(self, documents: Sequence[Document]) -> None:
        """Index the corpus in memory."""
        self._documents = documents
        width = len(str(len(documents)))
        self._index = build_index((f"{n:0{width}d}", found.search_text) for n, found in enumerate(documents))

    def search(self, query: str, topk: int) -> list[Found]:
        """Return the best documents with any word of the query."""
        hits = self._index.search(query[:MOST_QUERY_CHARS], topk)
        return [Found(self._documents[int(hit.doc_id)], hit.score) for hit in hits]
