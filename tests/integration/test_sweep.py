"""A study killed in the middle goes on with nothing lost or repeated, and its report counts it."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from integration_cases import SMALL_STUDY
from mlflow.tracking import MlflowClient
from sweep_command import Sweep

from tune_experiments.study_record import StudyRecord

STUDY = (
    SMALL_STUDY
    + """
study: {arms: [grpo, gspo], confirm_seeds: [1], max_settings: 2, stability: {threshold: 0.02}}
run: {name: small, iterations: 3, checkpoint_frequency: 1, report_num_tasks: 8, report_draws: 1, upload_to: "file://COPY"}
evaluation: {evaluation_interval: 2, evaluation_num_tasks: 4}
"""
)
AGGREGATION = {"grpo": "token-mean", "gspo": "seq-mean-token-mean"}


@pytest.fixture(scope="module")
def killed_and_resumed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A study that was stopped by SIGTERM once and by SIGKILL once, then ran to its end; its folder and last output.

    After the first stop only the copy of its folder is there to go on from.
    """
    storage, bucket = tmp_path_factory.mktemp("sweep"), tmp_path_factory.mktemp("bucket")
    study = storage / "study.yaml"
    study.write_text(STUDY.replace("COPY", str(bucket)))
    first = Sweep(study, storage)
    first.wait_for("[grpo-0-search-seed0] iteration 2/3")
    first.process.send_signal(signal.SIGTERM)
    code, text = first.result()
    assert code == 130 and "continue with: arlarena sweep" in text, text[-3000:]
    shutil.rmtree(storage / "small")
    second = Sweep(study, storage, "--resume")
    second.wait_for("-confirm-seed1] iteration 1/3")  # no trial of this kind can have begun before the first stop
    second.signal_all(signal.SIGKILL)
    second.process.wait(60)
    cut = [
        folder / "tests" / f"start-{start.parent.name}.json"
        for folder in (storage / "small").iterdir()
        for start in folder.glob("starts/*/start")
    ]
    for file in cut:
        file.parent.mkdir(exist_ok=True)
        file.write_text('{"sampled": 0.2')
    time.sleep(15)  # Ray's own processes notice within seconds that their driver is gone
    code, text = Sweep(study, storage, "--resume").result()
    assert code == 0, text[-3000:]
    return storage / "small", text


@pytest.mark.timeout(1200)
def test_nothing_is_lost_or_repeated(killed_and_resumed: tuple[Path, str]) -> None:
    folder, text = killed_and_resumed
    record = StudyRecord.load(folder / "study.json")
    assert [trial.status for trial in record.trials] == ["finished"] * len(record.trials)
    assert all([row["training_iteration"] for row in trial.history] == [1, 2, 3] for trial in record.trials)
    keys = Counter((trial.arm, str(trial.setting), trial.purpose, trial.seed) for trial in record.trials)
    assert set(keys.values()) == {1}
    assert {(arm, seed) for arm, _, purpose, seed in keys if purpose == "confirm"} == {("grpo", 1), ("gspo", 1)}
    assert "[grpo-0-search-seed0] iteration 1/3" not in text and "report:" in text


def test_result_that_was_cut_off_is_made_again(killed_and_resumed: tuple[Path, str]) -> None:
    folder, text = killed_and_resumed
    assert re.search(r"start-.*\.json does not hold a TestResult: .* Its policy is tested again\.", text)
    assert 0 <= StudyRecord.load(folder / "study.json").start_test["task"].sampled <= 1


def test_confirmed_policies_are_tested_and_shown(killed_and_resumed: tuple[Path, str]) -> None:
    folder, _ = killed_and_resumed
    record = StudyRecord.load(folder / "study.json")
    tested = [trial.test for trial in record.trials if trial.purpose == "confirm"]
    assert all(test is not None and test.n == len(test.task_sampled) == 8 for test in tested)
    assert record.start_test["task"].n == 8
    assert (folder / "report.html").stat().st_size > 50_000
    assert "| gspo |" in (folder / "report.md").read_text()


def test_mlflow_has_one_run_per_trial_with_each_step_once(killed_and_resumed: tuple[Path, str]) -> None:
    folder, _ = killed_and_resumed
    record = StudyRecord.load(folder / "study.json")
    client = MlflowClient(f"sqlite:///{folder.parent / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("arlarena")
    runs = {run.info.run_id: run for run in client.search_runs([experiment.experiment_id])}
    assert len(runs) == len(record.trials) + 1
    for trial in record.trials:
        run = runs[trial.mlflow_run_id]
        steps = [m.step for m in client.get_metric_history(trial.mlflow_run_id, "training_iteration")]
        assert sorted(steps) == [1, 2, 3]
        assert run.info.status == "FINISHED" and run.data.tags["arm"] == trial.arm
        assert run.data.tags["seed"] == str(trial.seed) and run.data.params["training.method"] == trial.arm
        assert (run.data.tags["method"], run.data.tags["aggregation"]) == (trial.arm, AGGREGATION[trial.arm])
        assert 0 <= run.data.metrics["success"] == run.data.metrics["env_runners/success_rate"] <= 1


def test_other_settings_are_refused_for_a_resumed_study(killed_and_resumed: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = killed_and_resumed
    before = json.loads((folder / "study.json").read_text())
    code, text = Sweep(folder.parent / "study.yaml", folder.parent, "training.lr=1e-4", "--resume").result()
    assert code == 2 and "training.lr=0.0001 was 0.0003" in text
    assert json.loads((folder / "study.json").read_text()) == before
