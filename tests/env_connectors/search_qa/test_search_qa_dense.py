"""The dense retriever, with a tiny encoder of random weights: what is found, what is kept, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from env_connectors import EnvConfigError, make_text_env
from env_connectors.check_env import check_text_env
from env_connectors.search_qa import dense
from env_connectors.search_qa.dense import DenseRetriever
from env_connectors.search_qa.documents import Document
from env_connectors.search_qa.small_world import small_world

_ID = "arlarena/SearchQA-v0"
_DOCUMENTS = [Document("", "boss of kira stone"), Document("", "pet of milo frost is cat"), Document("", "home " * 9)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("encoder")
    words = sorted(
        {word for document in small_world(3).documents for word in document.text.split()} | {"kira", "milo", "frost"}
    )
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=len(words) + 5, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
        )
        BertModel(config).save_pretrained(folder)
    return folder


def test_a_text_is_nearest_to_itself_whatever_stands_beside_it(model: Path, tmp_path: Path) -> None:
    retriever = DenseRetriever(_DOCUMENTS, "mark", model, tmp_path)
    for document in _DOCUMENTS:
        best, second = retriever.search(document.search_text, 2)
        assert best.document == document and best.score == pytest.approx(1.0, abs=1e-5) and second.score < best.score
    assert len(retriever.search("", 9)) == 3 and len(retriever.search("\ud800 \x00", 2)) == 2


def test_embeddings_are_kept_and_made_anew_when_damaged(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DenseRetriever(_DOCUMENTS, "mark", model, tmp_path)
    (kept,) = tmp_path.glob("*.npy")
    first = np.load(kept)
    assert first.shape == (3, 32) and np.allclose(np.linalg.norm(first, axis=1), 1.0)
    calls: list[int] = []
    whole = dense._embed_all
    monkeypatch.setattr(dense, "_embed_all", lambda *a: calls.append(1) or whole(*a))
    DenseRetriever(_DOCUMENTS, "mark", model, tmp_path)
    assert calls == []
    kept.write_bytes(kept.read_bytes()[:100])
    DenseRetriever(_DOCUMENTS, "mark", model, tmp_path)
    assert calls == [1] and np.array_equal(np.load(kept), first)
    DenseRetriever(_DOCUMENTS[:2], "other mark", model, tmp_path)
    assert calls == [1, 1] and len(list(tmp_path.glob("*.npy"))) == 2


def test_an_environment_with_it_keeps_the_contract_and_the_panel(model: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"observation": "compact", "hops": 2, "num_groups": 3, "n_validation": 5, "n_test": 5}
    made = {**settings, "retriever": "dense", "dense_model": str(model), "dense_cache_dir": str(tmp_path)}
    check_text_env(_ID, episodes=1, fresh_process=False, **made)
    env = make_text_env(_ID, **made)
    assert env.tasks().panel_hash == make_text_env(_ID, **settings).tasks().panel_hash
    env.reset(seed=0)
    assert env.step("<search>qqq zzz</search>")[0].startswith("<information> ")


def test_what_cannot_be_loaded_is_named(model: Path, tmp_path: Path) -> None:
    with pytest.raises(EnvConfigError, match="dense_model='/nowhere' is no directory of a model"):
        make_text_env(_ID, retriever="dense", dense_model="/nowhere")
    with pytest.raises(EnvConfigError, match="retriever='dense' needs dense_model"):
        make_text_env(_ID, retriever="dense")
    with pytest.raises(EnvConfigError, match="dense_model='x' is read with retriever='dense'"):
        make_text_env(_ID, dense_model="x")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(EnvConfigError, match=r"dense_model='.*' cannot be loaded: "):
        make_text_env(_ID, retriever="dense", dense_model=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvConfigError, match=r"embeddings cannot be kept in .* Remedy: dense_cache_dir"):
        DenseRetriever(_DOCUMENTS, "mark", model, tmp_path / "file" / "below")
