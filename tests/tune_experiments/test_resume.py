"""A run whose notes by Tune are lost does not begin anew over its checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from arlarena_rllib.errors import CheckpointError, ConfigError
from arlarena_rllib.whole_checkpoint import write_manifest
from tune_experiments.resume import check_unchanged, refuse_lost_notes


def test_whole_checkpoint_without_notes_is_named(tmp_path: Path) -> None:
    for number in (0, 1):
        folder = tmp_path / "ARLArena_1" / f"checkpoint_{number:06d}"
        folder.mkdir(parents=True)
        (folder / "weights").write_text("w")
        write_manifest(folder)
    with pytest.raises(CheckpointError, match=r"checkpoint_000001, is whole\. Start anew without --resume"):
        refuse_lost_notes(tmp_path)


def test_setting_that_is_younger_than_the_run_changes_nothing_by_default(tmp_path: Path) -> None:
    trials = tmp_path / "trials"
    trials.mkdir()
    for name in ("experiment_state-1.json", "tuner.pkl"):
        (trials / name).touch()
    (tmp_path / "config.yaml").write_text("reporting: {stop_on_collapse: false}")
    check_unchanged(tmp_path, {"reporting": {"stop_on_collapse": False, "record_trajectories": 0}})
    with pytest.raises(ConfigError, match=r"reporting\.record_trajectories=8 was None"):
        check_unchanged(tmp_path, {"reporting": {"stop_on_collapse": False, "record_trajectories": 8}})


def test_run_that_was_killed_before_its_first_checkpoint_may_begin_anew(tmp_path: Path) -> None:
    (tmp_path / "ARLArena_1" / "checkpoint_000000").mkdir(parents=True)  # begun only: no list of its files
    refuse_lost_notes(tmp_path)
    refuse_lost_notes(tmp_path / "nothing")
