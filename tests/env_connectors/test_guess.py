"""Guess the number: answers, ends, and the halving search behind its gold actions."""

import pytest

from env_connectors import PanelError, make_text_env
from env_connectors.task_panel import SPLITS


def _played(task_id: str, *actions: str) -> list[tuple]:
    env = make_text_env("arlarena/Guess-v0")
    env.reset(options={"task_id": task_id})
    return [env.step(action) for action in actions]


def test_first_observation_names_the_range() -> None:
    env = make_text_env("arlarena/Guess-v0")
    observation, info = env.reset(options={"task_id": "guess/3-10/5"})
    assert observation == "guess a number from 3 to 10"
    assert info["admissible"] == ["3", "4", "5", "6", "7", "8", "9", "10", "give up"]


def test_guesses_are_answered_and_the_right_one_is_rewarded() -> None:
    steps = _played("guess/3-10/5", "8", " 4 ", "5")
    assert [(step[0], step[1], step[2]) for step in steps] == [
        ("lower", 0.0, False),
        ("higher", 0.0, False),
        ("correct", 10.0, True),
    ]
    assert steps[-1][4]["stop_reason"] == "success"
    assert steps[-1][4]["guesses"] == 3


def test_give_up_is_a_failure() -> None:
    ((observation, reward, terminated, _, info),) = _played("guess/3-10/5", "Give up")
    assert (observation, reward, terminated, info["stop_reason"]) == ("it was 5", 0.0, True, "failure")


def test_four_wrong_guesses_use_up_the_turns() -> None:
    steps = _played("guess/3-10/5", "3", "3", "3", "3")
    assert [step[3] for step in steps] == [False, False, False, True]


@pytest.mark.parametrize("action", ["11", "2", "-5", "five", "5.0", "", "\u0665"])
def test_no_number_of_the_range_is_invalid(action: str) -> None:
    ((observation, _, _, _, info),) = _played("guess/3-10/5", action)
    assert (observation, info["action_valid"], info["guesses"]) == ("no such number", False, 0)


def test_gold_on_every_task_succeeds_within_four_guesses() -> None:
    env = make_text_env("arlarena/Guess-v0")
    ids = [task_id for name in SPLITS for task_id in env.tasks().split(name)]
    assert len(ids) == 64
    for task_id in ids:
        *_, last = _played(task_id, *env.gold_actions(task_id))
        assert last[4]["success"]


def test_gold_thoughts_narrow_the_range() -> None:
    env = make_text_env("arlarena/Guess-v0")
    assert env.gold_actions("guess/3-10/5") == ["6", "4", "5"]
    assert env.gold_thoughts("guess/3-10/5") == ["from 3 to 10", "from 3 to 5", "from 5 to 5"]


def test_panel_is_pinned() -> None:
    panel = make_text_env("arlarena/Guess-v0").tasks()
    assert ([len(panel.split(name)) for name in SPLITS], panel.panel_hash) == ([48, 8, 8], "6ba0e3975225e6cc")


def test_panels_without_training_tasks_are_refused() -> None:
    with pytest.raises(PanelError, match="n_test=60"):
        make_text_env("arlarena/Guess-v0", n_test=60)
