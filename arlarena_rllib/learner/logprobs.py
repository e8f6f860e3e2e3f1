"""Log-probabilities, entropies and values of the tokens of left-padded rows under a causal LM."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class TokenScores(NamedTuple):
    """``logp_B_K`` and (if asked for) ``entropy_B_K``, ``value_B_K`` of the last K tokens of each row, float32."""

    logp_B_K: Tensor
    entropy_B_K: Tensor | None
    value_B_K: Tensor | None


def scored_width(loss_mask_B_T: Tensor) -> int:
    """Return K, the least number of trailing columns that hold every masked-in token (at least 1)."""
    columns = torch.nonzero(loss_mask_B_T.any(dim=0))
    width = loss_mask_B_T.shape[1]
    return width - int(columns[0]) if len(columns) else 1


def token_scores(
    model: nn.Module,
    input_ids_B_T: Tensor,
    attention_mask_B_T: Tensor,
    *,
    last: int,
    temperature: float = 1.0,
    with_entropy: bool = False,
    value_head: nn.Module | None = None,
) -> TokenScores:
    """Return log-softmax(logits / temperature) at the ``last`` tokens of each row.

    Args:
        model: Hugging Face causal LM.
        input_ids_B_T: int64 [B, T], left-padded.
        attention_mask_B_T: int64 [B, T], 1 on real tokens.
        last: K, number of trailing columns that are scored; logits are computed for these only. The first column has
            no predecessor, so it scores 0 when K equals T.
        temperature: The one that the sampler used; ratios need the same distribution.
        with_entropy: Also return the Shannon entropy in nats (one more pass over the vocabulary).
        value_head: Maps the last hidden states [B, K, D] to values [B, K, 1]; the value of a token is that of the state
            in which it was chosen, i.e. of the position before it.

    Returns:
        Scores [B, K] in float32; values at padding are finite but meaningless.
    """
    position_ids_B_T = (attention_mask_B_T.cumsum(dim=-1) - 1).clamp(min=0)
    width = input_ids_B_T.shape[1]
    predicted = min(last, width - 1)
    output = model(
        input_ids=input_ids_B_T,
        attention_mask=attention_mask_B_T,
        position_ids=position_ids_B_T,
        logits_to_keep=predicted + 1,
        use_cache=False,
        output_hidden_states=value_head is not None,
    )
    logits = output.logits[:, :-1]
    logits = logits.float() if temperature == 1.0 else logits.float() / temperature
    targets = input_ids_B_T[:, width - predicted :]
    norm = torch.logsumexp(logits, dim=-1)
    logp = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1) - norm
    entropy = None
    if with_entropy:
        entropy = norm - (torch.softmax(logits, dim=-1) * logits).sum(dim=-1)
    value = None
    if value_head is not None:
        value = value_head(output.hidden_states[-1][:, width - predicted - 1 : -1].float()).squeeze(-1)

    def aligned(found_B_P: Tensor) -> Tensor:
        return nn.functional.pad(found_B_P, (last - predicted, 0))

    return TokenScores(
        aligned(logp),
        None if entropy is None else aligned(entropy),
        None if value is None else aligned(value),
    )
