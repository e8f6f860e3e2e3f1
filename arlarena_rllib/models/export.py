"""Writes the policy of an RLlib checkpoint as a Hugging Face directory."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from arlarena_rllib.errors import CheckpointError
from arlarena_rllib.models.load import check_model_dir, load_causal_lm

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MODULE_STATE = Path("learner_group/learner/rl_module/default_policy/module_state.pkl")
_PREFIX = "lm."


def load_checkpoint_policy(checkpoint: str | Path, base: str | Path) -> PreTrainedModel:
    """Return the model of directory ``base`` with the weights of the RLlib checkpoint ``checkpoint``.

    Raises:
        CheckpointError: no policy weights are in ``checkpoint``, or they do not fit ``base``.
    """
    import torch

    path = Path(checkpoint) / MODULE_STATE
    if not path.is_file():
        raise CheckpointError(f"{str(checkpoint)!r} holds no policy weights ({MODULE_STATE} is missing).")
    with path.open("rb") as file:
        state = pickle.load(file)
    model = load_causal_lm(base)
    tensors = {
        name.removeprefix(_PREFIX): torch.as_tensor(value) for name, value in state.items() if name.startswith(_PREFIX)
    }  # a critic's value head is no part of the policy
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise CheckpointError(
            f"the weights of {str(checkpoint)!r} do not fit the model at {str(base)!r}: {error}"
        ) from error
    return model


def export_policy(checkpoint: str | Path, base: str | Path, out: str | Path) -> Path:
    """Write model, tokenizer and chat template of ``checkpoint`` to ``out`` in Hugging Face layout; return ``out``."""
    model = load_checkpoint_policy(checkpoint, base)
    target = Path(out)
    save_policy(model, base, target)
    return target


def save_policy(model: PreTrainedModel, base: str | Path, out: str | Path) -> None:
    """Write ``model`` with the tokenizer files of ``base`` to ``out``."""
    source, target = check_model_dir(base), Path(out)
    target.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(target)
    for file in source.iterdir():
        if file.suffix in {".json", ".jinja", ".txt", ".model"} and not (target / file.name).exists():
            shutil.copy2(file, target / file.name)
