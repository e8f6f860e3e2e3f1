"""Environments that misbehave and clients that say what they are told, for tests of the episode loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from arlarena_rllib.errors import ServingError
from arlarena_rllib.rollout.agent_loop import EpisodeRunner, EpisodeSpec, RolloutSettings
from arlarena_rllib.rollout.codec import TextCodec
from arlarena_rllib.rollout.env_pool import EnvPool
from arlarena_rllib.serving import GenerationRequest, GenerationResult
from arlarena_rllib.trajectory import Trajectory
from env_connectors import ParsedReply, ReplyForm, make_text_env, register_text_env
from env_connectors.toy.env import GuessEnv

SOKOBAN, GUESS = "arlarena/Sokoban-6x6-1-v0", "arlarena/Guess-v0"


class ScriptedClient:
    """Answers every request with the next of ``replies`` (token ids), the last one for ever; keeps the requests."""

    def __init__(self, replies: Sequence[list[int] | Exception]) -> None:
        self.replies = list(replies)
        self.requests: list[GenerationRequest] = []

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        self.requests.append(request)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        return GenerationResult(list(reply), [-0.1] * len(reply), "stop", [2] * len(reply))


class CallingGuessEnv(GuessEnv):
    """Guess the number by calls whose answers stand in the caller's own message."""

    reply_form = ReplyForm(
        name="call",
        parse=lambda text: ParsedReply(text.removesuffix("</call>").rpartition("<call>")[2], "", "</call>" in text),
        render=lambda _, action: f"<call>{action}</call>",
        stop=("</call>",),
        continues=True,
    )


CALLING = "arlarena_tests/CallingGuess-v0"
register_text_env(CALLING, "rollout_cases:CallingGuessEnv")


class BrokenEnv:
    """A text environment whose ``step`` raises or hangs as often as told, then behaves."""

    failures: ClassVar[list[Any]] = []

    def __init__(self, env: Any) -> None:
        self._env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def step(self, action: str) -> Any:
        if BrokenEnv.failures:
            failure = BrokenEnv.failures.pop(0)
            if isinstance(failure, float):
                time.sleep(failure)
            else:
                raise failure
        return self._env.step(action)


def play(
    model_dir: Path, client: Any, *, env: str = SOKOBAN, wrap: Any = None, task: str | None = None, **settings: Any
) -> Trajectory:
    """Return one episode."""
    codec = TextCodec(str(model_dir))
    made = make_text_env(env)
    task = task or made.tasks().train[0]
    pool = EnvPool(lambda: wrap(make_text_env(env)) if wrap else make_text_env(env))
    chosen = RolloutSettings(**{"prompt_style": "compact", "max_response_tokens": 16, **settings})
    runner = EpisodeRunner(codec, pool, client, chosen)
    try:
        return asyncio.run(runner.run(EpisodeSpec(0, 0, task, 5)))
    finally:
        pool.close()


def ids_of(model_dir: Path, text: str, *, end: bool = True) -> list[int]:
    """Return the token ids of ``text``, with the end token."""
    codec = TextCodec(str(model_dir))
    return codec.tokenizer.encode(text, add_special_tokens=False) + ([codec.tokenizer.eos_token_id] if end else [])


def engine_error() -> ServingError:
    """Return what the client raises when no replica answers."""
    return ServingError("no replica answered")
