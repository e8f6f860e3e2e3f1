"""A trial of a study that failed stays so on --resume, and goes on from its checkpoint on --retry-failed."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import pytest
from tune_cases import Counter

from tune_experiments import study_tuner, sweep
from tune_experiments.progress import ProgressDisplay
from tune_experiments.study_config import Study, load_study
from tune_experiments.study_journal import FAILED, FINISHED, StudyJournal
from tune_experiments.study_plan import CONFIRM, SEARCH, TrialKey
from tune_experiments.study_results import TESTS, TaskTrials
from tune_experiments.study_retry import failed_to_retry
from tune_experiments.study_searcher import StudySearcher
from tune_experiments.study_settings import StabilitySettings

STUDY = """
environment: {env: arlarena/Guess-v0}
evaluation: {evaluation_interval: 2}
run: {iterations: 4, checkpoint_frequency: 2, max_failures: 0}
study: {arms: {a: {training.method: grpo}}, confirm_seeds: [1, 2], stop_on_collapse: []}
"""


def _config(key: TrialKey) -> dict[str, Any]:
    return {"fail_at": 3 if key.seed == 2 else 0}


class Trials:
    """One task of a study with a trainable that counts; each call of `run` is a command of its own."""

    def __init__(self, folder: Path) -> None:
        (folder / "study.yaml").write_text(STUDY)
        self.study: Study = load_study(folder / "study.yaml")
        self.said = io.StringIO()
        self.folder = folder / "task"
        self.folder.mkdir()
        self.broken = folder / "broken"
        self.broken.touch()

    def run(self, *, resume: bool = True, retry_failed: bool = False) -> StudyJournal:
        """Run what is left, and return the journal."""
        progress = ProgressDisplay(stream=self.said)
        searcher = StudySearcher(self.study.plan(), _config, self.folder, self.study.stability, 4, concurrent=1)
        if retry_failed:
            sweep._retry_failed(TaskTrials("task", self.folder, {}, searcher.journal), progress)
        base: Any = {"fail_at": 0, "iterations": 4, "sleep_s": 0.0, "broken": str(self.broken)}
        study_tuner.study_tuner(self.study, base, self.folder, searcher, [], resume=resume, progress=progress).fit()
        assert searcher.is_over
        return searcher.journal


@pytest.fixture
def after_a_failure(ray_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Trials, StudyJournal]:
    """A study whose trial of seed 2 failed for a reason that is gone now, and its journal."""
    monkeypatch.setattr(study_tuner, "ARLArena", Counter)
    trials = Trials(tmp_path)
    first = trials.run(resume=False)
    trials.broken.unlink()
    return trials, first


def test_failed_trial_goes_on_from_its_checkpoint_only_when_asked(after_a_failure: tuple[Trials, StudyJournal]) -> None:
    trials, first = after_a_failure
    (failed,) = [trial for trial in first.trial_ids() if first.how_ended(trial) == FAILED]
    assert first.keys()[failed] == TrialKey("a", 0, CONFIRM, 2)
    (trials.folder / TESTS).mkdir()
    old_test = trials.folder / TESTS / f"{first.keys()[failed]}.json"
    old_test.touch()
    resumed = trials.run()
    assert resumed.how_ended(failed) == FAILED and old_test.exists()
    retried = trials.run(retry_failed=True)
    assert {retried.how_ended(trial) for trial in retried.trial_ids()} == {FINISHED}
    assert retried.trial_ids() == first.trial_ids() and not old_test.exists()
    assert retried.repeated(failed) == 0  # its checkpoint was that of iteration 2, and it failed in the third
    assert [path.name for path in trials.folder.glob("trials.*")] == ["trials.0"]


def test_failed_trial_whose_notes_are_gone_starts_anew_beside_them(
    after_a_failure: tuple[Trials, StudyJournal],
) -> None:
    trials, first = after_a_failure
    for notes in (trials.folder / "trials.0").glob("experiment_state-*.json"):
        notes.unlink()
    again = trials.run(retry_failed=True)
    assert {again.how_ended(trial) for trial in again.trial_ids()} == {FINISHED}
    assert sorted(again.keys().values()) == sorted(first.keys().values())
    assert len({*again.trial_ids()} - {*first.trial_ids()}) == 1
    assert trials.run().trial_ids() == again.trial_ids()


def test_trial_whose_folder_was_deleted_starts_anew_and_the_message_says_so(
    after_a_failure: tuple[Trials, StudyJournal],
) -> None:
    trials, first = after_a_failure
    good, failed = first.trial_ids()
    for trial in (good, failed):
        shutil.rmtree(next(trials.folder.glob(f"trials.0/*-{trial}")))
    again = trials.run(retry_failed=True)
    assert "the newest checkpoint of trial a-0-confirm-seed2 is gone; it starts anew" in trials.said.getvalue()
    assert {again.how_ended(trial) for trial in again.trial_ids()} == {FINISHED}
    assert again.trial_ids()[0] == good and failed not in again.trial_ids()
    assert TaskTrials("task", trials.folder, {}, again).without_folder() == [TrialKey("a", 0, CONFIRM, 1)]


def test_failed_search_trial_is_retried_only_before_its_arm_is_confirmed(tmp_path: Path) -> None:
    journal = StudyJournal(tmp_path / "journal.jsonl", StabilitySettings(), 4)
    for trial, arm, purpose in (("t1", "a", SEARCH), ("t2", "b", SEARCH), ("t3", "b", CONFIRM)):
        journal.started(trial, TrialKey(arm, 0, purpose, 0))
        journal.ended(trial, FAILED)
    assert failed_to_retry(journal) == ["t1", "t3"]
