"""ReplyForm: how a policy writes thought and action, where its generation stops, and how the conversation goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from env_connectors.errors import EnvConfigError
from env_connectors.parsing import ParsedReply, parse_reply, render_reply

CHOICE = "{choice}"


@dataclass(frozen=True)
class ReplyForm:
    """The form of replies in one environment; a `TextEnv` names it as its `reply_form`.

    Attributes:
        name: for messages.
        parse: text of a reply -> thought, action and whether the form was kept; never raises.
        render: (thought, action) -> the reply that `parse` reads back as these two.
        request: what a chat prompt asks for at its end. '{choice}' in it becomes "one of the admissible actions", which
            are listed then, or "your next action"; without it the actions are not listed.
        stop: texts that end a reply. The token that completes one is the last of the reply, whatever else it holds.
        continues: in conversations that grow, the environment's answer stands in the policy's own message, right behind
            the reply, as plain text; False puts it into a message of its own. A reply that ended its message gets one
            in any case.
        tags: words that a tokenizer made for this environment keeps whole.
    """

    name: str
    parse: Callable[[str], ParsedReply]
    render: Callable[[str, str], str]
    request: str = ""
    stop: tuple[str, ...] = ()
    continues: bool = False
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an empty stop text: every reply would end with it."""
        if not isinstance(self.stop, tuple) or not all(isinstance(text, str) and text for text in self.stop):
            raise EnvConfigError(
                f"stop={self.stop!r} of reply form {self.name!r}: a tuple of texts that are not empty."
            )


THINK_ACTION = ReplyForm(
    name="think_action",
    parse=parse_reply,
    render=render_reply,
    request=(
        "It is your turn to act. First think step by step about the situation, inside <think> </think>. "
        "Then give {choice} inside <action> </action>, and write nothing else."
    ),
    tags=("<think>", "</think>", "<action>", "</action>"),
)
"""One think pair, then one action pair; the form of every environment that names no other."""
