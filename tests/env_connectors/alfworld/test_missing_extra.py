"""Without the extra: one clear line, also from the import of everything else."""

import importlib.util
from typing import Any

import pytest

from env_connectors import EnvConfigError, list_text_envs, make_text_env


def test_missing_packages_are_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    missing = {"textworld", "fast_downward"}

    def without(name: str, *more: Any) -> Any:
        return None if name in missing else find_spec(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(
        EnvConfigError, match=r"\(textworld, fast_downward.*pip install .*\[alfworld\].*g\+\+"
    ) as caught:
        make_text_env("arlarena/ALFWorld-v0")
    assert "\n" not in str(caught.value)


def test_listing_environments_does_not_need_the_extra() -> None:
    assert "arlarena/ALFWorld-v0" not in list_text_envs()
