"""The loss cases through the learner: packing, micro-batches and several learners change neither loss nor gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from reference_cases import CASES, DOCUMENT, LOSS_INPUTS, RTOL, Case, Fixture, differences, family, shipped_cases
from table_learner import table_group
from torch import Tensor

from arlarena_rllib.learner.link import LearnerLink
from arlarena_rllib.objectives import ObjectiveSpec, global_denominators
from arlarena_rllib.trajectory import TokenBatch

_MASKS = [fixture["mask"] for fixture in DOCUMENT["fixtures"].values() if "mask" in fixture]
ROWS, PROMPT = max(map(len, _MASKS)), 6
WIDTH = PROMPT + max(len(row) for mask in _MASKS for row in mask)
"""Room for the largest fixture of the file, with prompts of up to PROMPT tokens."""
MIN_CASES = 89
"""Loss cases with a gradient in the shipped file."""
SPLITS = {
    "one micro-batch": {"num_learners": 0, "micro_batch_tokens": 10_000},
    "many micro-batches": {"num_learners": 0, "micro_batch_tokens": 25},
    "two learners": {"num_learners": 2, "micro_batch_tokens": 25},
}


def with_gradient(cases: list[Case]) -> list[Case]:
    return [case for case in cases if family(case) in LOSS_INPUTS and "grad" in case["expected"]]


class Layout:
    """Where the tokens of a fixture are in the learner's columns: left-padded, after prompts of different lengths."""

    def __init__(self, mask_B_T: Tensor) -> None:
        self.lengths = [int(row.nonzero().max()) + 1 if row.any() else 0 for row in mask_B_T]
        self.shape = mask_B_T.shape

    def columns(self, value_B_T: Tensor, fill: float = float("nan")) -> np.ndarray:
        """Return [B, WIDTH]; what is not a reply holds ``fill``, so that a read of it shows."""
        out = np.full((len(self.lengths), WIDTH), fill, dtype=np.float32)
        for row, n in enumerate(self.lengths):
            out[row, WIDTH - n :] = value_B_T[row, :n]
        return out

    def tokens(self, column: np.ndarray) -> list[list[float]]:
        """Return what stands at the tokens of the fixture, [B, T], and check that nothing but 0 stands elsewhere."""
        out, rest = np.zeros(self.shape), column.copy()
        for row, n in enumerate(self.lengths):
            out[row, :n] = column[row, WIDTH - n :]
            rest[row, WIDTH - n :] = 0.0
        assert not rest.any()
        return out.tolist()

    def attention(self) -> np.ndarray:
        """Return int64 [B, WIDTH]: 1 to PROMPT tokens of prompt before each reply."""
        real = np.array([n + 1 + row % PROMPT for row, n in enumerate(self.lengths)])
        return (np.arange(WIDTH) >= WIDTH - real[:, None]).astype(np.int64)


def learner_batch(
    case: Case, fixture: Fixture, layout: Layout, spec: ObjectiveSpec, advantages: Tensor
) -> tuple[TokenBatch, np.ndarray]:
    """Return the rows of a case in a random order, with all scores given, and the table of the log-probs."""
    params, mask_B_T, trajectory_id_B = case["params"], fixture.mask(case["params"]), fixture.trajectory_id()
    n_rows = len(mask_B_T)
    attention = layout.attention()
    batch = {
        "row": np.arange(n_rows),
        "input_ids": np.zeros_like(attention),
        "attention_mask": attention,
        "loss_mask": layout.columns(mask_B_T, fill=0.0),
        "old_logp": layout.columns(fixture.tensor("old_logp")),
        "old_entropy": np.zeros(attention.shape, dtype=np.float32),
        "rollout_logp": layout.columns(fixture.tensor(params.get("rollout", "old_logp"))),
        "advantages": advantages.numpy() if advantages.dim() == 1 else layout.columns(advantages),
        "loss_weight": global_denominators(mask_B_T, trajectory_id_B, spec).weight_B.float().numpy(),
        "trajectory_id": trajectory_id_B.numpy(),
        "turn_index": np.array(fixture.column("turn")),
        "minibatch": np.zeros(n_rows, dtype=np.int64),
    }
    if spec.kl_coef:
        batch["ref_logp"] = layout.columns(fixture.tensor("ref_logp"))
    order = np.random.default_rng(n_rows).permutation(n_rows)
    table = np.zeros((ROWS, WIDTH), dtype=np.float32)
    table[:n_rows] = layout.columns(fixture.tensor(params["new"]))
    return {name: column[order] for name, column in batch.items()}, table


@pytest.fixture(scope="module", params=SPLITS)
def link(request: pytest.FixtureRequest) -> Iterator[LearnerLink]:
    split: dict[str, Any] = SPLITS[request.param]
    if split["num_learners"]:
        request.getfixturevalue("ray_cluster")
    group = table_group((ROWS, WIDTH), **split)
    yield LearnerLink(group, split["num_learners"])
    group.shutdown()


@pytest.mark.parametrize("case", with_gradient(CASES), ids=lambda case: case["id"])
def test_refcase_through_the_learner_matches_reference(link: LearnerLink, case: Case) -> None:
    fixture = Fixture(case["fixture"], torch.float32)
    spec, advantages = LOSS_INPUTS[family(case)](case, fixture)
    layout = Layout(fixture.mask(case["params"]))
    batch, table = learner_batch(case, fixture, layout, spec, advantages)
    link.ask("set_case", spec, table)
    answer = link.update(batch, {})
    metrics = (answer[0] if isinstance(answer, list) else answer)[DEFAULT_MODULE_ID]
    gradient = link.ask("table_gradient")[: len(layout.lengths)]
    got = {"loss": float(np.asarray(metrics["total_loss"].peek()).item()), "grad": layout.tokens(gradient)}
    assert differences(got, {key: case["expected"][key] for key in got}, RTOL[torch.float32]) == []


def test_refcases_of_the_learner_are_at_least_the_known_number() -> None:
    assert len(with_gradient(shipped_cases())) >= MIN_CASES
    assert len(with_gradient(CASES)) >= 1
