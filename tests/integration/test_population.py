"""Population-based training inside a study: a member goes on from another's checkpoint with mutated settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from integration_cases import SMALL_STUDY
from sweep_command import Sweep

from tune_experiments.study_record import StudyRecord

STUDY = (
    SMALL_STUDY
    + """
study:
  arms: {gspo: {training.method: gspo}}
  confirm_seeds: [1, 2]
  stability: {threshold: 0.02}
  stop_on_collapse: []
  scheduler:
    type: pbt
    perturbation_interval: 1
    quantile_fraction: 0.5
    mutations:
      training.lr: [1e-4, 3e-4, 9e-4]
      training.kl_coef: [0.01, 0.05]
      training.clip_low: [0.003, 0.01]
run: {name: population, iterations: 3, checkpoint_frequency: 1, report_num_tasks: 8, report_draws: 1}
evaluation: {evaluation_interval: 1, evaluation_num_tasks: 4}
"""
)


@pytest.mark.timeout(600)
def test_members_exchange_checkpoints_and_mutate_settings(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(STUDY)
    code, text = Sweep(study, tmp_path).result()
    assert code == 0, text[-3000:]
    record = StudyRecord.load(tmp_path / "population" / "study.json")
    assert [(trial.status, trial.test is not None) for trial in record.trials] == [("finished", True)] * 2
    assert all(trial.history[-1]["training_iteration"] == 3 for trial in record.trials)
    (trials,) = (tmp_path / "population").glob("*/trials.0")
    exchanges = [json.loads(line) for line in (trials / "pbt_global.txt").read_text().splitlines()]
    assert exchanges
    for *_, before, after in exchanges:  # each: two tags, two iterations, the donor's settings, the taker's new ones
        assert after["seed"] != before["seed"]
        assert after["method"] == before["method"] == "gspo"
        assert after["lr"] in (1e-4, 3e-4, 9e-4) and after["kl_coef"] in (0.01, 0.05)
        assert before["clip_low"] in (0.003, 0.01) and after["clip_low"] in (0.003, 0.01)
    assert any(after["lr"] != before["lr"] or after["kl_coef"] != before["kl_coef"] for *_, before, after in exchanges)
