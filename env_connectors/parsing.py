"""Reading and writing the agent's reply format <think>...</think><action>...</action>."""

from __future__ import annotations

import re
from dataclasses import dataclass

_STRICT = re.compile(r"\s*<think>(.*?)</think>\s*<action>(.*?)</action>\s*", re.IGNORECASE | re.DOTALL)
_TAGS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (r"<\s*think\s*>", r"<\s*/\s*think\s*>", r"<\s*action\s*>", r"<\s*/\s*action\s*>")
)
_CJK_IDEOGRAPH = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]")
_FALLBACK_CHARS = 30


@dataclass(frozen=True)
class ParsedReply:
    """What was read from a reply.

    Attributes:
        action: the action to play, lower-cased and stripped; filled in also for malformed replies.
        thought: the text of the first think pair, stripped; '' when there is none.
        format_valid: the reply has exactly the asked form.
    """

    action: str
    thought: str
    format_valid: bool


def parse_reply(text: str) -> ParsedReply:
    """Return action, thought and format flag of a reply; never raises.

    Valid: the whole text is one think pair followed by one action pair (blanks around and between allowed, any case),
    each tag occurs exactly once (also counted with blanks inside, '< think >'), and there is no CJK ideograph.
    A malformed reply is still played: the text of the first action pair, else the last 30 characters.
    Cost is linear in the length of the text.
    """
    match = _STRICT.fullmatch(text) if _has_each_tag_once(text) else None
    if match is not None and not _CJK_IDEOGRAPH.search(text):
        return ParsedReply(_clean(match[2]), match[1].strip(), True)
    action = _between(text, "action")
    thought = _between(text, "think")
    return ParsedReply(_clean(text[-_FALLBACK_CHARS:] if action is None else action), (thought or "").strip(), False)


def render_reply(thought: str, action: str) -> str:
    """Return the well-formed reply with this thought and action; parse_reply reads both back."""
    return f"<think>{thought}</think><action>{action}</action>"


def _has_each_tag_once(text: str) -> bool:
    return all(len(tag.findall(text)) == 1 for tag in _TAGS)


def _between(text: str, tag: str) -> str | None:
    """Return the text of the first pair of `tag`, None when there is no closed pair."""
    opening = re.search(f"<{tag}>", text, re.IGNORECASE)
    closing = re.compile(f"</{tag}>", re.IGNORECASE).search(text, opening.end()) if opening else None
    return text[opening.end() : closing.start()] if opening and closing else None


def _clean(action: str) -> str:
    return action.strip().lower()
