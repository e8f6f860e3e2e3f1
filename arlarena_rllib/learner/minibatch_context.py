"""What the rows of a minibatch must know of each other, also across micro-batches and learners."""

from __future__ import annotations

import torch
from torch import Tensor

from arlarena_rllib.learner import collectives
from arlarena_rllib.learner.causal_lm_module import LOGP
from arlarena_rllib.learner.scoring import OLD_LOGP, Rows, RowScorer, indexed_micro_batches
from arlarena_rllib.objectives import ObjectiveSpec, RowIds, batch_context

_READ = (OLD_LOGP, "rollout_logp", "advantages", "loss_mask", "loss_weight", "trajectory_id", "turn_index")


@torch.no_grad()
def minibatch_context(
    scorer: RowScorer, rows: Rows, minibatch: Tensor, spec: ObjectiveSpec, *, seed: int
) -> dict[str, Tensor]:
    """Return `batch_context` of the minibatch for this learner's rows of it, by name.

    Costs one more forward pass over the minibatch; with several learners each of them gathers the [B, T] columns of all.

    Args:
        scorer: Knows the policy and the token budget.
        rows: This learner's rows.
        minibatch: [M] int64, which of them are in the minibatch.
        spec: The point of the method grid.
        seed: Of random picks; equal on all learners, another one for every step.

    Returns:
        [M] or [M, T] tensors, in the order of ``minibatch``.
    """
    own = {name: rows[name][minibatch] for name in _READ}
    own[LOGP] = _current_logp(scorer, rows, minibatch)
    parts = collectives.gathered(own)
    every = {name: torch.cat([part[name] for part in parts]) for name in own}
    context = batch_context(
        every[LOGP],
        every[OLD_LOGP],
        every["advantages"],
        every["loss_mask"],
        every["loss_weight"],
        spec,
        RowIds(every["trajectory_id"], every["turn_index"], seed),
        rollout_logp_B_T=every["rollout_logp"],
    )
    first = sum(len(part[LOGP]) for part in parts[: collectives.rank()])
    return {name: value[first : first + len(minibatch)] for name, value in context.items()}


def _current_logp(scorer: RowScorer, rows: Rows, minibatch: Tensor) -> Tensor:
    logp = torch.zeros_like(rows[OLD_LOGP])
    for indices, micro in indexed_micro_batches(rows, minibatch, scorer.token_budget):
        found = scorer.policy._forward_train(micro, temperature=scorer.temperature)[LOGP]
        logp[indices, -found.shape[1] :] = found
    return logp[minibatch]
