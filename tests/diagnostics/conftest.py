"""Random rows of an update for the tests of the diagnostics; everything follows from one seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from arlarena_rllib.diagnostics import entropy_threshold, row_mean_entropy, update_tables

FULL = ("logp", "old_logp", "ref_logp", "entropy", "mask")


@dataclass(frozen=True)
class Rows:
    """Left-padded rows as a learner has them: [B, T] tensors in float32, advantages [B] or [B, T]."""

    logp: Tensor
    old_logp: Tensor
    ref_logp: Tensor
    entropy: Tensor
    advantages: Tensor
    mask: Tensor
    entropy_B: Tensor
    threshold: float

    def part(self, index: Tensor, width: int) -> Rows:
        """Return some rows with their last `width` columns, as a micro-batch."""
        cut = {name: getattr(self, name)[index][:, -width:] for name in FULL}
        advantages = self.advantages[index][..., -width:] if self.advantages.dim() == 2 else self.advantages[index]
        return replace(self, **cut, advantages=advantages, entropy_B=self.entropy_B[index])

    def with_garbage(self, value: float) -> Rows:
        names = ["logp", "old_logp", "ref_logp", "entropy"] + ["advantages"] * (self.advantages.dim() == 2)
        return replace(self, **{name: torch.where(self.mask, getattr(self, name), value) for name in names})

    def tables(self) -> dict[str, Tensor]:
        return update_tables(
            self.logp,
            self.old_logp,
            self.advantages,
            self.mask,
            self.entropy_B,
            entropy_threshold=self.threshold,
            ref_logp_B_T=self.ref_logp,
        )


def make_rows(
    seed: int, *, n_rows: int = 9, width: int = 7, spread: float = 0.3, token_advantages: bool = False
) -> Rows:
    """Return rows that need few or all columns, with holes in the mask; one row is empty, one A is 0."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    old = -1.5 + normal(n_rows, width)
    used = torch.arange(width) >= torch.randint(width, (n_rows, 1), generator=generator)
    mask = (torch.rand(n_rows, width, generator=generator) < 0.8) & used
    mask[0] = False
    mask[1:, -1] = True
    entropy = normal(n_rows, width).abs()
    advantages = normal(n_rows, width) if token_advantages else normal(n_rows)
    advantages[1] = 0.0
    entropy_B = row_mean_entropy(entropy, mask)
    return Rows(
        logp=old + spread * normal(n_rows, width),
        old_logp=old,
        ref_logp=old + 0.3 * normal(n_rows, width),
        entropy=entropy,
        advantages=advantages,
        mask=mask,
        entropy_B=entropy_B,
        threshold=entropy_threshold([entropy_B]),
    )


@pytest.fixture(scope="session")
def rows_of() -> Callable[..., Rows]:
    return make_rows
