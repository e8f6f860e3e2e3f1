"""Scores of rows before any step: log-probs, entropies and values of the old policy, log-probs of the reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from arlarena_rllib.learner.causal_lm_module import ENTROPY, LOGP, VALUE, CausalLMModule
from arlarena_rllib.learner.logprobs import token_scores
from arlarena_rllib.learner.packing import micro_batches

Rows = dict[str, Tensor]
OLD_LOGP, OLD_ENTROPY, OLD_VALUE, REF_LOGP = "old_logp", "old_entropy", "old_value", "ref_logp"


@dataclass(frozen=True)
class RowScorer:
    """Scores rows with the policy as it is, and with the frozen reference if there is one.

    Attributes:
        policy: The module.
        reference: Frozen causal LM, or None.
        temperature: Of the sampler.
        token_budget: Padded tokens of one forward pass.
    """

    policy: CausalLMModule
    reference: nn.Module | None
    temperature: float
    token_budget: int

    @torch.no_grad()
    def scores(self, rows: Rows) -> Rows:
        """Return ``old_logp``, ``old_entropy`` and, with a reference or a critic, ``ref_logp``, ``old_value``.

        Args:
            rows: ``input_ids``, ``attention_mask``, ``loss_mask`` [B, T].

        Returns:
            float32 [B, T], 0 at columns before the first token that the policy chose.
        """
        names = [OLD_LOGP, OLD_ENTROPY]
        names += [REF_LOGP] if self.reference is not None else []
        names += [OLD_VALUE] if self.policy.value_head is not None else []
        shape, device = rows["input_ids"].shape, rows["input_ids"].device
        found = {name: torch.zeros(shape, dtype=torch.float32, device=device) for name in names}
        for indices, micro in indexed_micro_batches(rows, torch.arange(shape[0], device=device), self.token_budget):
            out = self.policy._forward_train(micro, temperature=self.temperature, with_entropy=True)
            width = out[LOGP].shape[1]
            found[OLD_LOGP][indices, -width:] = out[LOGP]
            found[OLD_ENTROPY][indices, -width:] = out[ENTROPY]
            if OLD_VALUE in found:
                found[OLD_VALUE][indices, -width:] = out[VALUE]
            if REF_LOGP in found:
                found[REF_LOGP][indices, -width:] = self._reference_logp(micro, width)
        return found

    def _reference_logp(self, micro: Rows, width: int) -> Tensor:
        assert self.reference is not None
        return token_scores(
            self.reference, micro["input_ids"], micro["attention_mask"], last=width, temperature=self.temperature
        ).logp_B_K


def indexed_micro_batches(rows: Rows, indices: Tensor, token_budget: int) -> Iterator[tuple[Tensor, Rows]]:
    """Yield (row indices, these rows cut to the longest of them) of micro-batches within ``token_budget``."""
    lengths = rows["attention_mask"][indices].sum(dim=1).cpu().numpy()
    for part in micro_batches(lengths, token_budget):
        chosen = indices[torch.from_numpy(part).to(indices.device)]
        width = int(lengths[part].max())
        yield chosen, {name: v[chosen][:, -width:] if v.dim() == 2 else v[chosen] for name, v in rows.items()}
