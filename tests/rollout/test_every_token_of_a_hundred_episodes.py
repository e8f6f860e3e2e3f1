"""A hundred episodes with a tool, token by token: the engine's ids are trained on, where it returned them, and no others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arlarena_rllib.rollout.agent_loop import EpisodeRunner, EpisodeSpec, RolloutSettings
from arlarena_rllib.rollout.codec import TextCodec
from arlarena_rllib.rollout.env_pool import EnvPool
from arlarena_rllib.serving import EngineSpec, GenerationRequest, GenerationResult, LocalPolicy, connect
from arlarena_rllib.trajectory import APPEND, Trajectory, TrajectoryGroup, build_token_batch
from arlarena_rllib.warmstart.demonstrations import Demonstrator
from env_connectors import make_text_env

EPISODES = 100
MAX_MODEL_LEN, MAX_RESPONSE_TOKENS = 512, 24


@dataclass
class NotedClient:
    """Asks a real engine, or now and then the environment's oracle so that episodes get anywhere; notes all it sees."""

    engine: Any
    oracle: Demonstrator
    rng: np.random.Generator
    seen: list[tuple[list[int], GenerationResult, bool]] = field(default_factory=list)

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        asks_engine = self.rng.random() < 0.4
        result = await (self.engine if asks_engine else self.oracle).generate(request)
        noted = GenerationResult(list(result.token_ids), list(result.logprobs), result.finish_reason, [])
        self.seen.append((list(request.prompt_ids), noted, asks_engine))
        return result


@pytest.fixture(scope="module")
def policy(tiny_model_dir: Path) -> Iterator[LocalPolicy]:
    codec = TextCodec(str(tiny_model_dir))
    spec = EngineSpec("transformers", str(tiny_model_dir), max_model_len=MAX_MODEL_LEN, eos_token_ids=codec.stop_ids)
    started = LocalPolicy.start(spec, app_name="hundred-episodes")
    yield started
    started.stop()


def test_row_holds_what_the_engine_saw_and_said_and_nothing_else_is_trained(
    tiny_model_dir: Path, policy: LocalPolicy
) -> None:
    codec = TextCodec(str(tiny_model_dir))
    played = asyncio.run(_play(codec, policy))
    seen_kinds: dict[str, int] = {}
    for trajectory, seen in played:
        batch = build_token_batch([TrajectoryGroup(0, trajectory.task_id, [trajectory])], pad_id=codec.pad_id)
        assert len(batch["input_ids"]) == 1 and len(seen) == len(trajectory.turns)
        row = batch["input_ids"][0].tolist()
        expected_mask, expected_logp = np.zeros(len(row)), np.zeros(len(row), dtype=np.float32)
        for prompt, result, asked_engine in seen:
            assert row[: len(prompt)] == prompt
            reply = slice(len(prompt), len(prompt) + len(result.token_ids))
            assert row[reply] == result.token_ids
            expected_mask[reply], expected_logp[reply] = 1, result.logprobs
            text = codec.decode(result.token_ids)
            ending = next((e for e in ("</search>", "</answer>") if e in text), result.finish_reason)
            kind = f"{'engine' if asked_engine else 'oracle'} {ending}"
            seen_kinds[kind] = seen_kinds.get(kind, 0) + 1
        assert len(row) == len(seen[-1][0]) + len(seen[-1][1].token_ids)
        np.testing.assert_array_equal(batch["loss_mask"][0], expected_mask)
        np.testing.assert_array_equal(batch["rollout_logp"][0], expected_logp)
    # Replies that a tool answered, final answers, replies that ended their message and replies that were cut off.
    assert seen_kinds["oracle </search>"] > 50 and seen_kinds["oracle </answer>"] > 10
    assert seen_kinds["engine length"] > 50 and sum(seen_kinds.values()) > 2 * EPISODES


async def _play(
    codec: TextCodec, policy: LocalPolicy
) -> list[tuple[Trajectory, list[tuple[list[int], GenerationResult, bool]]]]:
    env = make_text_env("arlarena/SearchQA-v0", observation="compact", hops=2)
    pool = EnvPool(lambda: env, num_threads=1)
    settings = RolloutSettings(
        max_response_tokens=MAX_RESPONSE_TOKENS, max_model_len=MAX_MODEL_LEN, mode=APPEND, prompt_style="compact"
    )
    engine = connect(policy.client_spec)
    played = []
    try:
        for number, task in enumerate(env.tasks().train[:EPISODES]):
            client = NotedClient(engine, Demonstrator(env, codec), np.random.default_rng(number))
            trajectory = await EpisodeRunner(codec, pool, client, settings).run(EpisodeSpec(0, 0, task, number))
            assert not trajectory.error
            played.append((trajectory, client.seen))
    finally:
        await engine.close()
        pool.close()
    assert len(played) == EPISODES
    return played
