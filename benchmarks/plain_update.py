"""The limit of the update: forward, backward and AdamW in plain PyTorch on the same micro-batches."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from arlarena_rllib.config import ARLArenaConfig
from arlarena_rllib.learner.logprobs import scored_width
from arlarena_rllib.learner.packing import micro_batches
from arlarena_rllib.models.load import load_causal_lm
from arlarena_rllib.trajectory import TokenBatch

IGNORED = -100

MicroBatch = dict[str, Tensor]


class PlainLoop:
    """The policy, its AdamW and the micro-batches, packed before the clock starts.

    Loss: mean of -log pi over the policy tokens of a minibatch. Logits are computed for the scored columns only, as the
    learner does.
    """

    def __init__(self, model: Path, batch: TokenBatch, config: ARLArenaConfig) -> None:
        self._lm = load_causal_lm(model)
        self._optimizer = torch.optim.AdamW(
            [p for p in self._lm.parameters() if p.requires_grad],
            lr=float(config.lr),
            betas=tuple(config.adam_betas),
            weight_decay=config.weight_decay,
        )
        self._minibatches = pack_minibatches(batch, config.micro_batch_tokens)

    @property
    def num_micro_batches(self) -> int:
        """Forward and backward passes of one update."""
        return sum(map(len, self._minibatches))

    @torch.no_grad()
    def warm_up(self) -> None:
        """Run all micro-batches forward once: the learner's steps, too, come right after its scoring passes."""
        for minibatch in self._minibatches:
            for micro in minibatch:
                self._logits(micro)

    def update(self) -> None:
        """Take one optimiser step per minibatch."""
        for minibatch in self._minibatches:
            self._optimizer.zero_grad(set_to_none=True)
            num_tokens = sum(int((micro["labels"] != IGNORED).sum()) for micro in minibatch)
            for micro in minibatch:
                logits_N_V = self._logits(micro).flatten(0, 1).float()
                labels_N = micro["labels"].flatten()
                loss = cross_entropy(logits_N_V, labels_N, ignore_index=IGNORED, reduction="sum")
                (loss / num_tokens).backward()
            self._optimizer.step()

    def _logits(self, micro: MicroBatch) -> Tensor:
        """Return the logits [B, K, V] of the K scored columns."""
        output = self._lm(
            input_ids=micro["input_ids"],
            attention_mask=micro["attention_mask"],
            position_ids=micro["position_ids"],
            logits_to_keep=micro["labels"].shape[1] + 1,
            use_cache=False,
        )
        logits: Tensor = output.logits[:, :-1]
        return logits


def pack_minibatches(batch: TokenBatch, token_budget: int) -> list[list[MicroBatch]]:
    """Return the micro-batches of each minibatch, the same rows in the same order as in the learner."""
    columns = {name: torch.from_numpy(batch[name]) for name in ("input_ids", "attention_mask", "loss_mask")}
    lengths = columns["attention_mask"].sum(dim=1)
    packed = []
    for index in range(int(batch["minibatch"].max()) + 1):
        rows = torch.from_numpy((batch["minibatch"] == index).nonzero()[0])
        parts = micro_batches(lengths[rows].numpy(), token_budget)
        packed.append([_micro_batch(columns, rows[torch.from_numpy(part)], lengths) for part in parts])
    return packed


def _micro_batch(columns: dict[str, Tensor], rows: Tensor, lengths: Tensor) -> MicroBatch:
    width = int(lengths[rows].max())
    ids, attention, mask = (columns[name][rows][:, -width:] for name in ("input_ids", "attention_mask", "loss_mask"))
    scored = min(scored_width(mask), width - 1)
    return {
        "input_ids": ids,
        "attention_mask": attention,
        "position_ids": (attention.cumsum(dim=-1) - 1).clamp(min=0),
        "labels": torch.where(mask[:, -scored:] > 0, ids[:, -scored:], IGNORED),
    }
