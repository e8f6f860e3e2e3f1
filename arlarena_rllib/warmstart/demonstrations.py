"""Where demonstrations come from: an environment's gold actions, or the policy's own successful episodes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from arlarena_rllib.errors import RolloutError
from arlarena_rllib.rollout.agent_loop import EpisodeRunner, EpisodeSpec
from arlarena_rllib.rollout.codec import TextCodec
from arlarena_rllib.rollout.env_pool import EnvPool
from arlarena_rllib.rollout.envs import bare_text_env, make_text_env
from arlarena_rllib.serving import GenerationRequest, GenerationResult
from arlarena_rllib.trajectory import Trajectory, TrajectoryGroup
from env_connectors.parsing import render_reply

if TYPE_CHECKING:
    from arlarena_rllib.config import ARLArenaConfig


class _GoldClient:
    """Answers like an engine, with one written reply after the other."""

    def __init__(self, codec: TextCodec, replies: Sequence[str]) -> None:
        self._codec = codec
        self._replies = list(replies)

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        text = self._replies.pop(0)
        ids = [*self._codec.tokenizer.encode(text, add_special_tokens=False), self._codec.tokenizer.eos_token_id]
        return GenerationResult(ids, [0.0] * len(ids), "stop", [0] * len(ids))


def gold_demonstrations(config: ARLArenaConfig, task_ids: Sequence[str], codec: TextCodec) -> list[TrajectoryGroup]:
    """Return the gold episode of each task, prompted exactly as the policy will be.

    Raises:
        RolloutError: a gold episode does not end in success, so it demonstrates nothing.
    """
    env = bare_text_env(config.env, config.env_config)
    replies = {
        task: [render_reply(t, a) for t, a in zip(env.gold_thoughts(task), env.gold_actions(task), strict=True)]
        for task in task_ids
    }
    trajectories = asyncio.run(_play_gold(config, replies, codec))
    for trajectory in trajectories:
        if not trajectory.success:
            raise RolloutError(
                f"the gold actions of task {trajectory.task_id!r} end with {trajectory.stop_reason.value} "
                f"{trajectory.error}, not with success. Run `arlarena envs check {config.env}`."
            )
    return [TrajectoryGroup(t.group_id, t.task_id, [t]) for t in trajectories]


async def _play_gold(config: ARLArenaConfig, replies: dict[str, list[str]], codec: TextCodec) -> list[Trajectory]:
    pool = EnvPool(partial(make_text_env, config.env, config.env_config))
    settings = config.rollout_settings()
    runs = [
        EpisodeRunner(codec, pool, _GoldClient(codec, texts), settings).run(EpisodeSpec(number, 0, task, number))
        for number, (task, texts) in enumerate(replies.items())
    ]
    try:
        return list(await asyncio.gather(*runs))
    finally:
        pool.close()


def keep_successes(trajectories: Sequence[Trajectory], *, most_per_task: int = 1) -> list[TrajectoryGroup]:
    """Return the successful, always well-formed episodes as demonstrations (rejection fine-tuning, RFT).

    Args:
        trajectories: Episodes that the policy itself played.
        most_per_task: Upper bound per task, first come, so that easy tasks do not crowd out the others.
    """
    kept: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        clean = trajectory.success and all(turn.format_valid for turn in trajectory.turns)
        if clean and len(kept.setdefault(trajectory.task_id, [])) < most_per_task:
            kept[trajectory.task_id].append(trajectory)
    return [TrajectoryGroup(i, task, found) for i, (task, found) in enumerate(kept.items()) if found]
