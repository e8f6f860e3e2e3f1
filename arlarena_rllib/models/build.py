"""Builds a small causal LM with its own tokenizer and chat template; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arlarena_rllib.errors import ModelError, nearest
from arlarena_rllib.models.load import quiet_transformers

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

PAD, END = "<|pad|>", "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
TAGS = ("<think>", "</think>", "<action>", "</action>")
_SPECIAL = [PAD, END, *ROLES]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# A word keeps the blank before it, so that common words become one token; any other byte stays representable.
_WORDS = r" ?[^\s<>]+|\s+|[<>]"

TINY_QWEN3: dict[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,  # the smallest that vLLM supports on CPU
    "max_position_embeddings": 1024,
    "tie_word_embeddings": True,
}
"""Default CPU policy: Qwen3 architecture, about 0.3 M parameters with a vocabulary of about 500 tokens."""


def train_tokenizer(
    corpus: Iterable[str], *, vocab_size: int = 1024, tags: Sequence[str] = TAGS
) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer whose merges come from ``corpus``.

    Args:
        corpus: Texts that the policy will read and write, e.g. prompts and gold replies of an environment. The result
            depends on the texts only as a multiset.
        vocab_size: Upper bound of the vocabulary; 256 bytes, 6 special tokens and the tags are always in it.
        tags: Words of the reply's form, one token each.

    Returns:
        A fast tokenizer with chat template, pad token ``<|pad|>`` and end token ``<|end|>``. The tags survive
        ``skip_special_tokens=True``.

    Raises:
        ModelError: ``vocab_size`` cannot hold the bytes, the special tokens and the tags, or ``corpus`` is empty.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    texts = sorted(corpus)
    if not texts:
        raise ModelError("train_tokenizer: the corpus is empty; pass the texts that the policy will read and write.")
    check_vocab_size(vocab_size, tags)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(_SPECIAL)
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in tags])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=_SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def build_policy(
    out_dir: str | Path,
    corpus: Iterable[str],
    *,
    model_config: Mapping[str, Any] | None = None,
    vocab_size: int = 1024,
    tags: Sequence[str] = TAGS,
    seed: int = 0,
) -> Path:
    """Write a freshly initialised causal LM and its tokenizer to ``out_dir`` and return that path.

    Args:
        out_dir: Target directory in Hugging Face layout; created if missing.
        corpus: Texts for the tokenizer, see :func:`train_tokenizer`.
        model_config: Hugging Face configuration fields, ``model_type`` among them; defaults to :data:`TINY_QWEN3`.
            Given fields are laid over the default when the model type is the same. Vocabulary and token ids are set
            from the tokenizer.
        vocab_size, tags: Upper bound of the vocabulary and words that are one token, see :func:`train_tokenizer`.
        seed: Seed of the initial weights; the global generator is left as it was.

    Raises:
        ModelError: the configuration has an unknown ``model_type`` or field, or values that make no model.
    """
    import torch

    tokenizer = train_tokenizer(corpus, vocab_size=vocab_size, tags=tags)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _model_of(model_config or {}, len(tokenizer), tokenizer.pad_token_id, tokenizer.eos_token_id)
    out = Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return out


def check_model_config(model_config: Mapping[str, Any], vocab_size: int) -> None:
    """Check an argument of :func:`build_policy`: the model is made, without memory for its weights.

    Raises:
        ModelError: as :func:`build_policy`.
    """
    import torch

    with torch.device("meta"):
        _model_of(model_config, vocab_size, 0, 1)


def check_vocab_size(vocab_size: int, tags: Sequence[str] = TAGS) -> None:
    """Raise :class:`ModelError` when the vocabulary has no room for the bytes, the special tokens and the tags."""
    least = 256 + len(_SPECIAL) + len(tags)
    if vocab_size < least:
        raise ModelError(f"vocab_size={vocab_size} is too small: bytes and special tokens alone need {least}.")


def _model_of(model_config: Mapping[str, Any], vocab_size: int, pad_id: int, eos_id: int) -> PreTrainedModel:
    """Return the freshly initialised model."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    quiet_transformers()
    fields = dict(model_config)
    if fields.get("model_type", TINY_QWEN3["model_type"]) == TINY_QWEN3["model_type"]:
        fields = {**TINY_QWEN3, **fields}
    fields.update(vocab_size=vocab_size, pad_token_id=pad_id, eos_token_id=eos_id)
    fields.setdefault("bos_token_id", None)
    model_type = fields.pop("model_type")
    try:
        known = AutoConfig.for_model(model_type).to_dict()
    except ValueError as error:
        raise ModelError(f"model.config.model_type={model_type!r} is not a model type of transformers.") from error
    unknown = next((key for key in fields if key not in known), None)
    if unknown is not None:
        raise ModelError(f"model.config.{unknown} is not a field of {model_type!r}.{nearest(unknown, known)}")
    try:
        config = AutoConfig.for_model(model_type, **fields)
        _check_heads(config)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    except Exception as error:  # transformers and torch raise all sorts of them for values that do not fit
        reason = " ".join(str(error).split())
        raise ModelError(f"model.config={dict(model_config)!r} makes no model: {reason}") from error
    return model


def _check_heads(config: PretrainedConfig) -> None:
    """Raise ValueError for numbers of heads that only a call of the model would complain of."""
    heads, shared = getattr(config, "num_attention_heads", None), getattr(config, "num_key_value_heads", None)
    if heads and shared and heads % shared:
        raise ValueError(f"num_attention_heads={heads} is not a multiple of num_key_value_heads={shared}.")
