"""A dense retriever: a sentence encoder from a local directory, cosine similarity, embeddings kept on disk.

The only file of env_connectors that uses torch and transformers, and only once an encoder is asked for.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from env_connectors.errors import EnvConfigError
from env_connectors.search_qa.documents import Document, Found
from env_connectors.search_qa.retriever import MOST_QUERY_CHARS

FORMAT = "dense/1"
MOST_TOKENS = 256
_BATCH = 32
_MODEL_FILES = ("*.safetensors", "*.bin", "config.json", "tokenizer.json", "vocab.txt")


class DenseRetriever:
    """Cosine similarity of mean-pooled token states; equal scores in the order of the corpus."""

    def __init__(
        self, documents: Sequence[Document], corpus_mark: str, model: Path, cache_dir: Path | None = None
    ) -> None:
        """Load the encoder, and embed the corpus unless its embeddings are kept already (one process does, others wait).

        Args:
            documents: the corpus.
            corpus_mark: names its contents.
            model: directory of a Hugging Face encoder without prefixes for queries, like all-MiniLM-L6-v2.
            cache_dir: where embeddings are kept; None = arlarena/search_qa in the user's cache directory.

        Raises:
            EnvConfigError: no such encoder, packages that are missing, or a place that cannot be written.
        """
        self._documents = documents
        self._encoder = _Encoder(model)
        self._embeddings = _kept_embeddings(documents, corpus_mark, model, self._encoder, _cache_dir(cache_dir))

    def search(self, query: str, topk: int) -> list[Found]:
        """Return the documents nearest to the query."""
        scores = self._embeddings @ self._encoder.embed([query[:MOST_QUERY_CHARS]])[0]
        best = np.argsort(-scores, kind="stable")[:topk]
        return [Found(self._documents[int(at)], float(scores[at])) for at in best]


class _Encoder:
    def __init__(self, model: Path) -> None:
        if not (model / "config.json").is_file():
            raise EnvConfigError(f"dense_model={str(model)!r} is no directory of a model: it has no config.json.")
        try:
            from transformers import AutoModel, AutoTokenizer
            from transformers.utils import logging
        except ImportError as error:
            raise EnvConfigError(f"retriever='dense' needs torch and transformers: {error}") from error
        logging.disable_progress_bar()
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(model, local_files_only=True)
            self._model: Any = AutoModel.from_pretrained(model, local_files_only=True).float().eval()
        except Exception as error:
            raise EnvConfigError(
                f"dense_model={str(model)!r} cannot be loaded: {' '.join(str(error).split())}"
            ) from error
        self._lock = threading.Lock()  # the tokenizer's padding is a state of its own

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return the embeddings [N, D] float32 of length 1."""
        import torch

        # A lone surrogate is no Unicode text: no tokenizer takes it.
        clean = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        with self._lock, torch.inference_mode():
            tokens = self._tokenizer(clean, padding=True, truncation=True, max_length=MOST_TOKENS, return_tensors="pt")
            states_B_T_D = self._model(**tokens).last_hidden_state
            mask_B_T_1 = tokens["attention_mask"].unsqueeze(-1).to(states_B_T_D.dtype)
            mean_B_D = (states_B_T_D * mask_B_T_1).sum(1) / mask_B_T_1.sum(1).clamp(min=1)
            return torch.nn.functional.normalize(mean_B_D, dim=-1).numpy()


def _kept_embeddings(
    documents: Sequence[Document], corpus_mark: str, model: Path, encoder: _Encoder, cache_dir: Path
) -> np.ndarray:
    """Return the embeddings of the corpus, mapped from disk."""
    mark = hashlib.sha256(f"{FORMAT} {MOST_TOKENS} {corpus_mark} {_mark_of(model)}".encode()).hexdigest()[:16]
    path = cache_dir / f"dense-{mark}.npy"
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with (cache_dir / f".{path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            kept = _open(path, len(documents))
            if kept is None:
                _write(path, _embed_all(documents, encoder))
                kept = _open(path, len(documents))
    except OSError as error:
        raise EnvConfigError(
            f"embeddings cannot be kept in {str(cache_dir)!r}: {error}. Remedy: dense_cache_dir of a place to write to."
        ) from error
    assert kept is not None, "it has just been written"
    return kept


def _embed_all(documents: Sequence[Document], encoder: _Encoder) -> np.ndarray:
    """Return the embeddings [N, D]; texts of like length go together, so that little is padded."""
    order = sorted(range(len(documents)), key=lambda at: len(documents[at].search_text))
    parts = [
        encoder.embed([documents[at].search_text for at in order[first : first + _BATCH]])
        for first in range(0, len(order), _BATCH)
    ]
    sorted_N_D = np.concatenate(parts)
    embeddings_N_D = np.empty_like(sorted_N_D)
    embeddings_N_D[order] = sorted_N_D
    return embeddings_N_D


def _open(path: Path, num_documents: int) -> np.ndarray | None:
    """Return what is kept, None if there is nothing or it is damaged."""
    try:
        kept = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return None
    return kept if kept.ndim == 2 and len(kept) == num_documents else None


def _write(path: Path, embeddings: np.ndarray) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".npy", delete=False) as file:
        try:
            np.save(file, embeddings)
            file.flush()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def _mark_of(model: Path) -> str:
    whole = hashlib.sha256()
    for path in sorted(found for pattern in _MODEL_FILES for found in model.glob(pattern)):
        with path.open("rb") as file:
            whole.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()} ".encode())
    return whole.hexdigest()


def _cache_dir(given: Path | None) -> Path:
    if given is not None:
        return given
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arlarena" / "search_qa"
