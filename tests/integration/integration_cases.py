"""Small real algorithms on the transformers engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from arlarena_rllib import ARLArena, ARLArenaConfig

SOKOBAN, GUESS = "arlarena/Sokoban-6x6-1-v0", "arlarena/Guess-v0"


def small_config(model_dir: Path, **training: Any) -> ARLArenaConfig:
    """Return a configuration that runs in this process: 3 groups of 3 episodes, at most 4 turns."""
    return (
        ARLArenaConfig()
        .environment(SOKOBAN, env_config={"observation": "coords", "max_turns": 4})
        .policy(model_path=str(model_dir))
        .env_runners(groups_per_iteration=3, group_size=3, prompt_style="compact", max_response_tokens=8)
        .training(**{"method": "grpo", "lr": 1e-3, "num_minibatches": 2, **training})
        .serving(engine="transformers", num_replicas=0, max_model_len=256)
        .evaluation(evaluation_num_tasks=4, evaluation_samples=1)
        .debugging(seed=11)
    )


def train_and_save(algorithm: ARLArena, iterations: int, *, save_after: int, folder: Path) -> list[dict[str, Any]]:
    """Return the results of so many iterations; a checkpoint of ``save_after`` of them goes to ``folder``."""
    results = []
    for done in range(1, iterations + 1):
        results.append(algorithm.train())
        if done == save_after:
            algorithm.save_to_path(str(folder))
    return results


def weights_of(algorithm: ARLArena) -> dict[str, np.ndarray]:
    """Return the policy's weights."""
    return {n: t.numpy() for n, t in algorithm._learners.ask("export_weights").items()}


def same_weights(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    """Say whether two sets of weights are equal bit for bit."""
    return one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one)


SMALL_STUDY = """
model: {corpus_tasks: 20}
warm_start: {source: clumsy, slip: 0.1, num_tasks: 10, steps: 5}
environment: {env: arlarena/Sokoban-6x6-1-v0, env_config: {max_turns: 5}}
env_runners: {groups_per_iteration: 2, group_size: 2, max_response_tokens: 14, prompt_style: compact}
training: {lr: 3e-4}
serving: {engine: transformers, num_replicas: 0, max_model_len: 256}
"""
"""What studies of trials of a second have in common; the test adds sections `study`, `run` and `evaluation`."""
