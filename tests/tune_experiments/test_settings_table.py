"""`arlarena settings`: every key that a file may have, with its default and what it means."""

from __future__ import annotations

import pytest

from arlarena_rllib.errors import ConfigError
from arlarena_rllib.settings import SETTINGS
from tune_experiments.cli import main
from tune_experiments.run_config import build_run_config
from tune_experiments.settings_table import settings_rows


def test_every_key_is_there_once_and_is_a_key() -> None:
    rows = settings_rows()
    names = [(row.section, row.key) for row in rows]
    assert len(set(names)) == len(names)
    assert {(setting.section, key) for key, setting in SETTINGS.items()} - set(names) == {("policy", "model_path")}
    for row in rows:
        if not row.section.startswith("study"):
            assert "is not a se" not in _refusal(row.section, row.key)
    assert "is not a setting" in _refusal("run", "iteration")


def _refusal(section: str, key: str) -> str:
    try:
        build_run_config({section: {key: object()}}, {}, "f")
    except (ConfigError, TypeError) as error:  # of the value, that nothing takes, or of the key
        return str(error)
    return ""


def test_defaults_and_meanings_are_those_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "run", "training"]) == 0
    lines = {
        line.split()[0]: line.split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines() if line[0] != " "
    }
    assert lines["run.iterations"].startswith("20")
    assert lines["training.lr"].split() == ["1e-06", "learning", "rate"]
    assert lines["training.clip_low"].split()[:4] == ["the", "method's", "Ratio", "bound"]
    assert not any(name.startswith("model.") for name in lines)


def test_unknown_section_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "trainings"]) == 2
    assert "'trainings' is not a section. Nearest: 'training'" in capsys.readouterr().err
