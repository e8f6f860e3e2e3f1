"""Weights between learner and replica: serialised form, store, node-local files."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load
from transformers import PreTrainedModel

from arlarena_rllib.errors import ServingError
from arlarena_rllib.serving import weights
from arlarena_rllib.serving.weights import WeightStore, clean_stale_files, serialize_weights, write_local_file


@pytest.fixture
def store(ray_cluster: None) -> Iterator[WeightStore]:
    created = WeightStore.create("store-test")
    yield created
    created.kill()


def test_tied_model_comes_back_equal_without_the_duplicate(model: PreTrainedModel) -> None:
    restored = load(serialize_weights(model.state_dict()).tobytes())
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert restored.keys() == dict(model.named_parameters()).keys()
    assert all(torch.equal(tensor, restored[name]) for name, tensor in model.named_parameters())


def test_dtypes_views_and_gradients_come_back_equal() -> None:
    base = torch.arange(12.0).reshape(3, 4)
    named = {
        "bf16": torch.randn(3, 5).bfloat16(),
        "transposed": base.T,
        "first_half": base[:, :2],
        "row": base[1],
        "trained": torch.nn.Parameter(torch.randn(4)),
        "empty": torch.zeros(0),
        "also_empty": torch.zeros(0),
    }
    restored = load(serialize_weights(named.items()).tobytes())
    assert restored.keys() == named.keys()
    for name, tensor in named.items():
        assert restored[name].dtype == tensor.dtype and torch.equal(restored[name], tensor)


def test_weights_that_are_none_or_no_tensors_are_refused() -> None:
    with pytest.raises(ServingError, match="No weights to publish"):
        serialize_weights({})
    with pytest.raises(ServingError, match="'w' is a ndarray"):
        serialize_weights({"w": np.ones(3)})


def test_store_keeps_the_newest_and_wakes_followers(store: WeightStore) -> None:
    async def run() -> None:
        assert await store.newest() == (0, 0, None)
        waiting = store.actor.wait_newer.remote(0)
        store.put(5, np.arange(4, dtype=np.uint8), timeout_s=30.0)
        assert await waiting == 1
        store.put(3, np.arange(6, dtype=np.uint8), timeout_s=30.0)
        found = WeightStore.find("store-test")
        assert found is not None
        serial, version, data_N = await found.newest()
        assert (serial, version) == (2, 3), "a lower version, as after a restore, is newer all the same"
        assert data_N is not None and data_N.tolist() == [0, 1, 2, 3, 4, 5]

    asyncio.run(run())


def test_store_missing_is_none(ray_cluster: None) -> None:
    assert WeightStore.find("no-such-app") is None


def test_local_file_holds_the_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "weight_directory", lambda: tmp_path)
    path = write_local_file("app", 4, np.arange(5, dtype=np.uint8))
    assert path.read_bytes() == bytes(range(5))
    assert [file.name for file in tmp_path.iterdir()] == [f"arlarena-weights-app-pid{os.getpid()}-4.safetensors"]


def test_local_file_that_cannot_be_written_says_where_and_how_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "weight_directory", lambda: tmp_path / "absent")
    with pytest.raises(ServingError, match=r"Cannot write 2 MB of weights to .*absent"):
        write_local_file("app", 1, np.zeros(2_000_000, dtype=np.uint8))


def test_stale_files_only_of_dead_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "weight_directory", lambda: tmp_path)
    dead_pid = int(subprocess.check_output([sys.executable, "-c", "import os; print(os.getpid())"]))
    names = {
        "stale": f"arlarena-weights-a-b-pid{dead_pid}-12.safetensors",
        "stale part": f"arlarena-weights-a-pid{dead_pid}-1.safetensors.part",
        "of a living process": f"arlarena-weights-a-pid{os.getpid()}-1.safetensors",
        "of somebody else": f"other-pid{dead_pid}-1.safetensors",
        "not of this form": f"arlarena-weights-notes-{dead_pid}.txt",
    }
    for name in names.values():
        (tmp_path / name).touch()
    removed = clean_stale_files()
    assert {path.name for path in removed} == {names["stale"], names["stale part"]}
    assert {path.name for path in tmp_path.iterdir()} == set(names.values()) - {path.name for path in removed}
