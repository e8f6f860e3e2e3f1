"""Policy models: built from a configuration, or loaded from a Hugging Face directory."""

from arlarena_rllib.models.build import TINY_QWEN3, build_policy, train_tokenizer
from arlarena_rllib.models.load import load_causal_lm, load_tokenizer, stop_token_ids
from arlarena_rllib.models.smollm2 import export_smollm2

__all__ = [
    "TINY_QWEN3",
    "build_policy",
    "export_smollm2",
    "load_causal_lm",
    "load_tokenizer",
    "stop_token_ids",
    "train_tokenizer",
]
