"""What a reply does in tool-integrated mathematics: it calls Python, it answers, or neither; two forms of writing that.

fence   the first ```py, ```python or plain ``` block is a program. Without one, the last \\boxed{..} is the answer; with one, a
        \\boxed{..} before the block is the answer and the program runs all the same (as in SimpleTIR). A line that is
        only ``` closes a block, and ends the reply when it is generated. A plain ``` line inside a reply therefore cannot
        open a block there: that reply is an empty call, which is told so, and not a void turn.
tags    the first of <code>..</code> and <answer>..</answer> that is closed; the program may stand in a ``` block in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from env_connectors.arguments import shown
from env_connectors.errors import EnvConfigError
from env_connectors.parsing import ParsedReply
from env_connectors.reply_form import ReplyForm

STYLES = ("fence", "tags")
_OPENING = re.compile(r"```([\w+#-]*)[ \t]*\r?(?:\n|\Z)")
_CLOSING = re.compile(r"^[ \t]*```[ \t]*\r?$", re.MULTILINE)
_PYTHON = ("", "py", "python", "python3")
_BOXED = "\\boxed{"
_PAIR = re.compile(r"<(code|answer)>")


@dataclass(frozen=True)
class Deed:
    """What a reply does.

    Attributes:
        code: the program to run; None = the tool is not called.
        answer: the final answer as it was written; None = none is given.
        start: where the acting part begins in the reply.
        end: where it ends.
    """

    code: str | None = None
    answer: str | None = None
    start: int = 0
    end: int = 0

    @property
    def is_void(self) -> bool:
        """Neither a program nor an answer."""
        return self.code is None and self.answer is None


def read_fence(text: str) -> Deed:
    """Return what a reply in the fence form does; never raises, linear in its length."""
    opening = block_end = None
    position = 0
    while found := _OPENING.search(text, position):
        closing = _CLOSING.search(text, found.end())
        if found[1].lower() in _PYTHON and (closing or not (found[1] or text[found.end() :].strip())):
            opening, block_end = found, closing
            break
        if closing is None:
            break
        position = closing.end()
    if opening is None:
        boxed = last_boxed(text)
        return Deed() if boxed is None else Deed(answer=boxed[0], start=boxed[1], end=boxed[2])
    code = text[opening.end() : block_end.start()] if block_end else ""
    end = block_end.end() if block_end else len(text.rstrip())
    boxed = last_boxed(text[: opening.start()])
    if boxed is None:
        return Deed(code=code, start=opening.start(), end=end)
    return Deed(code=code, answer=boxed[0], start=boxed[1], end=end)


def read_tags(text: str) -> Deed:
    """Return what a reply in the tags form does; never raises, linear in its length."""
    closings = {name: text.rfind(f"</{name}>") for name in ("code", "answer")}
    for opening in _PAIR.finditer(text):
        name = opening[1]
        if closings[name] < opening.end():
            continue
        end = text.index(f"</{name}>", opening.end())
        inner, after = text[opening.end() : end], end + len(f"</{name}>")
        if name == "code":
            return Deed(code=_unfenced(inner), start=opening.start(), end=after)
        boxed = last_boxed(inner)
        return Deed(answer=inner.strip() if boxed is None else boxed[0], start=opening.start(), end=after)
    return Deed()


def last_boxed(text: str) -> tuple[str, int, int] | None:
    """Return content, start and end of the last \\boxed{..} whose braces are balanced; None when there is none.

    Only the last four are looked at, so that a text full of unbalanced ones costs no more than its length.
    """
    start = len(text)
    for _ in range(4):
        start = text.rfind(_BOXED, 0, start)
        if start < 0:
            return None
        if (end := _brace_end(text, start + len(_BOXED))) is not None:
            return text[start + len(_BOXED) : end].strip(), start, end + 1
    return None


def _brace_end(text: str, position: int) -> int | None:
    depth = 1
    for found in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, position):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if depth == 0:
            return found.start()
    return None


def _unfenced(code: str) -> str:
    stripped = code.strip()
    opening = _OPENING.match(stripped)
    if opening and stripped.endswith("```") and len(stripped) > opening.end() + 2:
        return stripped[opening.end() : -3].rstrip()
    return code.strip("\r\n") if code.strip() else ""


def _parser(read: Callable[[str], Deed]) -> Callable[[str], ParsedReply]:
    def parse(text: str) -> ParsedReply:
        deed = read(text)
        if deed.is_void:
            return ParsedReply("", text.strip(), False)
        is_alone = not text[deed.end :].strip() or (deed.code is None and len(text[deed.end :].strip(" \n.$")) == 0)
        does_one_thing = (deed.code is None or bool(deed.code.strip())) and (deed.code is None or deed.answer is None)
        return ParsedReply(text[deed.start : deed.end], text[: deed.start].strip(), is_alone and does_one_thing)

    return parse


def _render_fence(thought: str, action: str) -> str:
    if action.startswith("```"):
        return f"{thought}\n{action}\n" if thought else f"{action}\n"
    return f"{thought} {action}" if thought else action


def _render_tags(thought: str, action: str) -> str:
    return f"{thought}\n{action}" if thought else action


FENCE = ReplyForm(
    name="fence",
    parse=_parser(read_fence),
    render=_render_fence,
    request=(
        "Think step by step. To run Python, write one block that begins with ```py and ends with ```, and print what you want "
        "to know; its output follows. When you know the answer, write it as \\boxed{answer} and write no block."
    ),
    stop=("\n```\n",),
    continues=True,
    tags=("```py", "```", "\\boxed{"),
)
TAGS = ReplyForm(
    name="tags",
    parse=_parser(read_tags),
    render=_render_tags,
    request=(
        "Think step by step. To run Python, write it inside <code> </code> and print what you want to know; its output follows "
        "inside <interpreter> </interpreter>. When you know the answer, write it inside <answer> </answer>."
    ),
    stop=("</code>", "</answer>"),
    continues=True,
    tags=("<code>", "</code>", "<answer>", "</answer>", "<interpreter>", "</interpreter>"),
)


@dataclass(frozen=True)
class Style:
    """A form of replies with what an environment needs of it."""

    form: ReplyForm
    read: Callable[[str], Deed]
    call: str
    """Format of an action that runs {0}."""
    answer: str
    """Format of an action that answers {0}."""
    result: str
    """Format of the observation with the output {0}."""
    ends_on_boxed_output: bool


_STYLES = {
    "fence": Style(
        FENCE,
        read_fence,
        "```py\n{0}\n```",
        "\\boxed{{{0}}}",
        "\nCode execution result: {0}\n",
        ends_on_boxed_output=True,
    ),
    "tags": Style(
        TAGS,
        read_tags,
        "<code>\n{0}\n</code>",
        "<answer>{0}</answer>",
        "\n<interpreter>\n{0}\n</interpreter>\n",
        ends_on_boxed_output=False,
    ),
}
_COMPACT = {
    "fence": Style(
        FENCE, read_fence, "```py\n{0}\n```", "\\boxed{{ {0} }}", " result {0}\n", ends_on_boxed_output=True
    ),
    "tags": Style(
        TAGS,
        read_tags,
        "<code>{0}</code>",
        "<answer> {0}</answer>",
        "<interpreter> {0}</interpreter>",
        ends_on_boxed_output=False,
    ),
}
"""Blanks only where they belong to the number behind them, which then is the same token everywhere."""


def style_of(name: str, *, compact: bool) -> Style:
    """Return a style by name.

    Raises:
        EnvConfigError: there is no such style.
    """
    if not isinstance(name, str) or name not in _STYLES:
        raise EnvConfigError(f"style={shown(name)} is not known. Allowed: {', '.join(STYLES)}.")
    return (_COMPACT if compact else _STYLES)[name]
