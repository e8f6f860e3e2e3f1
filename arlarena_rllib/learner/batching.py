"""Turns groups of trajectories into what the learners train on: advantages, denominators, minibatches, shards."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch

from arlarena_rllib.learner.packing import assign_minibatches, shard_rows
from arlarena_rllib.objectives import AdvantageRows, ObjectiveSpec, compute_advantages, global_denominators_from_counts
from arlarena_rllib.trajectory import TokenBatch, TrajectoryGroup, build_token_batch


def build_learner_batch(
    groups: Sequence[TrajectoryGroup],
    spec: ObjectiveSpec,
    *,
    pad_id: int,
    num_minibatches: int,
    seed: int,
    iteration: int,
) -> tuple[TokenBatch, dict[str, float]]:
    """Return the rows of ``groups`` with ``advantages``, ``loss_weight`` and ``minibatch`` columns, and metrics.

    Statistics of groups and anchors and the denominators of each minibatch are computed here, over all rows, so that
    no later split can change them.
    """
    batch = build_token_batch(groups, pad_id=pad_id)
    rows = {name: torch.from_numpy(batch[name]) for name in batch if batch[name].ndim == 1}
    result = compute_advantages(
        AdvantageRows(
            group_id_B=rows["group_id"],
            trajectory_id_B=rows["trajectory_id"],
            turn_index_B=rows["turn_index"],
            step_reward_B=rows["step_reward"].double(),
            episode_return_B=rows["episode_return"].double(),
            format_valid_B=rows["format_valid"],
            action_valid_B=rows["action_valid"],
            anchor_id_B=rows["anchor_id"],
        ),
        spec,
    )
    batch["advantages"] = result.advantages_B.numpy().astype(np.float32)
    num_rows = len(batch["advantages"])
    batch["minibatch"] = assign_minibatches(num_rows, num_minibatches, seed=seed, iteration=iteration)
    batch["loss_weight"] = _loss_weights(batch, spec)
    metrics = {f"advantage_{name}": float(count) for name, count in result.counts.items()}
    metrics.update(
        num_rows=float(num_rows),
        num_loss_tokens=float(batch["loss_mask"].sum()),
        padding_frac=1.0 - float(batch["attention_mask"].mean()),
        advantage_abs_mean=float(np.abs(batch["advantages"]).mean()),
        advantage_zero_frac=float((batch["advantages"] == 0).mean()),
    )
    return batch, metrics


def _loss_weights(batch: TokenBatch, spec: ObjectiveSpec) -> np.ndarray:
    weights = np.zeros(len(batch["minibatch"]), dtype=np.float32)
    tokens = batch["loss_mask"].sum(axis=1)
    for index in np.unique(batch["minibatch"]):
        rows = np.flatnonzero(batch["minibatch"] == index)
        denominators = global_denominators_from_counts(
            torch.from_numpy(tokens[rows]), torch.from_numpy(batch["trajectory_id"][rows]), spec
        )
        weights[rows] = denominators.weight_B.numpy()
    return weights


def learner_shards(batch: TokenBatch, num_shards: int) -> list[MultiAgentBatch]:
    """Return one RLlib batch per learner; each minibatch is spread over all of them by tokens."""
    lengths = batch["attention_mask"].sum(axis=1)
    return [
        MultiAgentBatch(
            {DEFAULT_MODULE_ID: SampleBatch({name: column[rows] for name, column in batch.items()})},
            env_steps=len(rows),
        )
        for rows in shard_rows(lengths, batch["minibatch"], num_shards)
    ]
