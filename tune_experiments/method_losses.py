"""What `arlarena methods losses` prints: every method's loss and gradient on one fixed batch of made-up episodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from arlarena_rllib.objectives import (
    AdvantageRows,
    GroupFilter,
    GroupOutcome,
    ObjectiveSpec,
    RowIds,
    compute_advantages,
    episode_returns,
    finish_metrics,
    global_denominators,
    policy_objective,
    rows_in_loss,
)
from arlarena_rllib.presets import METHODS, resolve_method

GROUPS, MEMBERS, MAX_TURNS, MAX_TOKENS, STATES = 6, 4, 4, 8, 3
STEP, SEED = 0.15, 0
ALL_WON, ALL_LOST = 0, 1
"""Groups without a difference in success; all their turns are valid, so that no penalty makes a difference either."""
NOTES = f"""\
One group won every episode, one lost every episode. The log-probs have moved by {STEP} per token (standard deviation)
since the rollout. The loss has the KL term; the loss of cispo and rloo means nothing, its gradient does.
filtered, masked, A = 0 are numbers of rows; a filter gets one try."""

Columns = dict[str, Tensor]


@dataclass(frozen=True)
class MethodLoss:
    """One row of the table.

    Attributes:
        loss: with the KL term, as it is minimised.
        grad_norm: L2 norm of its gradient with respect to the log-probs.
        clip_frac: share of the policy tokens where the method's bounds act.
        rows_filtered: rows of groups that the filter leaves out.
        rows_masked: rows without a policy gradient because of sequence masking or a small advantage.
        rows_zero: rows left by the filter whose advantage is exactly 0.
    """

    loss: float
    grad_norm: float
    clip_frac: float
    rows_filtered: int
    rows_masked: int
    rows_zero: int


def losses_table() -> str:
    """Return the table of all methods as text, and what the batch is."""
    batch = synthetic_batch()
    width = max(map(len, METHODS))
    lines = [f"{'method':{width}s}  {'loss':>10s}  {'grad norm':>10s}  {'clip_frac':>9s}  filtered  masked  A = 0"]
    for name in METHODS:
        m = method_loss(resolve_method(name), batch)
        lines.append(
            f"{name:{width}s}  {m.loss:10.6f}  {m.grad_norm:10.6f}  {m.clip_frac:9.4f}  "
            f"{m.rows_filtered:8d}  {m.rows_masked:6d}  {m.rows_zero:5d}"
        )
    rows, tokens = batch["mask_B_T"].shape[0], int(batch["mask_B_T"].sum())
    size = f"One batch for all: {GROUPS} groups of {MEMBERS} episodes, {rows} rows (turns), {tokens} tokens."
    return "\n".join([*lines, "", size, NOTES])


def method_loss(spec: ObjectiveSpec, batch: Columns) -> MethodLoss:
    """Return what one optimiser step of a method sees on the batch, all of it in one minibatch.

    Args:
        spec: the point of the method grid; lengths that it leaves open are those of the batch.
        batch: `synthetic_batch`.
    """
    spec = spec.within(MAX_TOKENS)
    taken = GroupFilter(spec, target_groups=GROUPS).offer(_outcomes(batch))
    is_taken_B = torch.isin(batch["group_id_B"], torch.tensor(taken, dtype=torch.int64))
    rows = {name: column[is_taken_B] for name, column in batch.items()}
    read: dict[str, Any] = {field.name: rows[field.name] for field in fields(AdvantageRows) if field.name in rows}
    advantages = compute_advantages(AdvantageRows(**read), spec).advantages
    mask_B_T = rows["mask_B_T"]
    selection = rows_in_loss(
        spec,
        advantages=advantages,
        mask_B_T=mask_B_T,
        trajectory_id_B=rows["trajectory_id_B"],
        action_valid_B=rows["action_valid_B"],
        cut_B=mask_B_T.all(-1),
    )
    loss, grad_norm, metrics = _step(spec, rows, advantages, selection.masked(mask_B_T))
    token_adv_B_T = advantages if advantages.dim() == 2 else advantages.unsqueeze(-1).expand(mask_B_T.shape)
    return MethodLoss(
        loss=loss,
        grad_norm=grad_norm,
        clip_frac=metrics["clip_frac"],
        rows_filtered=int((~is_taken_B).sum()),
        rows_masked=int((~selection.keep_B).sum()) + round(metrics.get("masked_rows_frac", 0.0) * metrics["num_rows"]),
        rows_zero=int(((token_adv_B_T == 0) | ~mask_B_T).all(-1).sum()),
    )


def _step(
    spec: ObjectiveSpec, rows: Columns, advantages: Tensor, mask_B_T: Tensor
) -> tuple[float, float, dict[str, float]]:
    """Return loss, norm of its gradient and metrics."""
    logp_B_T = rows["logp_B_T"].clone().requires_grad_()
    result = policy_objective(
        logp_B_T,
        rows["old_logp_B_T"],
        advantages,
        mask_B_T,
        global_denominators(mask_B_T, rows["trajectory_id_B"], spec).weight_B,
        spec,
        ref_logp_B_T=rows["ref_logp_B_T"],
        entropy_B_T=rows["entropy_B_T"],
        rollout_logp_B_T=rows["rollout_logp_B_T"],
        ids=RowIds(rows["trajectory_id_B"], rows["turn_index_B"], SEED),
    )
    (gradient_B_T,) = torch.autograd.grad(result.loss, logp_B_T)
    return float(result.loss.detach()), float(gradient_B_T.norm()), finish_metrics(result.metrics)


def synthetic_batch() -> Columns:
    """Return the columns of all rows, floats in float64; everything follows from `SEED`.

    Returns:
        the fields of `AdvantageRows`, and won_B [B] bool, logp_B_T (current policy) and rollout_logp_B_T (engine).
    """
    generator = torch.Generator().manual_seed(SEED)

    def whole(high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=generator)

    episodes = _episodes(whole)
    n_rows = len(episodes["group_id_B"])

    def normal(scale: float) -> Tensor:
        return scale * torch.randn(n_rows, MAX_TOKENS, generator=generator, dtype=torch.float64)

    old_logp_B_T = -normal(1.0).abs()
    return {
        **episodes,
        "mask_B_T": torch.arange(MAX_TOKENS) < 3 + whole(MAX_TOKENS - 2, n_rows).unsqueeze(-1),
        "old_logp_B_T": old_logp_B_T,
        "logp_B_T": old_logp_B_T + normal(STEP),
        "ref_logp_B_T": old_logp_B_T + normal(0.1),
        "rollout_logp_B_T": old_logp_B_T + normal(0.02),
        "entropy_B_T": normal(1.0).abs(),
        "value_B_T": 5.0 + normal(1.0),
    }


def _episodes(whole: Callable[..., Tensor]) -> Columns:
    """Return the row vectors; a won episode earns 10 at its last turn, a lost one is cut off by the turn limit."""
    turns_N = 1 + whole(MAX_TURNS, GROUPS * MEMBERS)
    n_rows, trajectory_id_B = int(turns_N.sum()), torch.repeat_interleave(torch.arange(len(turns_N)), turns_N)
    group_id_B, member_B = trajectory_id_B // MEMBERS, trajectory_id_B % MEMBERS
    turn_index_B = torch.cat([torch.arange(int(n)) for n in turns_N])
    # In a mixed group the first member wins, the last loses, and the draw decides about the others.
    drawn_B = (whole(2, len(turns_N)) > 0)[trajectory_id_B]
    is_uniform_B = (group_id_B == ALL_WON) | (group_id_B == ALL_LOST)
    mixed_B = (member_B == 0) | (drawn_B & (member_B < MEMBERS - 1))
    won_B = torch.where(is_uniform_B, group_id_B == ALL_WON, mixed_B)
    reward_B = torch.where(won_B & (turn_index_B == turns_N[trajectory_id_B] - 1), 10.0, 0.0).double()
    valid_B = is_uniform_B | (whole(8, n_rows) > 0)
    return {
        "group_id_B": group_id_B,
        "trajectory_id_B": trajectory_id_B,
        "turn_index_B": turn_index_B,
        "step_reward_B": reward_B,
        "episode_return_B": episode_returns(reward_B, trajectory_id_B),
        "format_valid_B": valid_B,
        "action_valid_B": valid_B,
        "anchor_id_B": whole(STATES, n_rows),
        "truncated_B": ~won_B,
        "bootstrap_value_B": torch.where(won_B, 0.0, 2.0).double(),
        "won_B": won_B,
    }


def _outcomes(batch: Columns) -> list[GroupOutcome]:
    outcomes = []
    for group in range(GROUPS):
        is_first_B = (batch["group_id_B"] == group) & (batch["turn_index_B"] == 0)
        returns, won = batch["episode_return_B"][is_first_B], batch["won_B"][is_first_B]
        outcomes.append(GroupOutcome(tuple(returns.tolist()), tuple(won.tolist())))
    return outcomes
