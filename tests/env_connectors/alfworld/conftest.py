"""Games for the tests: official ones where $ALFWORLD_DATA or the shared pack is there, else generated ones; none without
the extra [alfworld]."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from env_connectors import TextEnv, make_text_env
from env_connectors.alfworld.host import close_engine

ENV_ID = "arlarena/ALFWorld-v0"
SMALL = {
    "n_train": 12,
    "n_seen": 6,
    "n_unseen": 6,
    "rooms": 3,
    "unseen_rooms": 2,
    "max_receptacles": 8,
    "max_things": 10,
}
_PACK = Path(__file__).resolve().parents[4] / "shared" / "data" / "alfworld"
_IS_INSTALLED = all(importlib.util.find_spec(name) for name in ("textworld", "fast_downward", "alfworld"))
WITHOUT_ENGINE = {"test_behaviour.py", "test_missing_extra.py", "test_oracle.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with the reason, what cannot run here."""
    if _IS_INSTALLED:
        return
    for item in items:
        if Path(__file__).parent in item.path.parents and item.path.name not in WITHOUT_ENGINE:
            item.add_marker(pytest.mark.skip(reason="the extra [alfworld] is not installed (it needs g++ and make)"))


@pytest.fixture(scope="session")
def small() -> dict[str, Any]:
    """Arguments of an environment with few and small generated games."""
    return {"data": "generated", "generated": dict(SMALL)}


@pytest.fixture
def env(small: dict[str, Any]) -> Iterator[TextEnv]:
    """An environment with few and small generated games."""
    yield make_text_env(ENV_ID, **small)


@pytest.fixture(scope="session")
def official(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with official games: $ALFWORLD_DATA, or sixty of each split unpacked from the shared pack."""
    if os.environ.get("ALFWORLD_DATA"):
        return Path(os.environ["ALFWORLD_DATA"])
    if not (_PACK / "unpack.py").exists():
        pytest.skip("no official games: set ALFWORLD_DATA; test_generated_games.py covers generated ones")
    out = tmp_path_factory.mktemp("official")
    packs = [str(path) for path in sorted(_PACK.glob("*.jsonl.xz"))]
    command = [sys.executable, str(_PACK / "unpack.py"), *packs, "--out", str(out), "--limit", "60"]
    subprocess.run(command, check=True, capture_output=True)
    return out


@pytest.fixture(scope="session", autouse=True)
def _no_engine_left() -> Iterator[None]:
    yield
    close_engine()
