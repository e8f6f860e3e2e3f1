"""The agent's reply: <think>...</think>, then one <search>query</search> or <answer>text</answer>.

The action is the tagged text itself, without blanks at the ends of what it holds.
Source of the form: Search-R1 (2503.09516).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from env_connectors.parsing import ParsedReply
from env_connectors.reply_form import ReplyForm

SEARCH, ANSWER = "search", "answer"
KINDS = (SEARCH, ANSWER)
TAGS = (
    "<think>", "</think>", "<search>", "</search>", "<answer>", "</answer>", "<information>", "</information>",
)  # fmt: skip
_TAG = re.compile("|".join(TAGS))
_FALLBACK_CHARS = 30
_TAGS_OF_A_REPLY = 4


@dataclass(frozen=True)
class Request:
    """What an action asks for: its kind ('search' or 'answer'), the text between the tags, stripped."""

    kind: str
    text: str


def written(kind: str, text: str) -> str:
    """Return the action of a kind with this text."""
    return f"<{kind}>{text}</{kind}>"


def read_action(text: str) -> Request | None:
    """Return the first search or answer pair of a text, None if it has none.  Cost is linear in the length."""
    span = _first_pair(text)
    return None if span is None else Request(span[0], text[span[2] : span[3]].strip())


def _first_pair(text: str) -> tuple[str, int, int, int] | None:
    """Return (kind, begin of the opening tag, begin and end of the content) of the pair that opens first."""
    found: tuple[str, int, int, int] | None = None
    for kind in KINDS:
        begin = text.find(f"<{kind}>")
        inside = begin + len(kind) + 2
        end = text.find(f"</{kind}>", inside) if begin >= 0 else -1
        if end >= 0 and (found is None or begin < found[1]):
            found = (kind, begin, inside, end)
    return found


def parse_reply(text: str) -> ParsedReply:
    """Return action, thought and format flag of a reply; never raises, changes no letter.

    Valid: one think pair, then one search or answer pair with something in it, blanks around and between, and none of
    TAGS (in small letters) anywhere else. A malformed reply is still played: its first search or answer pair, else its
    last 30 characters, which mean nothing to the environment.
    """
    span = _first_pair(text)
    action = text[-_FALLBACK_CHARS:].strip() if span is None else written(span[0], text[span[2] : span[3]].strip())
    _, _, rest = text.partition("<think>")
    thought, closed, _ = rest.partition("</think>")
    return ParsedReply(action, thought.strip() if closed else "", _is_valid(text))


def render_reply(thought: str, action: str) -> str:
    """Return the well-formed reply with this thought and action; parse_reply reads both back."""
    return f"<think>{thought}</think>{action}"


def render_spaced(thought: str, action: str) -> str:
    """Return the same with a blank before the first word of each pair, as words have within a text.

    A tokenizer that keeps the blank with the word then writes a copied word as it read it.
    """
    request = read_action(action)
    return render_reply(f" {thought}", action if request is None else written(request.kind, f" {request.text}"))


def _is_valid(text: str) -> bool:
    tags = _TAG.findall(text)
    if len(tags) != _TAGS_OF_A_REPLY or tags[:2] != ["<think>", "</think>"]:
        return False
    span = _first_pair(text)
    if span is None or not text[span[2] : span[3]].strip():
        return False
    before, between = text[: text.index("<think>")], text[text.index("</think>") + len("</think>") : span[1]]
    return not (before + between + text[span[3] + len(span[0]) + 3 :]).strip()


SEARCH_REPLY = ReplyForm(
    name="search_answer",
    parse=parse_reply,
    render=render_reply,
    request=(
        "First reason about what you know and what is missing, inside <think> </think>. Then either look something up "
        "with a query inside <search> </search>, or give the final answer, as short as possible, inside "
        "<answer> </answer>."
    ),
    stop=("</search>", "</answer>"),
    continues=True,
    tags=TAGS,
)
COMPACT_REPLY = replace(SEARCH_REPLY, name="search_answer_compact", render=render_spaced)
"""The same form, written for word-level models."""
