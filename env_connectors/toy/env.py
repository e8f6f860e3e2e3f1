"""Guess the number: the smallest text environment, with tool-like answers.

Observation   'guess a number from 3 to 10', then 'higher' or 'lower' (or 'no such number' for anything else).
Action        a number of the range, or 'give up'.
Start         range and secret are the task.
Reward/turn   10 on the right guess, else 0.
Ends          SUCCESS, FAILURE after 'give up', or truncated after max_turns.
Info          guesses (valid ones so far).
Tasks         64: ranges of eight numbers from 0-7 up to 7-14, each with its eight secrets, e.g. 'guess/3-10/5'.
Needs         nothing. Arguments: see GuessEnv.__init__.
Versions      v0 first.
"""

from __future__ import annotations

from functools import lru_cache

from env_connectors.task_panel import Task, TaskSet
from env_connectors.text_env import StopReason, TextEnv, TextStep

_RANGE = 8
_GIVE_UP = "give up"


class GuessEnv(TextEnv):
    """Guess a secret number from the answers 'higher' and 'lower'; see the head of this file."""

    instructions = (
        "Find the secret number. Each guess is answered with higher (the secret is higher), lower, or correct. "
        "Answer with one number of the range, or give up."
    )

    def __init__(
        self,
        *,
        max_turns: int = 4,
        panel_seed: int = 0,
        n_validation: int = 8,
        n_test: int = 8,
        render_mode: str | None = None,
    ) -> None:
        """Build the task list.

        Args:
            max_turns: guesses allowed; 4 always suffice for halving the range.
            panel_seed: decides which tasks are held out.
            n_validation: tasks held out for validation.
            n_test: tasks held out for the test.
            render_mode: None or 'ansi'.

        Raises:
            PanelError: the held-out splits leave no task to train on.
        """
        super().__init__(_task_set(panel_seed, n_validation, n_test), max_turns=max_turns, render_mode=render_mode)
        self._low = self._high = self._secret = 0
        self._answers: list[str] = []

    def begin(self, task: Task) -> TextStep:
        """Name the range."""
        self._low, self._high, self._secret = (task.content[key] for key in ("low", "high", "secret"))
        self._answers = []
        return self._step(f"guess a number from {self._low} to {self._high}")

    def act(self, action: str) -> TextStep:
        """Answer one guess."""
        word = action.strip().lower()
        if word == _GIVE_UP:
            return self._step(f"it was {self._secret}", stop=StopReason.FAILURE)
        if word not in self._numbers():
            return self._step("no such number", action_valid=False)
        guess = int(word)
        answer = "correct" if guess == self._secret else "higher" if guess < self._secret else "lower"
        self._answers.append(f"{guess} {answer}")
        return self._step(answer, stop=StopReason.SUCCESS if answer == "correct" else None)

    def gold(self, task: Task) -> list[str]:
        """Return the guesses of halving the range, which an agent can find without knowing the secret."""
        return [str((low + high) // 2) for low, high in _halving(task)]

    def explain(self, task: Task, actions: list[str]) -> list[str]:
        """Return what is still possible before each guess, e.g. 'from 3 to 10'."""
        return [f"from {low} to {high}" for low, high in _halving(task)]

    def admissible(self) -> list[str]:
        """Return the numbers of the range and 'give up'."""
        return [*self._numbers(), _GIVE_UP]

    def _numbers(self) -> list[str]:
        return [str(number) for number in range(self._low, self._high + 1)]

    def _step(self, observation: str, action_valid: bool = True, stop: StopReason | None = None) -> TextStep:
        is_solved = stop is StopReason.SUCCESS
        return TextStep(
            observation=observation,
            reward=10.0 if is_solved else 0.0,
            action_valid=action_valid,
            stop=stop,
            success=is_solved,
            anchor=", ".join([f"{self._low}-{self._high}", *self._answers]),
            info={"guesses": len(self._answers)},
        )


def _halving(task: Task) -> list[tuple[int, int]]:
    """Return the possible range before each guess of a search that always guesses the middle."""
    low, high, secret = (task.content[key] for key in ("low", "high", "secret"))
    ranges = [(low, high)]
    while (middle := (low + high) // 2) != secret:
        low, high = (middle + 1, high) if middle < secret else (low, middle - 1)
        ranges.append((low, high))
    return ranges


@lru_cache(maxsize=8)
def _task_set(seed: int, n_validation: int, n_test: int) -> TaskSet:
    contents = [
        {"low": low, "high": low + _RANGE - 1, "secret": low + offset}
        for low in range(_RANGE)
        for offset in range(_RANGE)
    ]
    tasks = [Task(f"guess/{c['low']}-{c['high']}/{c['secret']}", c) for c in contents]
    return TaskSet.split(tasks, seed=seed, n_validation=n_validation, n_test=n_test)
