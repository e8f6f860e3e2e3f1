"""An environment of which no episode ever starts; its task list works."""

from __future__ import annotations

from env_connectors import Task, TextStep, register_text_env
from env_connectors.toy.env import GuessEnv


class BrokenGuessEnv(GuessEnv):
    """Guess the number, without a number."""

    def begin(self, task: Task) -> TextStep:
        """Fail, as an environment does whose server is down."""
        raise ConnectionError("the guessing server is down")


register_text_env("faulty/Guess-v0", "faulty_env:BrokenGuessEnv")
