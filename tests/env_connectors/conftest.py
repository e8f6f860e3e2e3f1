"""Real WebShop data for parity tests: read from outside the repository, never part of it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

_VARIABLE = "ARLARENA_WEBSHOP_PARITY"
_DEFAULT = Path(__file__).resolve().parents[3] / "shared" / "data" / "webshop"


@pytest.fixture(scope="session")
def webshop_file() -> Callable[[str], Path]:
    """Return the path of a parity file by name; the test is skipped where there is none."""

    def find(name: str) -> Path:
        folder = Path(os.environ.get(_VARIABLE, _DEFAULT))
        if not (folder / name).is_file():
            pytest.skip(f"no parity data: {name} is not in {folder}; set {_VARIABLE} to the folder that holds it")
        return folder / name

    return find
