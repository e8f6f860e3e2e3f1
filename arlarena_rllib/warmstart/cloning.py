"""Behaviour cloning: maximum likelihood of every token that the demonstrated policy chose, in all turns."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from arlarena_rllib.checks import two_betas
from arlarena_rllib.errors import ConfigError
from arlarena_rllib.learner.logprobs import scored_width, token_scores
from arlarena_rllib.trajectory import TokenBatch


@dataclass(frozen=True)
class CloningConfig:
    """How long and how fast to clone.

    Attributes:
        steps: Optimiser steps; 0 = none. Ignored when ``cpu_seconds`` is given.
        cpu_seconds: Clone until this process has used so much CPU time (for equal-cost controls).
        batch_rows: Rows of one step.
        lr: AdamW learning rate after the warm-up.
        warmup_steps: Steps of linear warm-up.
        final_fraction: Share of ``lr`` at the end of the linear decay.
    """

    steps: int = 300
    cpu_seconds: float | None = None
    batch_rows: int = 64
    lr: float = 3e-3
    warmup_steps: int = 20
    final_fraction: float = 0.1
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.99)
    grad_clip: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for key in ("steps", "warmup_steps"):
            if not isinstance(getattr(self, key), int) or getattr(self, key) < 0:
                raise ConfigError(f"warm_start.{key}={getattr(self, key)!r} must be an integer >= 0")
        if self.batch_rows < 1 or not 0 < self.lr < math.inf:
            raise ConfigError(f"warm_start: batch_rows={self.batch_rows} must be >= 1 and lr={self.lr} a number > 0")
        if self.cpu_seconds is not None and not 0 < self.cpu_seconds < math.inf:
            raise ConfigError(f"warm_start.cpu_seconds={self.cpu_seconds!r} must be a number > 0, or none")
        if not self.grad_clip > 0 or not self.weight_decay >= 0 or not 0 <= self.final_fraction <= 1:
            raise ConfigError(
                f"warm_start: grad_clip={self.grad_clip} must be > 0, weight_decay={self.weight_decay} >= 0 and "
                f"final_fraction={self.final_fraction} in [0, 1]"
            )
        problem = two_betas(self.betas)
        if problem:
            raise ConfigError(f"warm_start.betas={self.betas!r} {problem}")


@dataclass
class CloningReport:
    """Loss of each step (nats per token) and what it cost."""

    losses: list[float] = field(default_factory=list)
    rows: int = 0
    tokens: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0


def behaviour_cloning(
    model: nn.Module,
    batch: TokenBatch,
    config: CloningConfig,
    *,
    progress: Callable[[int, float, float], None] | None = None,
) -> CloningReport:
    """Fit ``model`` in place to the rows of ``batch`` and return what happened.

    Loss of a step: mean over the tokens with ``loss_mask`` 1 of -log pi(token). Rows are visited in seeded permutations.

    Args:
        model: Hugging Face causal LM; trained in evaluation mode (no dropout), as in the RL updates.
        batch: Rows of demonstrations, see :data:`~arlarena_rllib.trajectory.TokenBatch`.
        config: Steps, rates, seed.
        progress: Called after each step with (step, share done in [0, 1], loss).
    """
    rows = {name: torch.from_numpy(batch[name]) for name in ("input_ids", "attention_mask", "loss_mask")}
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=config.lr, betas=config.betas, weight_decay=config.weight_decay)
    report = CloningReport(rows=len(batch["input_ids"]), tokens=int(batch["loss_mask"].sum()))
    began, cpu_began = time.perf_counter(), time.process_time()
    for step, indices in enumerate(_endless_batches(report.rows, config)):
        done = _share_done(step, time.process_time() - cpu_began, config)
        if done >= 1.0:
            break
        warm = min(1.0, (step + 1) / config.warmup_steps) if config.warmup_steps else 1.0
        for group in optimizer.param_groups:
            group["lr"] = config.lr * warm * (1.0 - done * (1.0 - config.final_fraction))
        loss = _loss(model, rows, indices)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, config.grad_clip)
        optimizer.step()
        report.losses.append(float(loss.detach()))
        if progress is not None:
            progress(step + 1, _share_done(step + 1, time.process_time() - cpu_began, config), report.losses[-1])
    report.seconds, report.cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    return report


def _share_done(step: int, cpu_seconds: float, config: CloningConfig) -> float:
    if config.cpu_seconds is not None:
        return cpu_seconds / config.cpu_seconds
    return step / config.steps if config.steps else 1.0


def _loss(model: nn.Module, rows: dict[str, Tensor], indices: Tensor) -> Tensor:
    chosen = {name: column[indices] for name, column in rows.items()}
    width = int(chosen["attention_mask"].sum(dim=1).max())
    chosen = {name: column[:, -width:] for name, column in chosen.items()}
    last = scored_width(chosen["loss_mask"])
    scores = token_scores(model, chosen["input_ids"], chosen["attention_mask"], last=last)
    mask = chosen["loss_mask"][:, -last:]
    return -torch.where(mask > 0, scores.logp_B_K, 0.0).sum() / mask.sum().clamp(min=1.0)


def _endless_batches(num_rows: int, config: CloningConfig) -> Iterator[Tensor]:
    generator = np.random.default_rng(np.random.SeedSequence([config.seed, 0x6263]))
    size = min(config.batch_rows, num_rows)
    while True:
        order = generator.permutation(num_rows)
        for start in range(0, num_rows - size + 1, size):
            yield torch.from_numpy(order[start : start + size])
