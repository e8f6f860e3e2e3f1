"""Gold actions over whole panels: what is won is counted, what is not is named and ends nothing."""

from __future__ import annotations

import pytest

from env_connectors import make_text_env
from env_connectors.gold import play_gold
from tune_experiments.cli import main

GUESS = "arlarena/Guess-v0"


def test_tasks_that_gold_does_not_win_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_text_env(GUESS)
    right, empty, wrong = env.tasks().validation[:3]
    gold = env.gold_actions

    def actions(task_id: str) -> list[str]:
        return {right: gold(right), empty: [], wrong: ["no guess"] * 99}[task_id]

    monkeypatch.setattr(env, "gold_actions", actions)
    episodes = list(play_gold(env, [right, empty, "no such task", wrong]))
    assert [episode.problem for episode in episodes[:2]] == ["", "not won: the actions end before the task"]
    assert "no such task" in episodes[2].problem
    assert episodes[3].problem.startswith("not won: ") and episodes[3].turns == env.max_turns


def test_command_counts_and_its_exit_code_follows(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            [
                "envs",
                "gold",
                "arlarena/Sokoban-6x6-1-v0",
                "--split",
                "test",
                "--num-tasks",
                "20",
                "environment.env_config={max_turns: 30}",
            ]
        )
        == 0
    )
    assert "20 of 20 test tasks won" in capsys.readouterr().out
    assert (
        main(
            ["envs", "gold", "arlarena/Sokoban-6x6-1-v0", "--num-tasks", "20", "environment.env_config={max_turns: 1}"]
        )
        == 1
    )
    assert main(["envs", "gold", "arlarena/Sokoban-6x6-1-v0", "--num-tasks", "0"]) == 2


def test_an_environment_is_checked_with_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["envs", "check", "arlarena/Guess-v0", "--episodes", "1"]
    assert main([*command, "environment.env_config={max_turns: 5}"]) == 0
    assert capsys.readouterr().out == "arlarena/Guess-v0: conforms\n"
    assert main([*command, "environment.env_config={max_turn: 5}"]) == 2
    assert "Nearest: 'max_turns'" in capsys.readouterr().err
