"""Small commands of `arlarena`: what they list, and bad input in one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from study_cases import study, trial

from tune_experiments import sweep
from tune_experiments.cli import main
from tune_experiments.study_report import write_report


def test_environments_are_listed_with_their_panels_and_the_mixture(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("arlarena/Guess-v0 ") and "panel" in line for line in lines)
    assert lines[-1].startswith("arlarena/Mixture-v0 ") and "env_config={envs: {name: {env: id" in lines[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep", "nope"], "study 'nope' is not a file. Shipped: advantages, "),
        (["models", "smollm2", "FILE/below"], "is a file. Give a directory for the model."),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "FILE").touch()
    assert main([text.replace("FILE", str(tmp_path / "FILE")) for text in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("configuration error: ") and message in line


def test_stopped_study_says_once_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(signal, "raise_signal", lambda number: None)  # it would end what Tune runs

    def stopped(study: Any, **options: Any) -> None:
        sweep._end_study(Mock())
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "sweep", stopped)
    assert main(["sweep", "methods", "run.name=mine", "--retry-failed"]) == 130
    output = capsys.readouterr()
    assert (output.out + output.err).count("--resume") == 1
    assert "continue with: arlarena sweep methods run.name=mine --resume" in output.err


def test_failed_trials_are_told_with_the_command_that_runs_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = study([trial("sampo", 1, None, status="failed", reason="no memory")])

    def ended(*_: Any, **options: Any) -> sweep.StudyOutcome:
        return sweep.StudyOutcome(tmp_path, record, write_report(record, tmp_path), record.trials)

    monkeypatch.setattr(sweep, "sweep", ended)
    assert main(["sweep", "methods", "--size", "cpu"]) == 1
    error = capsys.readouterr().err
    assert "failed:  sampo default seed 1: no memory" in error
    assert "run them again with: arlarena sweep methods --size cpu --retry-failed" in error


def test_a_trial_of_the_command_finds_relative_paths_where_the_command_was_given() -> None:
    command = "import os, tune_experiments.cli; print(os.environ['RAY_CHDIR_TO_TRIAL_DIR'])"
    without = {name: value for name, value in os.environ.items() if name != "RAY_CHDIR_TO_TRIAL_DIR"}
    told = subprocess.run([sys.executable, "-c", command], env=without, capture_output=True, text=True, check=True)
    assert told.stdout == "0\n"
