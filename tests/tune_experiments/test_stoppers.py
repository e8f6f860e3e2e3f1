"""Each stopper on series made by hand: when it ends a trial, what it remembers when pickled, and what it refuses."""

from __future__ import annotations

import pickle
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.tune import Stopper, TuneError
from ray.tune.stopper import TrialPlateauStopper

from arlarena_rllib.diagnostics import AlarmThresholds
from arlarena_rllib.errors import CheckpointError, ConfigError
from tune_experiments.stoppers import BudgetStopper, CollapseStopper, PlateauStopper, StabilityStopper, stored_stopper

REPOSITORY = Path(__file__).resolve().parents[2]
STEPS = "env_runners/num_env_steps_sampled_lifetime"


def success(iteration: int, value: float) -> dict[str, Any]:
    """A result as Tune hands it over, with a success rate."""
    return {"training_iteration": iteration, "env_runners": {"success_rate": value}, "config": {"lr": 0.1}}


def steps(iteration: int, count: float) -> dict[str, Any]:
    return {"training_iteration": iteration, "env_runners": {"num_env_steps_sampled_lifetime": count}}


def feed(stopper: Stopper, trial_id: str, results: Iterable[dict[str, Any]]) -> list[bool]:
    return [stopper(trial_id, result) for result in results]


def ended_at(stopper: Stopper, values: Iterable[float], trial_id: str = "a") -> int | None:
    """Return the iteration in which a series of success rates was ended, None for never."""
    said = feed(stopper, trial_id, [success(i, value) for i, value in enumerate(values, start=1)])
    return said.index(True) + 1 if True in said else None


# --- stability -----------------------------------------------------------------------------------------------------

STABLE = [0.2, 0.4, 0.6, 0.8, 0.8, 0.8, 0.8, 0.8, 0.74, 0.8]
COLLAPSED = [0.2, 0.4, 0.6, 0.8, 0.8, 0.8, 0.1, 0.1, 0.1, 0.1]


def test_stability_stopper_ends_each_trial_with_its_verdict_and_all_after_the_first_stable_one() -> None:
    stopper = StabilityStopper(10)
    assert (ended_at(stopper, COLLAPSED, "a"), stopper.stop_all()) == (10, False)
    assert (ended_at(stopper, STABLE, "b"), stopper.stop_all()) == (10, True)
    collapsed, stable = stopper.verdicts["a"], stopper.verdicts["b"]
    assert (collapsed.is_steady, collapsed.is_stable, collapsed.tail_len) == (True, False, 2)
    assert collapsed.drop_from_best == pytest.approx(0.7)
    assert stable.is_stable
    assert (stable.tail_mean, stable.tail_var) == pytest.approx((0.77, 0.0009), abs=1e-12)


def test_stability_stopper_hands_its_settings_to_the_rule() -> None:
    """The tail of four is 0.8, 0.8, 0.74, 0.8: mean 0.785, variance 0.000675; 0.015 below the best."""
    wide = StabilityStopper(10, tail_fraction=0.4)
    ended_at(wide, STABLE)
    assert (wide.verdicts["a"].tail_len, wide.verdicts["a"].is_stable) == (4, True)
    for setting in ({"threshold": 0.0006}, {"max_drop": 0.01}):
        strict = StabilityStopper(10, tail_fraction=0.4, **setting)
        ended_at(strict, STABLE)
        assert not strict.verdicts["a"].is_stable


@pytest.mark.parametrize(("stable_trials", "expected"), [(1, [True, True]), (2, [False, True]), (None, [False, False])])
def test_stability_stopper_stops_all_after_so_many_stable_trials(stable_trials: Any, expected: list[bool]) -> None:
    stopper = StabilityStopper(10, stable_trials=stable_trials)
    said = []
    for trial_id in ("a", "b"):
        ended_at(stopper, STABLE, trial_id)
        said.append(stopper.stop_all())
    assert said == expected


def test_stability_stopper_leaves_gaps_out_of_the_curve() -> None:
    """An evaluation in every second iteration: five values, a tail of one."""
    stopper = StabilityStopper(10)
    results = [success(i, 0.5 if i % 2 == 0 else float("nan")) for i in range(1, 11)]
    assert feed(stopper, "a", results) == [False] * 9 + [True]
    assert (stopper.verdicts["a"].tail_len, stopper.verdicts["a"].tail_mean) == (1, 0.5)


def test_stability_stopper_without_the_metric_says_so_at_the_end_with_near_names() -> None:
    stopper = StabilityStopper(3, metric="success_rate")
    assert feed(stopper, "a", [success(i, 0.5) for i in (1, 2)]) == [False, False]
    with pytest.raises(
        ConfigError, match=r"metric='success_rate' has no .* trial a .*Nearest: 'env_runners/success_rate'"
    ):
        stopper("a", success(3, 0.5))
    assert stopper.verdicts == {}


def test_stability_stopper_with_a_tail_without_values_gives_no_verdict() -> None:
    stopper = StabilityStopper(10)
    feed(stopper, "a", [success(i, 0.8) for i in range(1, 9)] + [success(9, float("nan"))])
    with pytest.raises(
        ConfigError, match=r"last 20% of the 10 iterations .*last one is of iteration 8.*here it is nan"
    ):
        stopper("a", success(10, float("nan")))


# --- collapse ------------------------------------------------------------------------------------------------------

QUICK = AlarmThresholds(success_tail=1, success_drop=0.2, format_drop=0.1)


def turns(iteration: int, rate: float, valid: float = 0.9) -> dict[str, Any]:
    return {"training_iteration": iteration, "env_runners": {"success_rate": rate, "format_valid_frac": valid}}


def test_collapse_stopper_ends_the_trial_whose_alarm_fires_and_says_which_signal() -> None:
    stopper = CollapseStopper(QUICK)
    healthy, falling = [turns(i, 0.6) for i in (1, 2, 3)], [turns(1, 0.6), turns(2, 0.5), turns(3, 0.3)]
    said = [(stopper("good", one), stopper("bad", other)) for one, other in zip(healthy, falling, strict=True)]
    assert said == [(False, False), (False, False), (False, True)]
    cause = stopper.signal_of("bad")
    assert cause is not None
    assert (cause.name, cause.iteration, cause.value, cause.limit) == ("success", 3, 0.3, pytest.approx(0.4))
    assert stopper.signal_of("good") is stopper.signal_of("unknown") is None
    assert not stopper.stop_all()


def test_collapse_stopper_listens_to_the_chosen_signals_only() -> None:
    stopper = CollapseStopper(QUICK, signals=["format"])
    series = [turns(1, 0.6, 0.9), turns(2, 0.1, 0.9), turns(3, 0.1, 0.7)]
    assert feed(stopper, "a", series) == [False, False, True]
    assert stopper.signal_of("a").name == "format"  # type: ignore[union-attr]


def test_collapse_stopper_forgets_a_signal_of_its_grace_so_that_a_later_collapse_counts() -> None:
    stopper = CollapseStopper(QUICK, grace=4)
    rates = [0.5, 0.1, 0.6, 0.6, 0.6, 0.2]  # a dip in 2; then the collapse in 6
    assert ended_at(stopper, rates) == 6
    assert ended_at(CollapseStopper(QUICK), rates) == 2
    assert ended_at(CollapseStopper(QUICK, grace=4), [0.6, 0.1, 0.1, 0.1]) == 4  # still down when the grace ends


# --- budget --------------------------------------------------------------------------------------------------------


def test_budget_stopper_per_trial_ends_each_trial_at_its_budget() -> None:
    stopper = BudgetStopper(100, metric=STEPS)
    assert feed(stopper, "a", [steps(1, 60), steps(2, 99), steps(3, 100)]) == [False, False, True]
    assert feed(stopper, "b", [steps(1, 99)]) == [False]
    assert stopper.spent == {"a": 100.0, "b": 99.0}
    assert not stopper.stop_all()


def test_budget_stopper_per_experiment_ends_all_at_the_sum() -> None:
    stopper = BudgetStopper(100, metric=STEPS, per="experiment")
    assert feed(stopper, "a", [steps(1, 30), steps(2, 60)]) == [False, False]  # a has spent 60, not 90
    assert feed(stopper, "b", [steps(1, 39)]) == [False]
    assert not stopper.stop_all()
    assert feed(stopper, "b", [steps(2, 40)]) == [True]
    assert stopper.stop_all()


def test_budget_stopper_without_the_metric_says_so_at_once_with_near_names() -> None:
    stopper = BudgetStopper(100, metric="env_runners/num_env_steps_lifetime")
    with pytest.raises(ConfigError, match=f"is not in iteration 1 of trial a.*Nearest: '{STEPS}'"):
        stopper("a", steps(1, 10))


def test_budget_stopper_takes_a_counter_that_is_not_yet_a_number_as_nothing_spent() -> None:
    stopper = BudgetStopper(100, metric=STEPS)
    assert feed(stopper, "a", [steps(1, float("nan")), steps(2, 100)]) == [False, True]


# --- plateau -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "values", "expected"),
    [
        ({"patience": 3}, [0.1, 0.5, 0.5, 0.4, 0.5], 5),  # the best is of iteration 2; equal is no improvement
        ({"patience": 3}, [0.1, 0.5, 0.5, 0.4, 0.6, 0.6], None),
        ({"patience": 2, "min_delta": 0.1}, [0.5, 0.55, 0.59], 3),
        ({"patience": 2, "min_delta": 0.1}, [0.5, 0.55, 0.61, 0.65, 0.72], None),  # small steps add up
        ({"patience": 2, "mode": "min"}, [0.5, 0.4, 0.45, 0.41], 4),
        ({"patience": 1, "grace": 4}, [0.5, 0.4, 0.3, 0.2], 4),
        ({"patience": 1, "grace": 4}, [0.5, 0.4, 0.3, 0.6], None),
        ({"patience": 2}, [0.5, float("nan"), float("nan")], 3),  # nothing is no improvement
    ],
)
def test_plateau_stopper_ends_a_trial_whose_best_value_is_old(
    settings: dict[str, Any], values: list[float], expected: int | None
) -> None:
    assert ended_at(PlateauStopper("env_runners/success_rate", **settings), values) == expected


def test_plateau_stopper_without_the_metric_says_so_after_its_patience() -> None:
    stopper = PlateauStopper("env_runners/sucess_rate", patience=2)
    assert feed(stopper, "a", [success(1, 0.1), success(2, 0.1)]) == [False, False]
    with pytest.raises(ConfigError, match=r"no finite value in 3 iterations .*Nearest: 'env_runners/success_rate'"):
        stopper("a", success(3, 0.1))


def test_rays_plateau_stopper_does_not_see_a_nested_metric() -> None:
    """Why there is one here; when this fails, the page about stoppers needs another word."""
    assert ended_at(TrialPlateauStopper("env_runners/success_rate"), [0.5] * 20) is None


# --- memory --------------------------------------------------------------------------------------------------------

MAKE: dict[str, tuple[Callable[[], Any], list[dict[str, Any]], int]] = {
    "stability": (lambda: StabilityStopper(10), [success(i, v) for i, v in enumerate(STABLE, start=1)], 10),
    "collapse": (
        lambda: CollapseStopper(AlarmThresholds(success_tail=2, success_drop=0.2)),
        [turns(i, v) for i, v in enumerate([0.5, 0.6, 0.6, 0.6, 0.4, 0.2, 0.2], start=1)],
        6,  # means 0.6 -> 0.3
    ),
    "budget": (
        lambda: BudgetStopper(100, metric=STEPS, per="experiment"),
        [steps(i, 20 * i) for i in range(1, 6)],
        5,
    ),
    "plateau": (
        lambda: PlateauStopper("env_runners/success_rate", patience=3),
        [success(i, v) for i, v in enumerate([0.3, 0.6, 0.5, 0.4, 0.55], start=1)],
        5,
    ),
}
"""A stopper, a series, and the iteration in which it ends."""


@pytest.mark.parametrize("name", MAKE)
def test_stopper_pickled_anywhere_in_a_series_gives_the_same_verdict(name: str) -> None:
    make, series, end = MAKE[name]
    whole = make()
    assert feed(whole, "a", series).index(True) + 1 == end
    for cut in range(len(series) + 1):
        first = make()
        before = feed(first, "a", series[:cut])
        restored = pickle.loads(pickle.dumps(first))
        assert before + feed(restored, "a", series[cut:]) == [i >= end for i in range(1, len(series) + 1)]
        assert restored.stop_all() == whole.stop_all()
        for told in ("verdicts", "spent", "_causes"):
            assert getattr(restored, told, None) == getattr(whole, told, None)


@pytest.mark.parametrize("name", MAKE)
def test_stopper_does_not_count_repeated_iterations_again(name: str) -> None:
    """A restore begins at the last checkpoint: here three iterations are done again, with worse luck."""
    make, series, end = MAKE[name]
    stopper = make()
    feed(stopper, "a", series[: end - 1])
    again = [
        {**result, "env_runners": {key: 0.0 for key in result["env_runners"]}} for result in series[end - 4 : end - 1]
    ]
    assert feed(stopper, "a", again) == [False] * 3
    assert stopper("a", series[end - 1])
    clean = make()
    feed(clean, "a", series[:end])
    for told in ("verdicts", "spent", "_causes"):
        assert getattr(stopper, told, None) == getattr(clean, told, None)
    later = {**series[0], "training_iteration": end + 1}
    assert feed(stopper, "a", [*again, later]) == [False, False, False, True]  # it ends where it ended, and stays so


def test_stopper_passes_over_a_function_that_returned_without_a_report() -> None:
    for make, _, _ in MAKE.values():
        assert make()("a", {"done": True}) is False


# --- arguments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: StabilityStopper(0), ["StabilityStopper: iterations=0", "whole number from 1"]),
        (lambda: StabilityStopper(True), ["iterations=True"]),
        (lambda: StabilityStopper(5, metric=""), ["metric=''", "env_runners/success_rate"]),
        (lambda: StabilityStopper(5, tail_fraction=0.0), ["tail_fraction=0.0", "in (0, 1]"]),
        (lambda: StabilityStopper(5, tail_fraction=1.1), ["tail_fraction=1.1"]),
        (lambda: StabilityStopper(5, threshold=0), ["threshold=0 ", "above 0"]),
        (lambda: StabilityStopper(5, max_drop=-0.1), ["max_drop=-0.1", "from 0"]),
        (lambda: StabilityStopper(5, stable_trials=0), ["stable_trials=0", "whole number from 1 or None"]),
        (lambda: StabilityStopper(0, max_drop="0.1"), ["iterations=0", "max_drop='0.1'"]),  # all at once
        (lambda: CollapseStopper({"grad_norm_factor": 5}), ["thresholds={'grad_norm_factor': 5}", "AlarmThresholds"]),
        (lambda: CollapseStopper(signals=["sucess"]), ["signals: 'sucess'", "Nearest: 'success'", "ref_kl, format"]),
        (lambda: CollapseStopper(signals="success"), ["signals='success'", "list", "nonfinite_steps, grad_norm"]),
        (lambda: CollapseStopper(signals=[]), ["signals=[]", "at least one"]),
        (lambda: CollapseStopper(grace=-1), ["grace=-1", "whole number from 0"]),
        (lambda: BudgetStopper(0, metric=STEPS), ["budget=0 ", "above 0"]),
        (lambda: BudgetStopper(float("inf"), metric=STEPS), ["budget=inf"]),
        (lambda: BudgetStopper(1, metric=None), ["metric=None"]),
        (lambda: BudgetStopper(1, metric=STEPS, per="trials"), ["per='trials'", "Allowed: trial, experiment"]),
        (lambda: PlateauStopper("loss", mode="low", patience=1), ["mode='low'", "Allowed: max, min"]),
        (lambda: PlateauStopper("loss", patience=0), ["patience=0", "whole number from 1"]),
        (lambda: PlateauStopper("loss", patience=1, min_delta=-1), ["min_delta=-1", "from 0"]),
        (lambda: PlateauStopper("loss", patience=1, grace=1.5), ["grace=1.5"]),
    ],
)
def test_bad_argument_is_refused_with_its_name_its_value_and_what_is_allowed(
    make: Callable[[], Any], words: list[str]
) -> None:
    with pytest.raises(ValueError) as caught:
        make()
    assert [word for word in words if word not in str(caught.value)] == []


# --- Tune ----------------------------------------------------------------------------------------------------------


def trained(results: tune.ResultGrid) -> dict[float, int]:
    """Return how many iterations each trial has done, by its step size."""
    return {result.config["lr"]: result.metrics["training_iteration"] for result in results}


def test_example_of_the_page_ends_before_its_third_trial(
    ray_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs/stoppers.md").read_text(), flags=re.DOTALL)
    names: dict[str, Any] = {"__name__": "page"}
    exec(code, names)
    assert trained(names["results"]) == {1.0: 20, 0.1: 20}
    said = re.findall(r"^\w+_0000\d (stable|0\.7 below its best)$", capsys.readouterr().out, flags=re.MULTILINE)
    assert said == ["0.7 below its best", "stable"]


def saved(experiment: Path) -> StabilityStopper:
    """Return the stored stopper; Tune's last copy of its notes may go on after `fit` has raised."""
    end = time.monotonic() + 30
    while True:
        try:
            return stored_stopper(experiment, StabilityStopper)
        except CheckpointError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def test_restored_experiment_keeps_its_verdicts_and_ends_before_its_third_trial(
    ray_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The experiment breaks in iteration 8 of 10 of the second trial, which begins again after the restore."""
    # Tune copies its notes in the background, and a copy that meets the next writing may stay cut off when it is the last.
    monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", "0.5")
    (tmp_path / "broken").touch()

    def train(config: dict[str, Any]) -> None:
        for i in range(1, 20):
            rate = 0.1 if config["lr"] == 1.0 and i > 6 else 0.8
            if is_broken := config["lr"] == 0.1 and i == 8 and (tmp_path / "broken").exists():
                time.sleep(3)  # the first trial's verdict is saved by then
            tune.report({"env_runners": {"success_rate": rate}, "steps_" if is_broken else "steps": i})

    tuner = tune.Tuner(
        train,
        param_space={"lr": tune.grid_search([1.0, 0.1, 0.01])},
        tune_config=tune.TuneConfig(max_concurrent_trials=1),
        run_config=tune.RunConfig(
            name="grid",
            storage_path=str(tmp_path),
            stop=[StabilityStopper(10), BudgetStopper(1000, metric="steps")],
            verbose=0,
        ),
    )
    with pytest.raises(TuneError, match=r"metric='steps' is not in iteration 8 .*Nearest: 'steps_'"):
        tuner.fit()
    before = saved(tmp_path / "grid")
    assert [verdict.is_stable for verdict in before.verdicts.values()] == [False]

    (tmp_path / "broken").unlink()
    restored = tune.Tuner.restore(str(tmp_path / "grid"), trainable=train, resume_unfinished=True).fit()
    assert trained(restored) == {1.0: 10, 0.1: 10}
    after = stored_stopper(tmp_path / "grid", StabilityStopper)
    assert [verdict.is_stable for verdict in after.verdicts.values()] == [False, True]
    assert before.verdicts.items() <= after.verdicts.items()
    with pytest.raises(CheckpointError, match=r"without a PlateauStopper.* StabilityStopper, BudgetStopper\."):
        stored_stopper(tmp_path / "grid", PlateauStopper)


def test_unreadable_notes_are_named(tmp_path: Path) -> None:
    (tmp_path / "experiment_state-1.json").write_text('{"trial_data": [')
    with pytest.raises(CheckpointError, match=r"experiment_state-1\.json cannot be read"):
        stored_stopper(tmp_path, StabilityStopper)


def test_stored_stopper_of_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"holds no experiment of Tune.*experiment_state-"):
        stored_stopper(tmp_path, StabilityStopper)
