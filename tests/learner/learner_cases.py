"""A real LearnerGroup on a fixed batch of made-up trajectories, for tests that compare ways to split it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.learner_group import LearnerGroup
from ray.rllib.env import INPUT_ENV_SPACES

from arlarena_rllib import ARLArenaConfig
from arlarena_rllib.learner.batching import build_learner_batch, scored_rows
from arlarena_rllib.learner.link import LearnerLink
from arlarena_rllib.trajectory import TokenBatch, Trajectory, TrajectoryGroup, Turn

ENV = "arlarena/Sokoban-6x6-1-v0"


def make_groups(seed: int = 0, *, groups: int = 4, members: int = 3, vocabulary: int = 200) -> list[TrajectoryGroup]:
    """Return groups whose returns, lengths and anchors differ, with invalid turns among them."""
    rng = np.random.default_rng(seed)
    made = []
    for group in range(groups):
        trajectories = []
        for member in range(members):
            turns = []
            for _ in range(int(rng.integers(1, 4))):
                size = int(rng.integers(2, 6))
                turns.append(
                    Turn(
                        context_ids=rng.integers(5, vocabulary, int(rng.integers(4, 20))).tolist(),
                        response_ids=rng.integers(5, vocabulary, size).tolist(),
                        response_logp=(-rng.random(size) * 3).tolist(),
                        response_mask=[1] * size,
                        weight_versions=[0] * size,
                        reply="",
                        action="up",
                        format_valid=bool(rng.random() < 0.8),
                        action_valid=bool(rng.random() < 0.8),
                        anchor=f"state {int(rng.integers(0, 3))}",
                        reward=float(rng.normal()),
                    )
                )
            trajectories.append(Trajectory("t", group, member, turns=turns, success=bool(rng.random() < 0.5)))
        made.append(TrajectoryGroup(group, f"task {group}", trajectories))
    return made


def build_group(model_dir: Path, *, num_learners: int = 0, **training: Any) -> tuple[LearnerGroup, ARLArenaConfig]:
    """Return learners of the policy in ``model_dir``, by default on SAMPO with 4 minibatches, and their configuration."""
    config = (
        ARLArenaConfig()
        .environment(ENV)
        .policy(model_path=str(model_dir))
        .learners(num_learners=num_learners)
        .training(**{"method": "sampo", "lr": 1e-4, "num_minibatches": 4, **training})
    )
    spaces = (gymnasium.spaces.Discrete(1), gymnasium.spaces.Discrete(1))
    spec = config.get_multi_rl_module_spec(spaces={INPUT_ENV_SPACES: spaces, DEFAULT_MODULE_ID: spaces})
    return config.build_learner_group(rl_module_spec=spec), config


def training_batch(config: ARLArenaConfig, link: LearnerLink, *, update: int = 0, pad_id: int = 0) -> TokenBatch:
    """Return the made-up trajectories of an update as the learners get them."""
    spec = config.objective_spec()
    rows = scored_rows(make_groups(update), spec, link.scores, pad_id=pad_id)
    return build_learner_batch(rows, spec, num_minibatches=config.num_minibatches, seed=1, iteration=update)[0]


def metrics_of(answer: Any) -> dict[str, float]:
    """Return the metrics in the (first) learner's answer to an update."""
    first = answer[0] if isinstance(answer, list) else answer
    return {key: _value(value) for key, value in first[DEFAULT_MODULE_ID].items()}


def train_steps(
    model_dir: Path, *, num_learners: int = 0, updates: int = 1, pad_id: int = 0, **training: Any
) -> tuple[dict, list[Any]]:
    """Return the weights after ``updates`` updates of 4 minibatches each, and the metrics of each update."""
    group, config = build_group(model_dir, num_learners=num_learners, **training)
    link = LearnerLink(group, num_learners)
    try:
        results = [
            metrics_of(link.update(training_batch(config, link, update=n, pad_id=pad_id), {})) for n in range(updates)
        ]
        state = group.get_state(components="learner/rl_module")["learner"]["rl_module"][DEFAULT_MODULE_ID]
        return {name: np.array(value) for name, value in state.items()}, results
    finally:
        group.shutdown()


def _value(stats: Any) -> float:
    peeked = stats.peek() if hasattr(stats, "peek") else stats
    return float(np.asarray(peeked).reshape(-1)[-1]) if np.asarray(peeked).size else float("nan")


def largest_difference(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """Return the largest absolute difference of two sets of weights."""
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)
