"""Turns the rows of an iteration into what the learners train on: advantages, denominators, minibatches, shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from torch import Tensor

from arlarena_rllib.learner.packing import assign_minibatches, shard_rows
from arlarena_rllib.learner.scoring import OLD_ENTROPY, OLD_LOGP, OLD_VALUE, REF_LOGP
from arlarena_rllib.learner.turn_advantages import joined, split_by_turn
from arlarena_rllib.objectives import (
    AdvantageResult,
    AdvantageRows,
    ObjectiveSpec,
    compute_advantages,
    global_denominators_from_counts,
    rows_in_loss,
)
from arlarena_rllib.trajectory import TokenBatch, TrajectoryGroup, build_token_batch, final_state_batch


def scored_rows(
    groups: Sequence[TrajectoryGroup], spec: ObjectiveSpec, score: Callable[[TokenBatch], TokenBatch], *, pad_id: int
) -> TokenBatch:
    """Return the rows of ``groups``, with the learner's scores if the advantages need them.

    With a critic, ``bootstrap_value`` float32 [B] is the value of the state at which a limit cut the row's episode off; 0
    for the others, and where not even the next prompt fitted.

    Args:
        groups: The iteration's groups.
        spec: The point of the method grid.
        score: Returns `RowScorer.scores` of some rows.
        pad_id: Token id for padding.
    """
    rows = build_token_batch(groups, pad_id=pad_id)
    if not spec.scores_before_advantages:
        return rows
    rows |= score(rows)
    if "values" in spec.needs():
        value_N = np.zeros(int(rows["trajectory_id"].max()) + 1, dtype=np.float32)
        final, numbers = final_state_batch(groups, pad_id=pad_id)
        if len(numbers):
            value_N[numbers] = score(final)[OLD_VALUE][:, -1]
        rows["bootstrap_value"] = value_N[rows["trajectory_id"]]
    return rows


def build_learner_batch(
    batch: TokenBatch,
    spec: ObjectiveSpec,
    *,
    num_minibatches: int,
    seed: int,
    iteration: int,
    anchor_texts: Sequence[str] | None = None,
    turns: TokenBatch | None = None,
) -> tuple[TokenBatch, dict[str, float]]:
    """Return the rows to train on with ``advantages``, ``minibatch``, ``loss_weight`` and the critic's columns, and metrics.

    Statistics of groups and anchors and the denominators of each minibatch are computed here, over all rows, so that
    no later split can change them. A row that stays out of the loss counts in the statistics and is then left out.

    Args:
        batch: All rows of the iteration, with the learner's scores and ``bootstrap_value`` [B] if the advantage needs
            them.
        spec: The point of the method grid.
        num_minibatches: Optimiser steps per epoch.
        seed, iteration: Decide which rows make up a minibatch.
        anchor_texts: The state of each turn, if states are compared by similarity.
        turns: Of rows that hold several turns, if the advantage is one of turns: `turns_of_rows`.
    """
    whole = batch if turns is None else split_by_turn(batch, turns)
    result = compute_advantages(_advantage_rows(whole, anchor_texts), spec)
    if turns is not None:
        result = joined(result, turns)
    selection = rows_in_loss(
        spec,
        advantages=result.advantages,
        mask_B_T=torch.from_numpy(batch["loss_mask"]),
        trajectory_id_B=torch.from_numpy(batch["trajectory_id"]),
        action_valid_B=torch.from_numpy(batch["action_valid"]),
        cut_B=torch.from_numpy(batch["length_cut"]),
    )
    batch = batch | _advantage_columns(result)
    kept = {name: column[selection.keep_B.numpy()] for name, column in batch.items()}
    num_rows = len(kept["trajectory_id"])
    units = kept["trajectory_id"] if "trajectories" in spec.needs() else np.arange(num_rows)
    kept["minibatch"] = assign_minibatches(units, num_minibatches, seed=seed, iteration=iteration)
    kept["loss_weight"] = _weights(kept, "loss_mask", spec)
    if "value_mask" in kept:
        kept["value_weight"] = _weights(kept, "value_mask", spec)
    metrics = {f"advantage_{name}": float(count) for name, count in result.counts.items()}
    metrics |= {f"rows_{name}": float(count) for name, count in selection.counts.items()}
    return kept, metrics | _size_metrics(kept)


def _advantage_rows(batch: TokenBatch, anchor_texts: Sequence[str] | None) -> AdvantageRows:
    def vector(name: str) -> Tensor:
        return torch.from_numpy(batch[name])

    def optional(name: str) -> Tensor | None:
        return torch.from_numpy(batch[name]) if name in batch else None

    return AdvantageRows(
        group_id_B=vector("group_id"),
        trajectory_id_B=vector("trajectory_id"),
        turn_index_B=vector("turn_index"),
        step_reward_B=vector("step_reward").double(),
        episode_return_B=vector("episode_return").double(),
        format_valid_B=vector("format_valid"),
        action_valid_B=vector("action_valid"),
        anchor_id_B=vector("anchor_id"),
        anchor_text_B=None if anchor_texts is None else tuple(anchor_texts),
        mask_B_T=vector("loss_mask").bool(),
        old_logp_B_T=optional(OLD_LOGP),
        ref_logp_B_T=optional(REF_LOGP),
        entropy_B_T=optional(OLD_ENTROPY),
        value_B_T=optional(OLD_VALUE),
        truncated_B=vector("truncated"),
        bootstrap_value_B=optional("bootstrap_value"),
    )


def _advantage_columns(result: AdvantageResult) -> TokenBatch:
    columns = {
        "advantages": result.advantages,
        **{k: v for k, v in result.parts.items() if k in ("returns", "value_mask")},
    }
    return {name: value.numpy().astype(np.float32) for name, value in columns.items()}


def _weights(batch: TokenBatch, mask: str, spec: ObjectiveSpec) -> np.ndarray:
    """Return float32 [B]: each row's weight in the loss of its minibatch, from the counts of its ``mask``."""
    weights = np.zeros(len(batch["minibatch"]), dtype=np.float32)
    tokens = batch[mask].sum(axis=1)
    for index in np.unique(batch["minibatch"]):
        rows = np.flatnonzero(batch["minibatch"] == index)
        denominators = global_denominators_from_counts(
            torch.from_numpy(tokens[rows]), torch.from_numpy(batch["trajectory_id"][rows]), spec
        )
        weights[rows] = denominators.weight_B.numpy()
    return weights


def _size_metrics(batch: TokenBatch) -> dict[str, float]:
    metrics = {"num_rows": float(len(batch["minibatch"])), "num_loss_tokens": float(batch["loss_mask"].sum())}
    if len(batch["minibatch"]):
        advantages = batch["advantages"]
        advantages = advantages if advantages.ndim == 1 else advantages[batch["loss_mask"] > 0]
        metrics |= {
            "padding_frac": 1.0 - float(batch["attention_mask"].mean()),
            "advantage_abs_mean": float(np.abs(advantages).mean()),
            "advantage_zero_frac": float((advantages == 0).mean()),
        }
    return metrics


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
