"""Text to tokens and back, by the model's own tokenizer and chat template."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from arlarena_rllib.models.load import load_tokenizer, stop_token_ids

_MARK = "\u2063"  # an invisible separator; a text that holds one is kept apart like control tokens
_SENTINEL = _MARK + "{}" + _MARK
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_SENTINELS = re.compile(_SENTINEL.format("([0-9]+)"))


class TextCodec:
    """Encodes prompts and decodes replies. A reply is decoded for reading only; its tokens are never made anew.

    What an environment or a tool says is text, also where it has the letters of a control token such as an end of turn;
    half of a surrogate pair, which no tokenizer takes, becomes U+FFFD.
    """

    def __init__(self, model_path: str) -> None:
        """Load the tokenizer of ``model_path``; raises ``ModelError`` when it lacks a chat template or end token."""
        self.tokenizer = load_tokenizer(model_path)
        self.stop_ids = stop_token_ids(model_path, self.tokenizer)
        self.pad_id = int(self.tokenizer.pad_token_id)
        controls = [t.content for t in self.tokenizer.added_tokens_decoder.values() if t.special]
        self._control = re.compile("|".join(map(re.escape, [_MARK, *controls])))

    def encode_prompt(self, messages: Sequence[Any]) -> list[int]:
        """Return the ids of ``messages`` (``role`` and ``text`` each) up to where the assistant's reply begins."""
        return self._encode_chat([], messages)

    def encode_continuation(self, messages: Sequence[Any], *, reply_ended: bool) -> list[int]:
        """Return the ids between a reply and the next one, for conversations that grow (append mode).

        Args:
            messages: What the environment or tools said after the reply.
            reply_ended: Whether the reply's last token is a stop token; if not, the end of turn is added here, masked.
        """
        ids = self._encode_chat([{"role": "user", "content": ""}, {"role": "assistant"}], messages)
        return ids[1:] if reply_ended and ids and ids[0] in self.stop_ids else ids

    def encode_text(self, text: str) -> list[int]:
        """Return the ids of plain text, without any control token."""
        text = _HALF_CHARACTER.sub("\ufffd", text)
        if not self._control.search(text):
            return self._encode(text)
        if self.tokenizer.is_fast:
            return self._plain_backend.encode(text, add_special_tokens=False).ids
        return self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)

    def encode_reply(self, reply: str) -> list[int]:
        """Return the ids of a reply that was written, not sampled (a demonstration); control tokens in it are such."""
        return self._encode(reply)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids`` without special tokens; bytes that are not UTF-8 become U+FFFD."""
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def _encode_chat(self, before: list[dict[str, str]], messages: Sequence[Any]) -> list[int]:
        """Return the ids of the chat template behind the contents of ``before``, whose last content stands for a reply.

        Contents with the letters of a control token are encoded on their own; all others with the template around them.
        """
        texts = [_HALF_CHARACTER.sub("\ufffd", message.text) for message in messages]
        is_apart = [bool(self._control.search(text)) for text in texts]
        shown = [
            _SENTINEL.format(i) if apart else text for i, (text, apart) in enumerate(zip(texts, is_apart, strict=True))
        ]
        reply = _SENTINEL.format(len(texts))
        chat = [{"content": reply, **message} for message in before]
        chat += [{"role": m.role, "content": content} for m, content in zip(messages, shown, strict=True)]
        text = self.tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        text = text.split(reply, 1)[1] if before else text
        if not any(is_apart):
            return self._encode(text)
        ids: list[int] = []
        for number, part in enumerate(_SENTINELS.split(text)):
            ids += self.encode_text(texts[int(part)]) if number % 2 else self._encode(part)
        return ids

    def _encode(self, text: str) -> list[int]:
        """Return the ids of ``text``; a fast tokenizer is asked directly, which takes half the time."""
        if self.tokenizer.is_fast:
            return self.tokenizer.backend_tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return self.tokenizer.encode(text, add_special_tokens=False)

    @cached_property
    def _plain_backend(self) -> Any:
        """A copy of the fast tokenizer for which control tokens are letters like any others."""
        from tokenizers import Tokenizer

        backend = Tokenizer.from_str(self.tokenizer.backend_tokenizer.to_str())
        backend.encode_special_tokens = True
        return backend
