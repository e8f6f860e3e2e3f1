"""Loads a Hugging Face causal LM or its tokenizer from a directory, with errors that say what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from arlarena_rllib.errors import ModelError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def quiet_transformers() -> None:
    """Turn off progress bars: they would break into the run's own display."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def check_model_dir(path: str | Path) -> Path:
    """Return ``path`` as an absolute :class:`Path` if it holds a Hugging Face model.

    Raises:
        ModelError: the directory or its ``config.json`` does not exist.
    """
    directory = Path(path).expanduser().resolve()
    if not directory.is_dir():
        raise ModelError(f"model path {str(path)!r} is not a directory. Give a local Hugging Face model directory.")
    if not (directory / "config.json").is_file():
        raise ModelError(f"model path {str(path)!r} has no config.json, so it is not a Hugging Face model directory.")
    return directory


def load_causal_lm(path: str | Path, *, dtype: torch.dtype | None = None) -> PreTrainedModel:
    """Return the causal LM stored at ``path`` in ``dtype`` (default float32), in evaluation mode.

    Raises:
        ModelError: nothing loadable is at ``path``.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    quiet_transformers()
    directory = check_model_dir(path)
    try:
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype or torch.float32, local_files_only=True)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"the model at {str(path)!r} cannot be loaded: {' '.join(str(error).split())}") from error
    return model.eval()


def load_tokenizer(path: str | Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer stored at ``path``; it must have a chat template and an end token.

    Raises:
        ModelError: no tokenizer is at ``path``, or it lacks a chat template or an end token.
    """
    from transformers import AutoTokenizer

    directory = check_model_dir(path)
    if not (directory / "tokenizer_config.json").is_file():
        # transformers would take the model type's usual tokenizer, with other special tokens or no vocabulary at all.
        raise ModelError(f"model path {str(path)!r} has no tokenizer_config.json; the model needs its own tokenizer.")
    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ModelError(f"the tokenizer at {str(path)!r} cannot be loaded: {' '.join(str(error).split())}") from error
    if tokenizer.chat_template is None:
        raise ModelError(f"the tokenizer at {str(path)!r} has no chat template; agents are prompted as chats.")
    if tokenizer.eos_token_id is None:
        raise ModelError(f"the tokenizer at {str(path)!r} has no end-of-sequence token, so replies could not end.")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def stop_token_ids(path: str | Path, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Return the sorted ids that end a reply: the tokenizer's end token and those of ``generation_config.json``."""
    from transformers import GenerationConfig

    ids = {int(tokenizer.eos_token_id)}
    if (Path(path) / "generation_config.json").is_file():
        more = GenerationConfig.from_pretrained(path).eos_token_id
        ids.update([more] if isinstance(more, int) else more or [])
    return tuple(sorted(ids))
