"""Prompts from observations: a compact form for word-level models and a chat form for language models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from env_connectors.errors import EnvConfigError
from env_connectors.reply_form import CHOICE, THINK_ACTION, ReplyForm

STYLES = ("compact", "chat")


@dataclass(frozen=True)
class PromptConfig:
    """How prompts look.

    Attributes:
        style: 'compact' (a few words, for small word-level models) or 'chat' (full sentences, for language models).
        window: how many past turns are shown, >= 0.
        instructions: whether the environment's rules stand at the top.
    """

    style: str = "compact"
    window: int = 2
    instructions: bool = False

    def __post_init__(self) -> None:
        """Refuse an unknown style and a negative window."""
        if self.style not in STYLES:
            raise EnvConfigError(f"style={self.style!r} of the prompt is not known. Allowed: {', '.join(STYLES)}.")
        if self.window < 0:
            raise EnvConfigError(f"window={self.window} of the prompt is not allowed. Allowed: whole numbers from 0.")


@dataclass(frozen=True)
class Message:
    """One chat message; `parts` in reading order, so that other things than text can stand between them later."""

    role: str
    parts: tuple[str, ...]

    @property
    def text(self) -> str:
        """The parts joined, nothing added."""
        return "".join(self.parts)


@dataclass(frozen=True)
class PastTurn:
    """One past turn: the short form of what was seen, and the action that was played."""

    brief: str
    action: str


def render_prompt(
    *,
    instructions: str,
    observation: str,
    history: Sequence[PastTurn],
    admissible: Sequence[str] | None,
    config: PromptConfig,
    turn: int | None = None,
    form: ReplyForm = THINK_ACTION,
) -> list[Message]:
    """Return the prompt of one turn, a single user message.

    Args:
        instructions: rules of the task; shown only when config.instructions is set.
        observation: what the agent sees now.
        history: past turns, oldest first; at most the last config.window of them are shown. A caller with a length
            limit drops the oldest ones.
        admissible: actions allowed now, None or empty to leave them out (the compact style never shows them).
        config: style and window.
        turn: actions taken so far, when `history` does not hold all of them; default len(history).
        form: how the reply shall look; its request ends a chat prompt.
    """
    shown = list(history)[len(history) - min(config.window, len(history)) :]
    rules = instructions if config.instructions else ""
    if config.style == "compact":
        return [Message("user", (_compact(rules, observation, shown),))]
    taken = len(history) if turn is None else turn
    blocks = [rules, _past(shown, taken), f"Your current observation is:\n{observation}", *_request(admissible, form)]
    return [Message("user", ("\n\n".join(block for block in blocks if block),))]


def render_followup(observation: str, *, config: PromptConfig) -> Message:
    """Return the user message that continues a growing conversation after the agent's reply."""
    return Message("user", (f"now {observation}" if config.style == "compact" else observation,))


def _compact(rules: str, observation: str, shown: Sequence[PastTurn]) -> str:
    past = [f"past {turn.brief} {turn.action}" for turn in shown]
    return " ".join([*([rules] if rules else []), *past, f"now {observation}"])


def _past(shown: Sequence[PastTurn], taken: int) -> str:
    if not shown:
        return ""
    first = taken - len(shown) + 1
    lines = [
        f"Turn {number}, observation:\n{turn.brief}\nTurn {number}, action: {turn.action}"
        for number, turn in enumerate(shown, start=first)
    ]
    counted = "1 action" if taken == 1 else f"{taken} actions"
    return "\n".join([f"You have taken {counted} so far. The most recent turns were:", *lines])


def _request(admissible: Sequence[str] | None, form: ReplyForm) -> list[str]:
    if CHOICE not in form.request or not admissible:
        return [form.request.replace(CHOICE, "your next action")]
    listed = ", ".join(f'"{action}"' for action in admissible)
    request = form.request.replace(CHOICE, "one of the admissible actions")
    return [f"Your admissible actions are: {listed}.", request]
