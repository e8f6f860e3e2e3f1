"""Rows that are written down: which ones they are, and how far the policy had moved on them when they were last used."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from arlarena_rllib.learner.scoring import OLD_LOGP

RECORDED = "recorded"
"""Column of a batch, bool [B]: the row is written down. Batches of runs that record nothing lack it."""

RowLogRatios = dict[tuple[int, int], np.ndarray]
"""(trajectory_id, turn_index) -> float32, log(π / π_old) of the row's policy tokens in their order."""


def recorded_log_ratios(logp_B_T: Tensor, batch: Mapping[str, Tensor]) -> RowLogRatios:
    """Return the log-ratios of the recorded rows among some rows; no forward pass.

    Args:
        logp_B_T: [B, T] float, log-prob of each token under the current policy, without a graph.
        batch: ``recorded``, ``trajectory_id``, ``turn_index`` [B], ``loss_mask``, ``old_logp`` [B, T].
    """
    found: RowLogRatios = {}
    for row in batch[RECORDED].bool().nonzero().flatten().tolist():
        chosen = batch["loss_mask"][row].bool()
        difference = (logp_B_T[row] - batch[OLD_LOGP][row])[chosen]
        key = int(batch["trajectory_id"][row]), int(batch["turn_index"][row])
        found[key] = difference.float().cpu().numpy()
    return found
