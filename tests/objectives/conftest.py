"""Random batches for the tests of the objectives; everything follows from one seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from advantage_cases import drawn_rows
from torch import Tensor

from arlarena_rllib.objectives import (
    AdvantageRows,
    ObjectiveResult,
    ObjectiveSpec,
    RowIds,
    batch_context,
    global_denominators,
    policy_objective,
)


@dataclass(frozen=True)
class Batch:
    """Tensors of a policy update: [B, T] log-probs, mask, entropy; [B] or [B, T] advantages; [B] ids."""

    logp: Tensor
    old_logp: Tensor
    ref_logp: Tensor
    entropy: Tensor
    advantages: Tensor
    mask: Tensor
    trajectory_id: Tensor
    rollout_logp: Tensor
    turn_index: Tensor

    def rows(self, index: Tensor) -> Batch:
        return Batch(**{name: value[index] for name, value in vars(self).items()})

    def padded(self, width: int, value: float) -> Batch:
        """Append `width` masked columns that hold `value`."""

        def longer(name: str, tensor: Tensor) -> Tensor:
            fill = False if name == "mask" else value
            return torch.cat([tensor, torch.full((tensor.shape[0], width), fill, dtype=tensor.dtype)], dim=1)

        return Batch(**{name: longer(name, t) if t.dim() == 2 else t for name, t in vars(self).items()})

    def with_garbage(self, value: float) -> Batch:
        """Put `value` at every masked position of every float tensor."""
        names = ["logp", "old_logp", "ref_logp", "rollout_logp", "entropy"] + ["advantages"] * (
            self.advantages.dim() == 2
        )
        return replace(self, **{name: torch.where(self.mask, getattr(self, name), value) for name in names})

    def weight(self, spec: ObjectiveSpec) -> Tensor:
        return global_denominators(self.mask, self.trajectory_id, spec).weight_B

    def ids(self, seed: int = 0) -> RowIds:
        return RowIds(self.trajectory_id, self.turn_index, seed)

    def context(self, spec: ObjectiveSpec, seed: int = 0) -> dict[str, Tensor]:
        inputs = (self.logp, self.old_logp, self.advantages, self.mask, self.weight(spec))
        return batch_context(*inputs, spec, self.ids(seed), rollout_logp_B_T=self.rollout_logp)

    def objective(
        self, spec: ObjectiveSpec, weight: Tensor | None = None, context: dict[str, Tensor] | None = None
    ) -> tuple[ObjectiveResult, Tensor]:
        """Return the result and the gradient with respect to the log-probs; without a context as a whole batch."""
        logp = self.logp.clone().requires_grad_()
        result = policy_objective(
            logp,
            self.old_logp,
            self.advantages,
            self.mask,
            self.weight(spec) if weight is None else weight,
            spec,
            ref_logp_B_T=self.ref_logp,
            entropy_B_T=self.entropy,
            rollout_logp_B_T=self.rollout_logp,
            context=context,
            ids=self.ids(),
        )
        (grad,) = torch.autograd.grad(result.loss, logp)
        return result, grad


def make_batch(
    seed: int,
    *,
    n_rows: int = 6,
    width: int = 5,
    spread: float = 0.4,
    token_advantages: bool = False,
    dtype: torch.dtype = torch.float64,
) -> Batch:
    """Return a batch with holes in the mask and, now and then, an empty row."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    old = -1.5 + normal(n_rows, width)
    mask = torch.rand(n_rows, width, generator=generator) < 0.7
    mask[int(torch.randint(n_rows, (1,), generator=generator)), 0] = True
    return Batch(
        logp=old + spread * normal(n_rows, width),
        old_logp=old,
        ref_logp=old + 0.3 * normal(n_rows, width),
        entropy=normal(n_rows, width).abs(),
        advantages=normal(n_rows, width) if token_advantages else normal(n_rows),
        mask=mask,
        trajectory_id=torch.randint(max(n_rows // 2, 1), (n_rows,), generator=generator),
        rollout_logp=old + 0.3 * normal(n_rows, width),
        turn_index=torch.arange(n_rows),
    )


@pytest.fixture(scope="session")
def batch_of() -> Callable[..., Batch]:
    return make_batch


@pytest.fixture(scope="session")
def rows_of() -> Callable[..., AdvantageRows]:
    return drawn_rows
