"""What learners note of the rows that are written down."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from learner_cases import build_group, training_batch

from arlarena_rllib.learner.link import LearnerLink
from arlarena_rllib.learner.recorded_rows import RECORDED, RowLogRatios


def _noted(model_dir: Path, num_learners: int) -> tuple[RowLogRatios, dict[tuple[int, int], int]]:
    """Return what the learners note of trajectories 0 and 5, and the policy tokens of each of these rows."""
    group, config = build_group(model_dir, num_learners=num_learners, num_epochs=2, lr=1e-3)
    link = LearnerLink(group, num_learners)
    try:
        batch = training_batch(config, link)
        batch[RECORDED] = np.isin(batch["trajectory_id"], [0, 5])
        link.update(batch, {})
        parts = link.ask_each("recorded_log_ratios")
    finally:
        group.shutdown()
    assert len(parts) == max(1, num_learners) and sum(map(len, parts)) == batch[RECORDED].sum()
    keys = zip(batch["trajectory_id"].tolist(), batch["turn_index"].tolist(), strict=True)
    tokens = dict(zip(keys, batch["loss_mask"].sum(axis=1).astype(int).tolist(), strict=True))
    return {k: v for part in parts for k, v in part.items()}, {k: n for k, n in tokens.items() if k[0] in (0, 5)}


def test_two_learners_note_the_ratios_of_one_process(ray_cluster: None, tiny_model_dir: Path) -> None:
    one, tokens = _noted(tiny_model_dir, 0)
    assert {key: len(values) for key, values in one.items()} == tokens
    assert max(np.abs(values).max() for values in one.values()) > 1e-3  # the second epoch sees a policy that has moved
    two, _ = _noted(tiny_model_dir, 2)
    assert one.keys() == two.keys()
    for key, values in one.items():
        assert two[key] == pytest.approx(values, abs=1e-3), key
