"""Every mistake in a run's YAML or overrides is named with its place, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from arlarena_rllib.errors import ConfigError
from tune_experiments.run_config import load_run_config, shipped_config

CONFIGS = sorted((Path(__file__).resolve().parents[2] / "tune_experiments" / "configs").glob("*.yaml"))


def _write(folder: Path, text: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(text)
    return path


def test_every_shipped_config_loads_and_is_valid() -> None:
    assert len(CONFIGS) >= 3
    for path in CONFIGS:
        load_run_config(path).algorithm("").check_settings()


def test_numbers_in_exponent_form_are_numbers(tmp_path: Path) -> None:
    run = load_run_config(_write(tmp_path, "training: {lr: 5e-4}\nenvironment: {env: arlarena/Guess-v0}"))
    assert run.algorithm("").lr == 5e-4
    assert load_run_config(shipped_config("quickstart"), ["training.lr=3e-5"]).algorithm("").lr == 3e-5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("training: {lrr: 1}", r"'lrr' \(section 'training'\) is not a setting\. Nearest: 'lr'\..*run\.yaml, line 1"),
        ("trainning: {lr: 1}", r"'trainning' \(run\.yaml, line 1\) is not a section\. Nearest: 'training'"),
        ("lr: 1", r"'lr' \(run\.yaml\) must be a section"),
        ("group_size: 4", r"Write it in its section: env_runners\.group_size"),
        ("run:\n  iteration: 3", r"run\.iteration \(run\.yaml, line 2\) is not a setting\. Nearest: 'iterations'"),
        ("run: {iterations: many}", r"run\.iterations='many' \(run\.yaml, line 1\) must be int"),
        ("run: {lr: 3}", r"run\.lr .* is not a setting"),
        ("warm_start: {source: gould}", r"warm_start\.source='gould' must be one of gold, .* \(in run\.yaml, line 1\)"),
        ("warm_start:\n  lr: 0", r"lr=0 a number > 0 \(in run\.yaml, line 2\)"),
        ("warm_start: {seed: 2}", r"warm_start\.seed .* write debugging\.seed"),
        ("run: {name: a}\nrun: {name: b}", r"'run' is given twice \(.*line 2\)"),
        ("run: {name: a", r"run\.yaml is not valid YAML"),
        ("- a", r"run\.yaml must be a mapping of sections"),
        ("env_runners: {groups_per_iteration: 0}", r"env_runners\.groups_per_iteration=0 is not allowed"),
        ("env_runners: {lr: 0.1}", r"'lr' belongs to 'training', write training\.lr"),
        ("run:\n  checkpoints_kept: 0", r"run\.checkpoints_kept=0 \(run\.yaml, line 2\) must be at least 1"),
        ("training: {1: 2}", r"key 1 \(run\.yaml, line 1\) must be a text"),
        ("run: {report_split: dev}", r"run\.report_split='dev' .* must be one of train, validation, test"),
        ("warm_start: {slip: 1.0}", r"warm_start\.slip=1\.0 .* must be below 1"),
        ("warm_start: {cpu_seconds: -1}", r"warm_start\.cpu_seconds=-1 must be a number > 0"),
        ("warm_start: {betas: [0.9]}", r"warm_start\.betas=\[0\.9\] must be two numbers"),
        ("warm_start: {lr: .nan}", r"lr=nan a number > 0"),
        ("policy: {model_path: /nowhere}", r"policy\.model_path \(run\.yaml, line 1\) .* write model\.path"),
    ],
)
def test_mistake_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_run_config(_write(tmp_path, text))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.lrr=1", r"'lrr'.*Nearest: 'lr'.*override 'training\.lrr=1'"),
        ("lr=1", r"'lr=1' is not of the form section\.key=value"),
        ("group_size=1", r"Write env_runners\.group_size=1"),
        ("environment.env_config.hops=2", r"env_config=\{hops: 2\}', with what else .* replaces the whole value"),
        ("training.lr", r"not of the form section\.key=value"),
        ("trainin.lr=1", r"'trainin' \(override 'trainin\.lr=1'\) is not a section\. Nearest: 'training'"),
    ],
)
def test_mistake_in_an_override_is_named(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_run_config(shipped_config("quickstart"), [override])


def test_missing_file_lists_the_shipped_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not a file\. Shipped: .*quickstart"):
        load_run_config(tmp_path / "nothing.yaml")


def test_combination_that_cannot_work_is_named_with_the_places_of_its_keys(tmp_path: Path) -> None:
    text = "environment: {env: arlarena/Guess-v0}\ntraining:\n  method: sampo\nenv_runners: {group_size: 1}"
    run = load_run_config(_write(tmp_path, text), ["training.advantage=gae_token"])
    with pytest.raises(ConfigError, match=r"line 3; override 'training\.advantage=gae_token'\)"):
        run.checked()
    run = load_run_config(_write(tmp_path, text))
    with pytest.raises(ConfigError, match=r"group_size=1: .* \(in run\.yaml, line 3; run\.yaml, line 4\)"):
        run.checked()


def test_cloning_settings_without_cloning_are_told_of() -> None:
    overrides = ["warm_start.source=none", "warm_start.steps=30"]
    assert load_run_config(shipped_config("quickstart"), overrides).unread_warm_start() == [
        "override 'warm_start.steps=30'"
    ]
    assert load_run_config(shipped_config("quickstart"), overrides[1:]).unread_warm_start() == []


def test_key_inside_a_value_is_told_how_to_write() -> None:
    with pytest.raises(ConfigError, match=r"Write 'environment\.env_config=\{panel_seed: 2\}'"):
        load_run_config(shipped_config("quickstart"), ["environment.env_config.panel_seed=2"])
