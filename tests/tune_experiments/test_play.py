"""`arlarena play` with its actions from a pipe."""

from __future__ import annotations

import io
import os
import re

import pytest

from tune_experiments.cli import main

GUESS = "arlarena/Guess-v0"


def _played(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lines: str, *arguments: str
) -> tuple[int, str]:
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    code = main(["play", *arguments])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def test_episode_to_its_end_shows_actions_reward_flags_and_info(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "?\n9\nsomething\n\n<think>now</think><action>5</action>\n6\n"
    code, text = _played(monkeypatch, capsys, lines, GUESS, "--task", "guess/3-10/5")
    assert code == 0
    assert "guess a number from 3 to 10\nactions: 3, 4, 5, 6, 7, 8, 9, 10, give up" in text
    assert "An action per line" in text
    assert "> 9\n  = 9\n  reward 0  return 0  format_valid yes  action_valid yes\n  guesses 1" in text
    assert "  = something\n  reward 0  return 0  format_valid yes  action_valid no" in text
    assert "  = 5\n  reward 10  return 10  format_valid yes  action_valid yes" in text
    assert text.endswith("ended with success after 3 turns, return 10\n")


def test_reply_out_of_form_is_played_as_a_policys_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text = _played(monkeypatch, capsys, "<action>5</action>\n", GUESS, "--task", "guess/3-10/5")
    assert "  = 5\n  reward 10  return 10  format_valid no  action_valid no" in text


def test_end_of_the_lines_leaves_with_code_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = _played(monkeypatch, capsys, "3\n", GUESS, "--task", "guess/3-10/5")
    assert code == 0 and text.endswith("left after 1 turns, return 0\n")


def test_interrupt_leaves_with_code_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Interrupted(io.StringIO):
        def readline(self, *_: object) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", Interrupted())
    assert main(["play", GUESS]) == 130
    assert capsys.readouterr().err == "stopped\n"


def test_bytes_that_are_no_text_and_letters_that_a_terminal_has_not_are_shown_as_signs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xc3(\ncaf\xc3\xa9\n"), "utf-8"))
    monkeypatch.setattr("sys.stdout", out := io.TextIOWrapper(shown, "ascii"))
    assert main(["play", GUESS]) == 0
    out.flush()
    text = shown.getvalue().decode("ascii")
    assert "> ??(\n" in text and "> caf?\n" in text and text.endswith("left after 2 turns, return 0\n")


def test_a_reader_who_goes_away_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.setattr("sys.stdin", io.StringIO("3\n"))
    with os.fdopen(writing, "w") as out:
        monkeypatch.setattr("sys.stdout", out)
        assert main(["play", GUESS]) == 0


def test_oracle_answers_when_asked_for_and_only_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task = (GUESS, "--task", "guess/3-10/4")
    _, text = _played(monkeypatch, capsys, "!\n6\n!\n9\n!\n", *task, "--oracle")
    assert "oracle: 6   (from 3 to 10)" in text and "oracle: 4   (from 3 to 5)" in text
    assert "its own way from the start only, and you left it" in text
    _, text = _played(monkeypatch, capsys, "!\n", *task)
    assert "with --oracle only" in text and "oracle: 6" not in text


def test_action_of_several_lines_is_shown_as_the_line_that_plays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    math = ("arlarena/TIRMath-v0", "environment.env_config={n_train: 4, n_validation: 1, n_test: 1}", "--oracle")
    _, text = _played(monkeypatch, capsys, "!\n", *math)
    assert "! for the oracle's next action" in text
    shown = re.search(r"oracle: (```py\\n.+\\n```)   ", text)
    assert shown and f"actions: {shown[1]}, " in text


def test_oracle_that_plans_knows_the_way_after_a_detour(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("arlarena/Sokoban-6x6-1-v0", "environment.env_config={observation: grid}", "--split", "test")
    _, text = _played(monkeypatch, capsys, "up\n!\n", *arguments, "--oracle")
    assert "# # # # # #" in text and "\n  moved " in text
    assert "oracle: " in text or "no way to success" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["webshop"], "environment.env='webshop' is not registered: "),
        (["CartPole-v1"], "is a CartPoleEnv, not a text environment"),
        ([GUESS, "--task", "guess/1"], "--task='guess/1': task_id='guess/1' is not known. There are 64 tasks"),
        ([GUESS, "environment.env_config={max_turn: 3}"], "Nearest: 'max_turns'"),
        ([GUESS, "training.lr=3"], "training.lr (override 'training.lr=3') is not read here"),
        ([GUESS, "environment.env_config={n_test: 0}", "--split", "test"], "--split=test: "),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, text = _played(monkeypatch, capsys, "", *arguments)
    (line,) = text.splitlines()
    assert code == 2 and line.startswith("configuration error: ") and message in line


def test_observation_cannot_command_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text = _played(monkeypatch, capsys, "\x1b[31m\n", GUESS)
    assert "\x1b" not in text and "[31m" in text
