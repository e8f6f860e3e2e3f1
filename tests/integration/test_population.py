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
    assert not list(trials.glob("pbt_*"))
    exchanges = record.exchanges[trials.parent.name]
    assert exchanges
    for exchange in exchanges:
        assert {exchange.member, exchange.source} == {1, 2}
        assert exchange.after["lr"] in (1e-4, 3e-4, 9e-4) and exchange.after["kl_coef"] in (0.01, 0.05)
        assert {exchange.before["clip_low"], exchange.after["clip_low"]} <= {0.003, 0.01}
    configs = [json.loads(file.read_text()) for file in trials.glob("*/params.json")]
    assert {config["method"] for config in configs} == {"gspo"} and {config["seed"] for config in configs} == {1, 2}
    report = (tmp_path / "population" / "report.md").read_text()
    assert "members of one population" in report and f"seed {exchanges[0].source}" in report
