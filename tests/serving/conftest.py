"""Policies that the serving tests share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from serving_cases import MAX_MODEL_LEN, NO_END
from transformers import PreTrainedModel

from arlarena_rllib.models import load_causal_lm
from arlarena_rllib.serving import EngineSpec, LocalPolicy, ServedPolicy, register_engine


@pytest.fixture
def model(tiny_model_dir: Path) -> PreTrainedModel:
    """A fresh copy of the policy on disk, free to be changed."""
    return load_causal_lm(tiny_model_dir)


@pytest.fixture(scope="session")
def spec(tiny_model_dir: Path) -> EngineSpec:
    """The transformers engine without an end token: answers have their full length."""
    return EngineSpec(
        "transformers", str(tiny_model_dir), max_model_len=MAX_MODEL_LEN, max_num_seqs=64, eos_token_ids=NO_END
    )


@pytest.fixture
def start_local(spec: EngineSpec) -> Iterator[Callable[..., LocalPolicy]]:
    """Start local policies with changed engine settings; all are stopped afterwards."""
    started: list[LocalPolicy] = []

    def start(**changes: object) -> LocalPolicy:
        changed = dataclasses.replace(spec, **changes)
        started.append(LocalPolicy.start(changed, app_name=f"local-{len(started)}"))
        return started[-1]

    yield start
    for policy in started:
        policy.stop()


@pytest.fixture(scope="session")
def digest_spec(tiny_model_dir: Path) -> EngineSpec:
    """An engine from outside the package that starts at once; its answers tell which weights it has loaded."""
    register_engine("digest", "digest_engine:DigestEngine")
    return EngineSpec("digest", str(tiny_model_dir))


@pytest.fixture(scope="module")
def served(ray_cluster: None, spec: EngineSpec) -> Iterator[ServedPolicy]:
    """One replica of the transformers engine on Serve; tests leave it running."""
    policy = ServedPolicy.start(spec, app_name="served", num_replicas=1, startup_timeout_s=120.0)
    yield policy
    policy.stop()
