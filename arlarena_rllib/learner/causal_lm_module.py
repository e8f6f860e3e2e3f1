"""A Hugging Face causal LM as an RLlib RLModule."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from ray.rllib.utils.typing import StateDict
from torch import nn

from arlarena_rllib.learner.logprobs import scored_width, token_scores
from arlarena_rllib.models.load import load_causal_lm

LOGP, ENTROPY, VALUE = "logp", "entropy", "value"


class CausalLMModule(TorchRLModule):
    """The policy: ``model_config = {"model_path": directory}`` decides its architecture and first weights.

    With ``"critic": True`` a linear value head sits on the last hidden states, shared with the policy. It starts at 0,
    so the first advantages are plain returns.
    """

    def setup(self) -> None:
        """Load the model; evaluation mode throughout, so that dropout cannot tell sampler and learner apart."""
        self.lm = load_causal_lm(self.model_config["model_path"])
        self.value_head: nn.Linear | None = None
        if self.model_config.get("critic"):
            self.value_head = nn.Linear(self.lm.config.get_text_config().hidden_size, 1)
            nn.init.zeros_(self.value_head.weight)
            nn.init.zeros_(self.value_head.bias)

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Score the trailing tokens of ``batch`` (``input_ids``, ``attention_mask``, ``loss_mask`` [B, T]).

        Returns ``logp`` and, with ``with_entropy=True``, ``entropy``, with a critic ``value``: float32 [B, K], K as in
        ``scored_width``.
        """
        scores = token_scores(
            self.lm,
            batch["input_ids"],
            batch["attention_mask"],
            last=scored_width(batch["loss_mask"]),
            temperature=kwargs.get("temperature", 1.0),
            with_entropy=kwargs.get("with_entropy", False),
            value_head=self.value_head,
        )
        return {LOGP: scores.logp_B_K, ENTROPY: scores.entropy_B_K, VALUE: scores.value_B_K}

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        inference_only: bool = False,
        **kwargs: Any,
    ) -> StateDict:
        """Return the weights, or nothing for EnvRunners: they sample from the served engine."""
        if inference_only:
            return {}
        return super().get_state(components, not_components=not_components, **kwargs)

    def set_state(self, state: StateDict) -> None:
        """Load weights; an empty state (what EnvRunners are sent) changes nothing."""
        if state:
            super().set_state(state)
