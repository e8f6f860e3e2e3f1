"""Full-text search: Lucene's English analyser and BM25 on numpy, with an index that can live on disk."""

from env_connectors.retrieval.analyzer import analyze
from env_connectors.retrieval.bm25 import Bm25Index, Hit
from env_connectors.retrieval.build import build_index, open_index

__all__ = ["Bm25Index", "Hit", "analyze", "build_index", "open_index"]
