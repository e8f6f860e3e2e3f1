"""A study's file gives back what was saved, and a broken one is refused by name."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from study_cases import STABILITY, full_study, result, study, trial

from arlarena_rllib.errors import CheckpointError, ConfigError
from tune_experiments.study_record import StudyRecord, TrialRecord


def test_a_study_comes_back_as_it_was(tmp_path: Path) -> None:
    record = full_study()
    path = record.save(tmp_path / "new" / "study.json")
    assert StudyRecord.load(path) == record
    assert [file.name for file in path.parent.iterdir()] == ["study.json"]


def test_a_trial_is_a_file_of_its_own_too(tmp_path: Path) -> None:
    one = trial("sampo", 1, result(0.5, 1.0), setting={"training.lr": 1e-6, "training.critic": None}, reason="x")
    assert TrialRecord.load(one.save(tmp_path / "trial.json")) == one


def test_numbers_that_are_not_finite_come_back_from_strict_json(tmp_path: Path) -> None:
    record = study([trial("sampo", 1, result(math.nan, 1.0), (math.inf,))], seconds=math.nan)
    path = record.save(tmp_path / "study.json")
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    loaded = StudyRecord.load(path)
    assert math.isnan(loaded.seconds) and loaded.trials[0].history[0]["env_runners/success_rate"] == math.inf
    assert math.isnan(loaded.trials[0].test.task_sampled[0]) and loaded.trials[0].test.task_sampled[1] == 1.0


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = full_study().save(tmp_path / "study.json")
    before = path.read_text()

    def full_disk(descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="no space left"):
        study([]).save(path)
    assert path.read_text() == before and list(tmp_path.iterdir()) == [path]


def _set(document: dict[str, Any], keys: list[Any], value: Any) -> None:
    for key in keys[:-1]:
        document = document[key]
    document[keys[-1]] = value


@pytest.mark.parametrize(
    ("keys", "value", "said"),
    [
        (["iterations"], "many", r"iterations: Input should be a valid integer"),
        (["trials", 1, "test", "sampled"], {}, r"trials\.1\.test\.sampled: Input should be a valid number"),
        (["trials", 0, "history", 2, "x"], "y", r"trials\.0\.history\.2\.x: Input should be a valid number"),
        (["trials", 0, "status"], "done", r"trials\.0\.status: Input should be 'finished', 'stopped' or 'failed'"),
        (["trials", 0, "arm"], "sampoo", "arm='sampoo' is not one of the study's. Nearest: 'sampo'"),
        (["trials", 1, "trial_id"], "sampo-confirm-1", "trial_id='sampo-confirm-1' is there twice"),
        (["trails"], [], "trails: Unexpected keyword argument"),
        (["stability"], {"metric": "x"}, "stability lacks tail_fraction, threshold, max_drop"),
        (["stability", "tail_fraction"], 0, r"stability\.tail_fraction=0 must be a number in \(0, 1\]"),
        (["stability", "tail_fraction"], 2, r"stability\.tail_fraction=2 must be a number in \(0, 1\]"),
        (["stability", "threshold"], "x", r"stability\.threshold='x' must be a number from 0"),
        (["stability", "max_drop"], None, r"stability\.max_drop=None must be a number from 0"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_file_and_key(tmp_path: Path, keys: list[Any], value: Any, said: str) -> None:
    path = full_study().save(tmp_path / "study.json")
    document = json.loads(path.read_text())
    _set(document, keys, value)
    path.write_text(json.dumps(document))
    with pytest.raises(CheckpointError, match=rf"study\.json does not hold a StudyRecord: .*{said}"):
        StudyRecord.load(path)


def test_broken_missing_and_incomplete_files_are_refused_by_name(tmp_path: Path) -> None:
    path = full_study().save(tmp_path / "study.json")
    path.write_text(path.read_text()[:-200])
    with pytest.raises(CheckpointError, match=r"study\.json does not hold a StudyRecord: the document: Invalid JSON"):
        StudyRecord.load(path)
    path.write_text("{}")
    with pytest.raises(CheckpointError, match=r"study\.json does not hold a StudyRecord: name: Field required"):
        StudyRecord.load(path)
    path.write_text("[]")
    with pytest.raises(CheckpointError, match="the document: "):
        StudyRecord.load(path)
    with pytest.raises(CheckpointError, match=r"nowhere\.json cannot be read"):
        StudyRecord.load(tmp_path / "nowhere.json")


def test_a_wrong_record_is_refused_when_it_is_made() -> None:
    with pytest.raises(ConfigError, match="purpose='test' must be one of search, confirm"):
        trial("sampo", 1, None, purpose="test")
    with pytest.raises(ConfigError, match="stability lacks max_drop"):
        study([], stability={key: value for key, value in STABILITY.items() if key != "max_drop"})
