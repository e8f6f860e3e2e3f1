"""A non-finite gradient never reaches the weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from learner_cases import ENV, make_groups
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.env import INPUT_ENV_SPACES

from arlarena_rllib import ARLArenaConfig
from arlarena_rllib.errors import LearnerError
from arlarena_rllib.learner.batching import build_learner_batch, learner_shards
from arlarena_rllib.trajectory import build_token_batch


def test_nonfinite_gradients_skip_the_step_and_stop_the_run_after_a_few(tiny_model_dir: Path) -> None:
    import gymnasium

    config = (
        ARLArenaConfig()
        .environment(ENV)
        .policy(model_path=str(tiny_model_dir))
        .training(method="grpo", lr=1e-3, max_nonfinite_steps=3)
    )
    spaces = (gymnasium.spaces.Discrete(1), gymnasium.spaces.Discrete(1))
    spec = config.get_multi_rl_module_spec(spaces={INPUT_ENV_SPACES: spaces, DEFAULT_MODULE_ID: spaces})
    group = config.build_learner_group(rl_module_spec=spec)
    before = {n: p.detach().clone() for n, p in group._learner.policy.named_parameters()}
    batch, _ = build_learner_batch(
        build_token_batch(make_groups(), pad_id=0), config.objective_spec(), num_minibatches=4, seed=1, iteration=0
    )
    batch["advantages"][:] = float("inf")
    with pytest.raises(LearnerError, match=r"3 optimiser steps in a row.*max_nonfinite_steps=3"):
        group.update(batch=learner_shards(batch, 1)[0])
    after = dict(group._learner.policy.named_parameters())
    assert all(torch.equal(before[n], after[n]) for n in before)
    group.shutdown()
