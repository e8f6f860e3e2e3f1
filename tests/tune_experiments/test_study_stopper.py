"""A stability metric that no trial reports ends the study with the first iteration that should have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tune_cases import counter_tuner

from arlarena_rllib.errors import ConfigError
from tune_experiments.study_config import load_study
from tune_experiments.study_stopper import errors_of_stoppers, study_stopper


def stopper(folder: Path, metric: str) -> Any:
    """Return the stopper of a study with an evaluation in every second iteration."""
    (folder / "study.yaml").write_text(
        "environment: {env: arlarena/Guess-v0}\nevaluation: {evaluation_interval: 2}\nrun: {iterations: 3}\n"
        f"study: {{arms: [grpo], stability: {{metric: {metric}}}}}\n"
    )
    return study_stopper(load_study(folder / "study.yaml"))


def result(iteration: int, **more: Any) -> dict[str, Any]:
    rates = {"success_rate": 0.5, "format_valid_frac": 1.0, "note": "text"}
    return {"training_iteration": iteration, "env_runners": rates, "groups": {"trained": 4}, **more}


def test_unknown_stability_metric_ends_the_first_iteration_with_the_names_there_are(tmp_path: Path) -> None:
    stop = stopper(tmp_path, "env_runners/succes_rate")
    with pytest.raises(ConfigError) as caught:
        stop("t", result(1))
    text = str(caught.value)
    assert "study.stability.metric='env_runners/succes_rate' is not among the metrics of iteration 1." in text
    assert "Nearest: 'env_runners/success_rate'" in text
    assert "There are: env_runners/format_valid_frac, env_runners/success_rate. Start" in text


def test_stability_metric_that_is_no_number_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"metric='env_runners/note' is 'text', not a number, of iteration 1"):
        stopper(tmp_path, "env_runners/note")("t", result(1))


def test_known_stability_metric_is_looked_for_once_and_trials_end_with_their_last_iteration(tmp_path: Path) -> None:
    stop = stopper(tmp_path, "groups/trained")
    assert [stop("t", result(1)), stop("t", result(2, groups={})), stop("t", result(3))] == [False, False, True]


def test_metric_of_the_evaluation_is_looked_for_where_there_is_one(tmp_path: Path) -> None:
    stop = stopper(tmp_path, "evaluation/env_runners/task_type_a_sampled")
    assert not stop("t", result(1))
    with pytest.raises(ConfigError, match=r"of iteration 2\. .*There are: evaluation/env_runners/sampled\."):
        stop("t", result(2, evaluation={"env_runners": {"sampled": 0.5}}))


def test_iteration_without_an_update_tells_nothing_of_the_learner(tmp_path: Path) -> None:
    stop = stopper(tmp_path, "learners/default_policy/entropy")
    assert not stop("t", result(1, batch={"skipped_updates": 1}))
    assert not stop("t", result(2, batch={"skipped_updates": 0}, learners={"default_policy": {"entropy": 0.7}}))


def test_error_of_the_stopper_comes_out_of_tune_in_one_line(ray_cluster: None, tmp_path: Path) -> None:
    tuner = counter_tuner(tmp_path, [], iterations=3)
    tuner._local_tuner.get_run_config().stop = stopper(tmp_path, "env_runners/succes_rate")
    message = (
        r"^study\.stability\.metric='env_runners/succes_rate' is not among .*iteration 1.* Start a new study .*\.$"
    )
    with pytest.raises(ConfigError, match=message), errors_of_stoppers():
        tuner.fit()
