"""Cloning fits the tokens of the policy, in all turns, and only those."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from arlarena_rllib.errors import ConfigError
from arlarena_rllib.learner.logprobs import scored_width, token_scores
from arlarena_rllib.models import load_causal_lm
from arlarena_rllib.trajectory import Trajectory, TrajectoryGroup, Turn, build_token_batch
from arlarena_rllib.warmstart import CloningConfig, behaviour_cloning


def _batch(mode: str = "windowed") -> dict[str, np.ndarray]:
    def turn(context: list[int], response: list[int]) -> Turn:
        size = len(response)
        return Turn(context, response, [0.0] * size, [1] * size, [0] * size, "", "up", True, True, "s", 0.0)

    turns = [turn([10, 11, 12], [20, 21, 1]), turn([10, 13], [22, 23, 24, 1])]
    return build_token_batch([TrajectoryGroup(0, "t", [Trajectory("t", 0, 0, mode=mode, turns=turns)])], pad_id=0)


@pytest.mark.parametrize("mode", ["windowed", "append"])
def test_cloning_learns_the_replies_of_every_turn_by_heart(tiny_model_dir: Path, mode: str) -> None:
    model, batch = load_causal_lm(tiny_model_dir), _batch(mode)
    report = behaviour_cloning(model, batch, CloningConfig(steps=60, batch_rows=2, lr=3e-3, warmup_steps=5))
    assert report.tokens == 7
    assert report.losses[-1] < 0.05 < report.losses[0]
    mask = torch.from_numpy(batch["loss_mask"])
    last = scored_width(mask)
    ids, attention = torch.from_numpy(batch["input_ids"]), torch.from_numpy(batch["attention_mask"])
    scores = token_scores(model, ids, attention, last=last).logp_B_K
    assert scores[mask[:, -last:] > 0].exp().min() > 0.8


def test_first_loss_is_the_mean_over_masked_in_tokens(tiny_model_dir: Path) -> None:
    model, batch = load_causal_lm(tiny_model_dir), _batch()
    mask = torch.from_numpy(batch["loss_mask"])
    ids, attention = torch.from_numpy(batch["input_ids"]), torch.from_numpy(batch["attention_mask"])
    with torch.no_grad():
        logp = token_scores(model, ids, attention, last=ids.shape[1]).logp_B_K
    expected = -logp[mask > 0].mean()
    report = behaviour_cloning(model, batch, CloningConfig(steps=1, batch_rows=8))
    assert report.losses[0] == pytest.approx(float(expected), rel=1e-4)


def test_cloning_repeats_with_its_seed(tiny_model_dir: Path) -> None:
    runs = []
    for _ in range(2):
        model = load_causal_lm(tiny_model_dir)
        behaviour_cloning(model, _batch(), CloningConfig(steps=5, batch_rows=1, seed=4))
        runs.append({n: p.detach().clone() for n, p in model.named_parameters()})
    assert all(torch.equal(runs[0][n], runs[1][n]) for n in runs[0])


def test_cpu_budget_ends_the_cloning(tiny_model_dir: Path) -> None:
    report = behaviour_cloning(
        load_causal_lm(tiny_model_dir), _batch(), CloningConfig(cpu_seconds=0.5, batch_rows=2, lr=1e-3)
    )
    assert 0.4 < report.cpu_seconds < 3.0


def test_impossible_settings_are_named() -> None:
    with pytest.raises(ConfigError, match="steps=-1"):
        CloningConfig(steps=-1)
