"""The built model and tokenizer: reproducible, lossless on any bytes, loadable like any other."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arlarena_rllib.errors import CheckpointError, ModelError
from arlarena_rllib.models import build_policy, load_causal_lm, load_tokenizer, stop_token_ids, train_tokenizer
from arlarena_rllib.models.export import load_checkpoint_policy

TEXTS = [f"you {a},{b} box {b},{a} <think>push up</think><action>up</action>" for a in range(6) for b in range(6)]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_same_corpus_and_seed_give_the_same_files_in_any_order(tmp_path: Path) -> None:
    one = build_policy(tmp_path / "one", TEXTS, seed=3)
    two = build_policy(tmp_path / "two", TEXTS[::-1], seed=3)
    other = build_policy(tmp_path / "other", TEXTS, seed=4)
    for name in ("tokenizer.json", "model.safetensors", "config.json"):
        assert _digest(one / name) == _digest(two / name), name
    assert _digest(one / "model.safetensors") != _digest(other / "model.safetensors")


def test_default_model_is_small_and_one_token_stands_for_one_cell(tmp_path: Path) -> None:
    path = build_policy(tmp_path / "m", TEXTS)
    tokenizer = load_tokenizer(path)
    assert 3e5 < sum(p.numel() for p in load_causal_lm(path).parameters()) < 1e6
    assert len(tokenizer.encode(" 3,2", add_special_tokens=False)) == 1
    assert stop_token_ids(path, tokenizer) == (tokenizer.eos_token_id,)


def test_chat_template_ends_where_the_reply_begins(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(build_policy(tmp_path / "m", TEXTS))
    chat = [{"role": "user", "content": "you 1,2"}]
    text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert text == "<|user|>you 1,2<|end|><|assistant|>"


tokenizer_of_texts = train_tokenizer(TEXTS)


@given(st.text(max_size=40))
def test_any_text_survives_encoding_and_decoding(text: str) -> None:
    ids = tokenizer_of_texts.encode(text, add_special_tokens=False)
    special = {"<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"}
    if not any(s in text for s in special):
        assert tokenizer_of_texts.decode(ids) == text


def test_errors_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="corpus is empty"):
        train_tokenizer([])
    with pytest.raises(ModelError, match="vocab_size=100 is too small"):
        train_tokenizer(TEXTS, vocab_size=100)
    with pytest.raises(ModelError, match="model_type='quen3'"):
        build_policy(tmp_path / "m", TEXTS, model_config={"model_type": "quen3"})
    with pytest.raises(
        ModelError, match=r"model\.config\.hiden_size is not a field of 'qwen3'\. Nearest: 'hidden_size'"
    ):
        build_policy(tmp_path / "m", TEXTS, model_config={"hiden_size": 64})
    with pytest.raises(ModelError, match=r"model\.config=\{'hidden_size': -8\} makes no model"):
        build_policy(tmp_path / "m", TEXTS, model_config={"hidden_size": -8})
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"has no config\.json"):
        load_causal_lm(tmp_path / "empty")
    no_tokenizer = build_policy(tmp_path / "m2", TEXTS)
    (no_tokenizer / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"the tokenizer at .* cannot be loaded"):
        load_tokenizer(no_tokenizer)
    (no_tokenizer / "tokenizer_config.json").unlink()
    with pytest.raises(ModelError, match=r"has no tokenizer_config\.json"):
        load_tokenizer(no_tokenizer)
    with pytest.raises(CheckpointError, match="holds no policy weights"):
        load_checkpoint_policy(tmp_path / "empty", tmp_path)
