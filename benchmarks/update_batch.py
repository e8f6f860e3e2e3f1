"""A learner batch like one of the quick start's iterations, made without an engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from arlarena_rllib.config import ARLArenaConfig
from arlarena_rllib.learner.batching import build_learner_batch
from arlarena_rllib.rollout.codec import TextCodec
from arlarena_rllib.rollout.envs import bare_text_env
from arlarena_rllib.trajectory import TokenBatch, TrajectoryGroup, build_token_batch
from arlarena_rllib.warmstart import demonstrations

SLIP = 0.35
"""Share of wrong moves of the player: episodes and prompts get the lengths that they have at the start of training."""


def clumsy_groups(config: ARLArenaConfig, model: Path, *, groups: int, members: int) -> list[TrajectoryGroup]:
    """Return ``groups`` tasks with ``members`` different episodes each, played clumsily by the environment's plan."""
    codec = TextCodec(str(model))
    tasks, _ = bare_text_env(config.env, config.env_config).tasks().draw("train", 0, groups, int(config.seed or 0))
    by_task: dict[str, TrajectoryGroup] = {}
    for member in range(members):
        for group in demonstrations(config, tasks, codec, slip=SLIP, seed=member):
            found = by_task.setdefault(group.task_id, TrajectoryGroup(len(by_task), group.task_id, []))
            found.trajectories.append(replace(group.trajectories[0], group_id=found.group_id, member=member))
    return list(by_task.values())


def learner_batch(config: ARLArenaConfig, model: Path, *, groups: int, members: int) -> TokenBatch:
    """Return the rows of ``clumsy_groups`` as the learner gets them: advantages, weights and minibatches included."""
    found = clumsy_groups(config, model, groups=groups, members=members)
    batch, _ = build_learner_batch(
        build_token_batch(found, pad_id=TextCodec(str(model)).pad_id),
        config.objective_spec(),
        num_minibatches=config.num_minibatches,
        seed=int(config.seed or 0),
        iteration=0,
    )
    return batch
