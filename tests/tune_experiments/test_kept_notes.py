"""Tune's notes after a full disk: cut-off files are replaced, whole ones stay, old decisions go."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.train._internal.checkpoint_manager import _CheckpointManager
from ray.train._internal.session import _TrainingResult
from ray.tune import Checkpoint, CheckpointConfig

from tune_experiments.kept_notes import KEPT, KeptNotes, repair_notes

STATE, SEARCH, CALLBACKS = "experiment_state-2026-01-01.json", "basic-variant-state-2026-01-01.json", "callbacks.pkl"


def _write(folder: Path, iteration: int) -> None:
    folder.mkdir(parents=True)
    notes = {"trial_data": [iteration], "runner_data": {"_cached_trial_decisions": {"t1": "STOP"}, "_iteration": 7}}
    (folder / STATE).write_text(json.dumps(notes))
    (folder / SEARCH).write_bytes(pickle.dumps({"iteration": iteration}))  # Tune's own choice of name
    (folder / CALLBACKS).write_bytes(pickle.dumps({"iteration": iteration}))


def _read(folder: Path) -> list[Any]:
    state = json.loads((folder / STATE).read_text())
    return [
        state["trial_data"][0],
        *(pickle.loads((folder / f).read_bytes())["iteration"] for f in (SEARCH, CALLBACKS)),
    ]


def test_repair_replaces_what_is_cut_off_and_nothing_else(tmp_path: Path) -> None:
    _write(tmp_path / KEPT, 4)
    _write(tmp_path / "trials", 6)
    repair_notes(tmp_path, tmp_path / "trials")
    assert _read(tmp_path / "trials") == [6, 6, 6]
    os.truncate(tmp_path / "trials" / STATE, 20)
    repair_notes(tmp_path, tmp_path / "trials")
    assert _read(tmp_path / "trials") == [4, 6, 6]
    os.truncate(tmp_path / "trials" / SEARCH, 5)
    os.truncate(tmp_path / "trials" / CALLBACKS, 0)
    repair_notes(tmp_path, tmp_path / "trials")
    assert _read(tmp_path / "trials") == [4, 4, 4]


def test_repair_without_a_copy_takes_the_notes_of_the_call_before(tmp_path: Path) -> None:
    _write(tmp_path / "trials", 6)
    (tmp_path / "trials" / "experiment_state-2026-01-02.json").write_text('{"trial_data": [')
    repair_notes(tmp_path, tmp_path / "trials")
    assert [file.name for file in (tmp_path / "trials").glob("experiment_state*")] == [STATE]


@pytest.mark.parametrize("text", ["[]", "{}", "3", '{"trial_data": [], "runner_data": 3}'])
def test_repair_takes_json_of_something_else_for_no_notes(tmp_path: Path, text: str) -> None:
    _write(tmp_path / "trials", 6)
    (tmp_path / "trials" / "experiment_state-2026-01-02.json").write_text(text)
    repair_notes(tmp_path, tmp_path / "trials")
    assert [file.name for file in (tmp_path / "trials").glob("experiment_state*")] == [STATE]


def test_repair_drops_the_error_of_a_trial_when_it_is_cut_off(tmp_path: Path) -> None:
    _write(tmp_path / "trials", 6)
    for name, size in (("whole", 1_000), ("cut", 20)):
        (tmp_path / "trials" / name).mkdir()
        (tmp_path / "trials" / name / "error.pkl").write_bytes(pickle.dumps(OSError("No space left"))[:size])
    repair_notes(tmp_path, tmp_path / "trials")
    assert [file.parent.name for file in (tmp_path / "trials").glob("*/error.pkl")] == ["whole"]


def test_repair_drops_a_decision_to_stop_that_waited_for_a_checkpoint(tmp_path: Path) -> None:
    _write(tmp_path / "trials", 6)
    repair_notes(tmp_path, tmp_path / "trials")
    state = json.loads((tmp_path / "trials" / STATE).read_text())
    assert state["runner_data"] == {"_cached_trial_decisions": {}, "_queued_trial_decisions": {}, "_iteration": 7}


def test_checkpoints_that_are_gone_are_forgotten_when_a_trial_starts(tmp_path: Path) -> None:
    manager = _CheckpointManager(CheckpointConfig(num_to_keep=2))
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        manager.register_checkpoint(_TrainingResult(Checkpoint(str(tmp_path / str(number))), {}))
    (tmp_path / "1").rmdir()  # deleted after the notes were written
    trial = SimpleNamespace(run_metadata=SimpleNamespace(checkpoint_manager=manager))
    KeptNotes(tmp_path).on_trial_start(1, [trial], trial)
    (tmp_path / "3").mkdir()
    manager.register_checkpoint(_TrainingResult(Checkpoint(str(tmp_path / "3")), {}))
    assert [Path(result.checkpoint.path).name for result in manager.best_checkpoint_results] == ["2", "3"]
    (tmp_path / "4").mkdir()
    manager.register_checkpoint(_TrainingResult(Checkpoint(str(tmp_path / "4")), {}))
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["3", "4"]


def _storage(tmp_path: Path) -> list[Any]:
    """One trial whose notes Tune writes to ``own`` and copies to ``trials`` some time later."""
    (tmp_path / "own").mkdir()
    (tmp_path / "trials").mkdir()
    storage = SimpleNamespace(
        experiment_driver_staging_path=str(tmp_path / "own"), experiment_fs_path=str(tmp_path / "trials")
    )
    return [SimpleNamespace(storage=storage)]


def test_notes_that_are_not_in_the_run_yet_are_kept_from_where_they_are_written(tmp_path: Path) -> None:
    trials, notes = _storage(tmp_path), KeptNotes(tmp_path)
    notes.on_checkpoint(1, trials, trials[0], None)
    notes.on_step_end(1, trials)
    assert not (tmp_path / KEPT).exists()  # nothing tells of the checkpoint yet
    (tmp_path / "own" / STATE).write_text("new")
    (tmp_path / "trials" / CALLBACKS).write_text("of an earlier call")
    notes.on_step_end(2, trials)
    assert sorted(file.name for file in (tmp_path / KEPT).iterdir()) == [CALLBACKS, STATE]


def test_notes_that_are_first_written_at_the_end_are_kept(tmp_path: Path) -> None:
    """A trial that fails right after its first checkpoint: Tune writes its notes when all is over."""
    trials, notes = _storage(tmp_path), KeptNotes(tmp_path)
    notes.on_checkpoint(1, trials, trials[0], None)
    notes.on_step_end(1, trials)
    (tmp_path / "own" / STATE).write_text("final")
    notes.on_experiment_end(trials)
    assert (tmp_path / KEPT / STATE).read_text() == "final"
