"""Fixtures for the whole test run: one Ray cluster, one tiny policy on disk."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Ray's workers are started from elsewhere: they find the packages, and what tests define, by path.
_FOLDERS = [REPOSITORY, *(REPOSITORY / "tests" / name for name in ("serving", "refcases"))]
_PATHS = [*map(str, _FOLDERS), os.environ.get("PYTHONPATH")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _PATHS))


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """A local Ray instance with Serve, shared by all tests that need one.

    It has more logical CPUs than many machines have cores: nothing in the tests computes for long.
    """
    import ray
    from ray import serve

    for attempt in range(2):
        try:
            ray.init(
                num_cpus=4,
                include_dashboard=False,
                log_to_driver=False,
                object_store_memory=300_000_000,
                configure_logging=True,
                logging_level="ERROR",
            )
            break
        except (RuntimeError, ConnectionError, TimeoutError):
            if attempt == 1:
                raise
            ray.shutdown()
            time.sleep(5.0)  # An overloaded machine misses the deadline of the first start.
    serve.start(proxy_location="Disabled")
    yield
    serve.shutdown()
    ray.shutdown()


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3 with tied embeddings (about 0.3 M parameters) and its tokenizer, in Hugging Face layout."""
    from arlarena_rllib.models import build_policy

    places = [f"you {a},{b} box {b},{c} goal {c},{a}" for a in range(5) for b in range(5) for c in range(5)]
    words = "past now push up from left right down <think>push</think><action>up</action>"
    return build_policy(
        tmp_path_factory.mktemp("tiny"), [f"{place} {words}" for place in places], model_config={"head_dim": 32}
    )
