"""A lottery played with words: an untrained policy wins now and then, so every method has something to learn from."""

from __future__ import annotations

import zlib

from env_connectors import StopReason, TextStep, register_text_env
from env_connectors.toy.env import GuessEnv

DRAW = "lottery/Draw-v0"


class DrawEnv(GuessEnv):
    """The action's checksum decides: one reply in four wins, the others cost 0.1 to 0.3."""

    def act(self, action: str) -> TextStep:
        """Draw a number from the action."""
        number = zlib.crc32(action.encode()) % 4
        return TextStep(
            observation=f"{number}",
            reward=-0.1 * number if number else 10.0,
            stop=None if number else StopReason.SUCCESS,
            success=number == 0,
            anchor=f"{number}",
        )


register_text_env(DRAW, "draw_env:DrawEnv")
