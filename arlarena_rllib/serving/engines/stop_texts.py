"""Looks for the stop texts of a request while its answer is decoded token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tokenizers.decoders import DecodeStream

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase


class StopTexts:
    """Says when an answer holds one of its stop texts; one instance an answer, cost linear in its length."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str]) -> None:
        """``stop``: texts that are not empty."""
        self._stop = tuple(stop)
        self._keep = max(map(len, stop)) - 1
        self._tail = ""
        self._next_text = _text_stream(tokenizer)

    def is_reached(self, token_id: int) -> bool:
        """Take the next token; return whether the text so far holds a stop text."""
        self._tail += self._next_text(token_id)
        found = any(text in self._tail for text in self._stop)
        self._tail = self._tail[-self._keep :] if self._keep else ""
        return found


def _text_stream(tokenizer: PreTrainedTokenizerBase) -> Callable[[int], str]:
    """Return a function from each next token to the text that it adds, '' inside a character of several tokens."""
    if tokenizer.is_fast:
        return _FastStream(tokenizer.backend_tokenizer)
    ids: list[int] = []
    shown = ""

    def whole(token_id: int) -> str:
        nonlocal shown
        ids.append(token_id)
        text = tokenizer.decode(ids, skip_special_tokens=True)
        if text.endswith("\ufffd"):
            return ""
        new, shown = text[len(shown) :], text
        return new

    return whole


class _FastStream:
    """The text that each next token adds; bytes that are no UTF-8 do not end the stream."""

    def __init__(self, backend: Tokenizer) -> None:
        self._backend = backend
        self._stream = DecodeStream(skip_special_tokens=True)

    def __call__(self, token_id: int) -> str:
        try:
            return self._stream.step(self._backend, token_id) or ""
        except Exception:  # noqa: BLE001  (the library's own kind): what came before cannot be continued to text
            self._stream = DecodeStream(skip_special_tokens=True)
            return self._stream.step(self._backend, token_id) or ""
