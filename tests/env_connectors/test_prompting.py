"""Prompt texts, pinned as exact strings: a changed prompt changes every trained policy."""

import pytest

from env_connectors import EnvConfigError, PastTurn, PromptConfig, render_followup, render_prompt

_HISTORY = [
    PastTurn("you 4,3 box 3,3", "left"),
    PastTurn("you 4,2 box 3,2", "up"),
    PastTurn("you 3,2 box 2,2", "left"),
]
_NOW = "walls 1,4 2,4 goal 2,3 you 3,1 box 2,2"


def _prompt(config: PromptConfig, history: list[PastTurn], **changes: object) -> str:
    arguments = {"instructions": "Rules.", "observation": _NOW, "admissible": ["up", "down"], **changes}
    (message,) = render_prompt(history=history, config=config, **arguments)  # type: ignore[arg-type]
    assert message.role == "user"
    assert message.text == "".join(message.parts)
    return message.text


def test_compact_prompt_with_history_shows_the_last_turns_only() -> None:
    assert _prompt(PromptConfig(), _HISTORY) == (
        "past you 4,2 box 3,2 up past you 3,2 box 2,2 left now walls 1,4 2,4 goal 2,3 you 3,1 box 2,2"
    )


@pytest.mark.parametrize(("window", "history"), [(2, []), (0, _HISTORY)])
def test_compact_prompt_without_shown_turns_is_the_observation(window: int, history: list[PastTurn]) -> None:
    assert _prompt(PromptConfig(window=window), history) == f"now {_NOW}"


def test_compact_prompt_with_instructions_puts_them_first() -> None:
    assert _prompt(PromptConfig(instructions=True), []) == f"Rules. now {_NOW}"


def test_chat_prompt_on_first_turn_gives_the_exact_text() -> None:
    assert _prompt(PromptConfig("chat", 2, True), []) == (
        "Rules.\n\n"
        "Your current observation is:\nwalls 1,4 2,4 goal 2,3 you 3,1 box 2,2\n\n"
        'Your admissible actions are: "up", "down".\n\n'
        "It is your turn to act. First think step by step about the situation, inside <think> </think>. "
        "Then give one of the admissible actions inside <action> </action>, and write nothing else."
    )


def test_chat_prompt_with_history_numbers_the_turns() -> None:
    assert _prompt(PromptConfig("chat", 2), _HISTORY, admissible=None) == (
        "You have taken 3 actions so far. The most recent turns were:\n"
        "Turn 2, observation:\nyou 4,2 box 3,2\nTurn 2, action: up\n"
        "Turn 3, observation:\nyou 3,2 box 2,2\nTurn 3, action: left\n\n"
        "Your current observation is:\nwalls 1,4 2,4 goal 2,3 you 3,1 box 2,2\n\n"
        "It is your turn to act. First think step by step about the situation, inside <think> </think>. "
        "Then give your next action inside <action> </action>, and write nothing else."
    )


def test_chat_prompt_with_dropped_history_keeps_the_turn_numbers() -> None:
    full = _prompt(PromptConfig("chat", 1), _HISTORY)
    assert _prompt(PromptConfig("chat", 1), _HISTORY[-1:], turn=3) == full
    assert "Turn 3, action: left" in full


def test_chat_prompt_after_one_action_uses_the_singular() -> None:
    assert "You have taken 1 action so far." in _prompt(PromptConfig("chat"), _HISTORY[:1])


@pytest.mark.parametrize(("style", "text"), [("compact", "now higher"), ("chat", "higher")])
def test_followup_gives_one_user_message(style: str, text: str) -> None:
    message = render_followup("higher", config=PromptConfig(style))
    assert (message.role, message.text) == ("user", text)


@pytest.mark.parametrize(("arguments", "named"), [({"style": "chatty"}, "'chatty'"), ({"window": -1}, "-1")])
def test_prompt_config_with_bad_value_names_it(arguments: dict, named: str) -> None:
    with pytest.raises(EnvConfigError, match=named):
        PromptConfig(**arguments)
