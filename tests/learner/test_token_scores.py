"""Scores of left-padded rows are those of the bare model on each row alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from arlarena_rllib.learner.logprobs import scored_width, token_scores
from arlarena_rllib.models import load_causal_lm


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_padded_rows_score_like_single_rows(tiny_model_dir: Path, temperature: float) -> None:
    model = load_causal_lm(tiny_model_dir)
    rows = [[7, 8, 9, 10, 11, 12], [30, 31, 32]]
    ids = torch.tensor([rows[0], [0, 0, 0, *rows[1]]])
    mask = torch.tensor([[1] * 6, [0, 0, 0, 1, 1, 1]])
    scores = token_scores(model, ids, mask, last=2, temperature=temperature, with_entropy=True)
    for row, logp, entropy in zip(rows, scores.logp_B_K, scores.entropy_B_K, strict=True):
        logits = model(torch.tensor([row])).logits[0, -3:-1].double() / temperature
        expected = torch.log_softmax(logits, -1)
        torch.testing.assert_close(logp.double(), expected[[0, 1], row[-2:]], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(entropy.double(), -(expected.exp() * expected).sum(-1), atol=1e-5, rtol=1e-5)


def test_scored_width_reaches_back_to_the_first_policy_token() -> None:
    mask = torch.tensor([[0, 0, 1, 0, 1], [0, 0, 0, 1, 1]])
    assert scored_width(mask) == 3
    assert scored_width(torch.zeros(2, 5)) == 1
