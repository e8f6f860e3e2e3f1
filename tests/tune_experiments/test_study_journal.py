"""The journal survives kills at any byte, and the searcher draws its next trial from nothing else."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from ray.tune.search import Searcher

from arlarena_rllib.diagnostics.metric_names import EVALUATION_SAMPLED
from arlarena_rllib.errors import CheckpointError
from tune_experiments.study_journal import FAILED, FINISHED, STOPPED, StudyJournal
from tune_experiments.study_plan import CONFIRM, SEARCH, PlannedArm, StudyPlan, TrialKey
from tune_experiments.study_searcher import StudySearcher
from tune_experiments.study_settings import StabilitySettings

KEY, OTHER = TrialKey("a", 0, SEARCH, 0), TrialKey("a", 1, SEARCH, 0)
RULE = StabilitySettings(tail_fraction=0.5, threshold=0.01, max_drop=0.1)
PLAN = StudyPlan((PlannedArm("a", ({}, {"x": 1})),), 0, (1, 2), max_settings=2)


def journal(folder: Path, iterations: int = 4) -> StudyJournal:
    return StudyJournal(folder / "journal.jsonl", RULE, iterations)


def fill(notes: StudyJournal, trial: str, curve: list[float], key: TrialKey = KEY, how: str | None = FINISHED) -> None:
    notes.started(trial, key)
    for iteration, success in enumerate(curve, start=1):
        notes.result(
            trial, {"training_iteration": iteration, "env_runners/success_rate": success, EVALUATION_SAMPLED: success}
        )
    if how is not None:
        notes.ended(trial, how)


def test_verdicts_follow_the_stability_rule(tmp_path: Path) -> None:
    """Tail of two: .5 .52 is level; .2 .8 has variance .09; .1 .1 lies .5 below the best."""
    notes = journal(tmp_path)
    for number, curve in enumerate([[0.4, 0.5, 0.5, 0.52], [0.4, 0.5, 0.2, 0.8], [0.4, 0.6, 0.1, 0.1]]):
        fill(notes, f"t{number}", curve, TrialKey("a", number, SEARCH, 0))
    outcomes = [notes.outcomes()[TrialKey("a", number, SEARCH, 0)] for number in range(3)]
    assert [(o.is_stable, o.value) for o in outcomes if o] == [(True, 0.52), (False, 0.8), (False, 0.1)]


def test_level_curve_below_the_start_is_not_stable(tmp_path: Path) -> None:
    notes = journal(tmp_path)
    notes.started("t", KEY)
    for iteration in range(1, 5):
        before = {"evaluation_before/env_runners/sampled": 0.44} if iteration == 1 else {}
        notes.result("t", {"training_iteration": iteration, "env_runners/success_rate": 0.05, **before})
    notes.ended("t", FINISHED)
    for seen in (notes, journal(tmp_path)):
        verdict = seen.stability("t")
        assert verdict is not None and verdict.is_steady and not verdict.is_stable


@pytest.mark.parametrize("how", [STOPPED, FAILED])
def test_trial_that_did_not_finish_is_not_stable(tmp_path: Path, how: str) -> None:
    notes = journal(tmp_path)
    fill(notes, "t", [0.5, 0.5], how=how)
    outcome = notes.outcomes()[KEY]
    assert outcome is not None and not outcome.is_stable


def test_repeated_iterations_count_once_and_are_counted(tmp_path: Path) -> None:
    notes = journal(tmp_path)
    fill(notes, "t", [0.1, 0.2, 0.3], how=None)
    notes.result("t", {"training_iteration": 3, "env_runners/success_rate": 0.35})
    notes.result("t", {"training_iteration": 4, "env_runners/success_rate": 0.4})
    notes.result("t", {"training_iteration": 5, "env_runners/success_rate": 9.0})  # beyond what was asked for
    notes.ended("t", FINISHED)
    verdict = notes.stability("t")
    assert verdict is not None and verdict.tail_mean == pytest.approx((0.35 + 0.4) / 2)
    assert notes.repeated("t") == 1


def test_journal_cut_at_any_byte_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    notes = journal(tmp_path)
    fill(notes, "t", [0.1, 0.2], how=None)
    whole = (tmp_path / "journal.jsonl").read_bytes()
    for cut in range(len(whole) + 1):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / "journal.jsonl").write_bytes(whole[:cut])
        again = journal(folder)
        assert list(again.keys().values()) == ([KEY] if whole[:cut].count(b"\n") >= 1 else [])
        again.started("u", OTHER)
        assert journal(folder).keys()["u"] == OTHER


def test_broken_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text('{"event": "started", "trial": "t"}\n{}\n')
    with pytest.raises(CheckpointError, match=r"journal\.jsonl, line 1 "):
        journal(tmp_path)


@pytest.mark.parametrize(
    "text", [b"\xff\xfe\n", b'{"event": "result", "trial": "t", "iteration": 1, "success": "x"}\n']
)
def test_bytes_and_values_of_another_kind_are_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "journal.jsonl").write_bytes(text)
    with pytest.raises(CheckpointError, match=r"journal\.jsonl"):
        journal(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "ended", "trial": "t", "how": "won"}',
        '{"event": "lunch", "trial": "t"}',
        '{"event": "result", "trial": "t", "iteration": Infinity}',
        "[" * 5000 + "]" * 5000,
    ],
)
def test_line_of_something_else_is_named_and_kept(tmp_path: Path, line: str) -> None:
    fill(journal(tmp_path), "t", [0.5], how=None)
    file = tmp_path / "journal.jsonl"
    text = f"{file.read_text()}\n{line}\n" + '{"event": "ended"'
    file.write_text(text)
    with pytest.raises(CheckpointError, match=r"journal\.jsonl, line 4 is not an event of a study"):
        journal(tmp_path)
    assert file.read_text() == text


def test_folder_in_the_place_of_the_journal_is_told(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").mkdir()
    with pytest.raises(CheckpointError, match=r"journal\.jsonl cannot be read: Is a directory"):
        journal(tmp_path)


def test_lines_that_are_there_twice_change_nothing(tmp_path: Path) -> None:
    notes = journal(tmp_path)
    fill(notes, "t", [0.5, 0.5], how=FAILED)
    notes.retried("t")
    notes.ended("t", FINISHED)
    file = tmp_path / "journal.jsonl"
    file.write_text("".join(line + line for line in file.read_text().splitlines(True)))
    again = journal(tmp_path)
    assert again.outcomes() == notes.outcomes() and again.how_ended("t") == FINISHED


@pytest.mark.parametrize(
    "key",
    [
        TrialKey("b", 0, SEARCH, 0),
        TrialKey("a", 2, SEARCH, 0),
        TrialKey("a", 0, SEARCH, 1),
        TrialKey("a", 0, CONFIRM, 0),
        TrialKey("a", 0, "play", 0),
    ],
)
def test_trial_of_another_study_is_named(tmp_path: Path, key: TrialKey) -> None:
    fill(journal(tmp_path), "t", [0.5], key)
    with pytest.raises(CheckpointError, match=r"journal\.jsonl: trial t, .* is none of this study's"):
        searcher(tmp_path).journal.keys()


def test_trial_unknown_to_tune_is_free_again(tmp_path: Path) -> None:
    notes = journal(tmp_path)
    fill(notes, "t", [0.5] * 4)
    notes.started("lost", OTHER)
    assert notes.drop_unknown({"t"}) == [OTHER]
    assert journal(tmp_path).keys() == {"t": KEY}


def test_ended_trial_that_tune_has_forgotten_is_kept(tmp_path: Path) -> None:
    """Its notes may be those of an earlier experiment in the same study."""
    notes = journal(tmp_path)
    fill(notes, "t", [0.5] * 4)
    assert notes.drop_unknown({"other"}) == [] and notes.how_ended("t") == FINISHED


def test_retried_trial_runs_until_it_ends_again(tmp_path: Path) -> None:
    notes = journal(tmp_path)
    fill(notes, "t", [0.5, 0.5], how=FAILED)
    notes.retried("t")
    assert (notes.outcomes(), notes.running()) == ({KEY: None}, ["t"])
    assert journal(tmp_path).running() == ["t"]
    for iteration in (2, 3, 4):  # from the checkpoint of the first one
        notes.result("t", {"training_iteration": iteration, "env_runners/success_rate": 0.5})
    notes.ended("t", FINISHED)
    outcome = journal(tmp_path).outcomes()[KEY]
    assert outcome is not None and outcome.is_stable and notes.repeated("t") == 1


# --- the searcher -------------------------------------------------------------------------------------------------


def _config(key: TrialKey) -> dict[str, Any]:
    return {"seed": key.seed, "setting": key.setting}


def searcher(folder: Path) -> StudySearcher:
    return StudySearcher(PLAN, _config, folder, RULE, iterations=2, concurrent=2)


def run_trial(search: StudySearcher, trial: str, curve: list[float]) -> None:
    """Send results as Tune does: the last one comes with the end only."""
    rows = [{"training_iteration": i, "env_runners": {"success_rate": s}} for i, s in enumerate(curve, start=1)]
    for row in rows[:-1]:
        search.on_trial_result(trial, row)
    search.on_trial_complete(trial, rows[-1])


def test_searcher_hands_out_the_plan_and_finishes(tmp_path: Path) -> None:
    search = searcher(tmp_path)
    assert search.suggest("t1") == {"seed": 0, "setting": 0}
    assert search.suggest("t2") is None
    run_trial(search, "t1", [0.9, 0.1])
    assert search.suggest("t2") == {"seed": 0, "setting": 1}
    assert search.name_of("t2") == "a-1-search-seed0"
    run_trial(search, "t2", [0.5, 0.5])
    assert [search.suggest("t3"), search.suggest("t4")] == [{"seed": 1, "setting": 1}, {"seed": 2, "setting": 1}]
    assert not search.is_over and search.suggest("t5") is None
    run_trial(search, "t3", [0.5, 0.5])
    search.on_trial_complete("t4", error=True)
    assert search.suggest("t5") == Searcher.FINISHED and search.is_over
    assert search.journal.how_ended("t4") == FAILED
    assert search.journal.keys()["t3"] == TrialKey("a", 1, CONFIRM, 1)


def test_pickled_searcher_goes_on_from_the_journal(tmp_path: Path) -> None:
    search = searcher(tmp_path)
    search.suggest("t1")
    copy = pickle.loads(pickle.dumps(search))
    run_trial(search, "t1", [0.5, 0.5])
    assert copy.suggest("t2") == {"seed": 1, "setting": 0}


def test_searcher_hands_out_no_more_than_may_run_at_a_time(tmp_path: Path) -> None:
    search = StudySearcher(PLAN, _config, tmp_path, RULE, iterations=2, concurrent=1)
    search.suggest("t1")
    run_trial(search, "t1", [0.5, 0.5])
    assert search.suggest("t2") == {"seed": 1, "setting": 0} and search.suggest("t3") is None
    run_trial(search, "t2", [0.5, 0.5])
    assert search.suggest("t3") == {"seed": 2, "setting": 0}


def test_closed_searcher_hands_out_nothing(tmp_path: Path) -> None:
    search = searcher(tmp_path)
    search.close()
    assert search.suggest("t1") is None and not search.is_over
