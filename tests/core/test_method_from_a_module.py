"""A method of another module is found by ``module:name``, which works in every process of a run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from arlarena_rllib import ARLArenaConfig
from arlarena_rllib.errors import ConfigError
from arlarena_rllib.presets import METHODS

ENV = "arlarena/Sokoban-6x6-1-v0"
MODULE = """
from arlarena_rllib.presets import METHODS, Method

METHODS["mine"] = Method("token-mean", "ppo", "rloo", "none", source="a test, 2026")
"""


def test_method_of_another_module_is_imported_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_methods.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        spec = ARLArenaConfig().environment(ENV).training(method="my_methods:mine").objective_spec()
        assert (spec.advantage, spec.clipping) == ("rloo", "ppo")
        with pytest.raises(ConfigError, match=r"method='my_methods:mien' is not known\. Nearest: 'mine'"):
            ARLArenaConfig().environment(ENV).training(method="my_methods:mien").objective_spec()
    finally:
        METHODS.pop("mine", None)
        sys.modules.pop("my_methods", None)


def test_module_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="module 'no_such_methods' cannot be imported"):
        ARLArenaConfig().environment(ENV).training(method="no_such_methods:mine").objective_spec()
