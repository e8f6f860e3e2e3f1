"""What a study refuses before Tune starts: a folder that is not its own, trials that do not fit."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import ray

from arlarena_rllib import ARLArenaConfig
from arlarena_rllib.errors import CheckpointError, ConfigError
from tune_experiments.progress import ProgressDisplay
from tune_experiments.resume import check_unchanged
from tune_experiments.run_folder import claimed
from tune_experiments.study_config import load_study
from tune_experiments.study_results import tune_folders
from tune_experiments.sweep import SETTINGS_FILE, _hold_to, room_for

STUDY = "environment: {env: arlarena/Guess-v0}\nevaluation: {evaluation_interval: 2}\nstudy: {arms: [grpo]}\n"


def quiet() -> ProgressDisplay:
    return ProgressDisplay(stream=io.StringIO())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: [",
        "- 1",
        "began: 1",
        "began: 1\nsettings:",
        "began: 1\nsettings: {run: 3}",
        "\x00",
        "began: x\nsettings: {}",
        "began:\nsettings: {}",
    ],
)
def test_settings_that_do_not_say_how_a_study_began_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    study = load_study(tmp_path / "study.yaml")
    (tmp_path / SETTINGS_FILE).write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.yaml does not say how a study began"):
        _hold_to(tmp_path, study, resume=True)
    (tmp_path / SETTINGS_FILE).unlink()
    with pytest.raises(CheckpointError, match="FileNotFoundError"):
        _hold_to(tmp_path, study, resume=True)


def test_study_goes_on_with_the_settings_that_it_began_with(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    began = _hold_to(tmp_path, load_study(tmp_path / "study.yaml"), resume=False)
    assert _hold_to(tmp_path, load_study(tmp_path / "study.yaml"), resume=True) == began
    with pytest.raises(ConfigError, match=r"training\.lr=0\.1 was None"):
        _hold_to(tmp_path, load_study(tmp_path / "study.yaml", ["training.lr=0.1"]), resume=True)
    with pytest.raises(CheckpointError, match=r"is the folder of a study"):
        check_unchanged(tmp_path, {})


def test_copies_of_tunes_folder_are_none_of_the_study(tmp_path: Path) -> None:
    for name in ("trials.2", "trials.10", "trials.10.bak", "trials.old", "trials."):
        (tmp_path / name / "a-0-search-seed0-xyz").mkdir(parents=True)
    (tmp_path / "trials.11").touch()
    assert [path.name for path in tune_folders(tmp_path)] == ["trials.2", "trials.10"]


def test_folder_of_something_else_is_not_resumed(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with (
        pytest.raises(CheckpointError, match="is not the folder of a run"),
        claimed(tmp_path, resume=True, progress=quiet()),
    ):
        pass


def test_room_is_that_of_the_largest_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 4.0})
    small = ARLArenaConfig().env_runners(num_env_runners=0).serving(num_replicas=0)
    large = ARLArenaConfig().env_runners(num_env_runners=1).serving(num_replicas=0)
    assert (room_for([small], None, quiet()), room_for([small], 3, quiet())) == (4, 3)
    assert room_for([small, large], None, quiet()) == 2
    with pytest.raises(ConfigError, match=r"needs up to 5 of 4 CPUs: it does not fit"):
        room_for([small, ARLArenaConfig().env_runners(num_env_runners=4).serving(num_replicas=0)], None, quiet())
