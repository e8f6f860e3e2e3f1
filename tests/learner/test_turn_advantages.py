"""Turns inside the row of a conversation get the advantages that they would have as rows of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arlarena_rllib.learner.batching import build_learner_batch
from arlarena_rllib.learner.scoring import OLD_ENTROPY, OLD_LOGP, OLD_VALUE
from arlarena_rllib.learner.turn_advantages import TURN_NUMBER, turns_of_rows
from arlarena_rllib.objectives import ObjectiveSpec
from arlarena_rllib.trajectory import (
    APPEND,
    WINDOWED,
    StopReason,
    TokenBatch,
    Trajectory,
    TrajectoryGroup,
    Turn,
    build_token_batch,
    turn_anchors,
)

CASES: list[dict[str, Any]] = [
    {"advantage": "gigpo"},
    {"advantage": "gigpo", "anchor_match": "similar", "similarity_threshold": 0.8},
    {"advantage": "hgpo"},
    {"advantage": "gae_turn"},
    {"advantage": "empg"},
]


def _groups(mode: str) -> list[TrajectoryGroup]:
    """Two groups of three conversations of one to four turns, in few states."""
    rng = np.random.default_rng(7)
    groups = []
    for group in range(2):
        members = []
        for member in range(3):
            turns = [_turn(rng, last=False) for _ in range(int(rng.integers(0, 4)))] + [_turn(rng, last=True)]
            stop = StopReason.SUCCESS if turns[-1].reward else StopReason.MAX_TURNS
            members.append(Trajectory("t", group, member, mode=mode, turns=turns, stop_reason=stop))
        groups.append(TrajectoryGroup(group, "t", members))
    return groups


def _turn(rng: np.random.Generator, *, last: bool) -> Turn:
    length = int(rng.integers(1, 5))
    is_valid = bool(rng.random() < 0.8)
    return Turn(
        context_ids=[int(i) for i in rng.integers(5, 50, size=int(rng.integers(1, 4)))],
        response_ids=[int(i) for i in rng.integers(5, 50, size=length)],
        response_logp=[-1.0] * length,
        response_mask=[1] * length,
        weight_versions=[0] * length,
        reply="",
        action="",
        format_valid=is_valid,
        action_valid=is_valid,
        anchor=f"the state number {int(rng.integers(0, 3))}",
        reward=float(rng.integers(0, 2)) if last else 0.1 * float(rng.integers(-1, 2)),
    )


def _with_scores(rows: TokenBatch) -> TokenBatch:
    """Add scores that depend on a token's id alone: equal in both forms of a trajectory."""
    ids = rows["input_ids"].astype(np.float32)
    scores = {OLD_LOGP: -ids / 50, OLD_ENTROPY: ids / 40, OLD_VALUE: ids / 60}
    bootstrap = {"bootstrap_value": (rows["trajectory_id"] / 10).astype(np.float32)}
    return rows | {name: np.where(rows["loss_mask"] > 0, value, 0.0) for name, value in scores.items()} | bootstrap


def _columns(mode: str, names: tuple[str, ...], **choices: Any) -> dict[str, np.ndarray]:
    """Return, per column, the values at the sampled tokens in order of the conversations; all rows stay in the batch."""
    groups, spec = _groups(mode), ObjectiveSpec(**choices)
    rows = _with_scores(build_token_batch(groups, pad_id=0))
    texts = turn_anchors(groups) if "anchor_texts" in spec.needs() else None
    turns = turns_of_rows(groups, rows) if mode == APPEND else None
    batch, _ = build_learner_batch(rows, spec, num_minibatches=1, seed=0, iteration=0, anchor_texts=texts, turns=turns)
    assert TURN_NUMBER not in batch and len(batch["group_id"]) == len(rows["group_id"])
    sampled = batch["loss_mask"] > 0
    return {
        name: (v if v.ndim == 2 else np.broadcast_to(v[:, None], sampled.shape))[sampled]
        for name, v in batch.items()
        if name in names
    }


@pytest.mark.parametrize("choices", CASES, ids=str)
def test_turns_of_a_conversation_weigh_what_they_weigh_as_rows(choices: dict[str, Any]) -> None:
    names = ("advantages", "returns", "value_mask")
    whole, apart = _columns(APPEND, names, **choices), _columns(WINDOWED, names, **choices)
    assert whole.keys() == apart.keys()
    assert len(np.unique(whole["advantages"])) > 3
    for name, values in whole.items():
        np.testing.assert_allclose(values, apart[name], atol=1e-6, err_msg=name)


def test_tokens_of_the_environment_have_no_turn_and_no_advantage() -> None:
    groups = _groups(APPEND)
    rows = build_token_batch(groups, pad_id=0)
    turns = turns_of_rows(groups, rows)
    np.testing.assert_array_equal(turns[TURN_NUMBER] >= 0, rows["loss_mask"] > 0)
    batch, _ = build_learner_batch(
        rows, ObjectiveSpec(advantage="gigpo"), num_minibatches=2, seed=0, iteration=0, turns=turns
    )
    assert np.all(batch["advantages"][batch["loss_mask"] == 0] == 0)
