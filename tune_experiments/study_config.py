"""Reads a study: a run configuration with one more section, `study`, that says which arms are compared and how."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arlarena_rllib.config import ARLArenaConfig
from arlarena_rllib.diagnostics import CollapseAlarm
from arlarena_rllib.errors import ConfigError, nearest
from arlarena_rllib.evaluation import PanelResult
from arlarena_rllib.presets import find_method
from tune_experiments.method_grids import Setting, grid_of
from tune_experiments.run_config import Places, RunConfig, Sections, build_run_config, read_sections, shipped_config
from tune_experiments.schedulers import check_scheduler
from tune_experiments.study_plan import PlannedArm, StudyPlan

STUDY = "study"
STUDIES = Path(__file__).parent / "configs" / "studies"
GRID, AUTO = "grid", "auto"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}")
_FILES = ("config.yaml", "study.json", "report.html", "report.md")
"""Beside the folders of the tasks."""
EVALUATION = "evaluation/env_runners/"
_EVALUATION_NAMES = (
    *(f.name for f in dataclasses.fields(PanelResult) if f.type != "list[float]" and f.name != "by_task_type"),
    "episode_return_mean",
)
_LISTS = ("confirm_seeds", "stop_on_collapse")
_ALONE = ("debugging.seed", "environment.env", "environment.env_config")
"""What an arm may not change: seeds and tasks are the study's."""


@dataclass(frozen=True)
class StabilitySettings:
    """When a setting is stable; see :func:`arlarena_rllib.objectives.stability_rule`."""

    metric: str = "env_runners/success_rate"
    """Flat name of a metric of every iteration."""
    tail_fraction: float = 0.2
    threshold: float = 2.5e-3
    """On the variance of the tail. Few tasks per iteration make more noise than this; count on success (1 - success) /
    tasks, because episodes of one task are alike."""
    max_drop: float = 0.1


@dataclass(frozen=True)
class StudySettings:
    """Section ``study``."""

    base: dict[str, str] = field(default_factory=dict)
    """Size -> run configuration, shipped or a path, that the file's own sections are laid over; empty: nothing."""
    arms: dict[str, Any] | list[str] = field(default_factory=dict)
    """Names of methods, or name -> overrides ``section.key: value``, with ``grid``: a list of settings, a mapping key ->
    values (all combinations), or ``auto`` (the method's own axes)."""
    tasks: dict[str, Any] = field(default_factory=dict)
    """Name -> overrides ``section.key: value``; empty: the one task of the file itself."""
    search_seed: int = 0
    confirm_seeds: tuple[int, ...] = (1, 2, 3)
    max_settings: int = 8
    """Most settings tried per arm, its default included."""
    tries_all: bool = False
    """Try all settings of an arm and take the best stable one, instead of the first stable one."""
    max_concurrent: int | None = None
    """Most trials side by side; None: as many as the cluster has room for."""
    stop_on_collapse: tuple[str, ...] = ("nonfinite_steps", "evaluation", "success")
    """Signals of the collapse alarm that end a trial, which then counts as not stable; [] = none. The others only warn: a
    format or a gradient often comes back."""
    stability: dict[str, Any] = field(default_factory=dict)
    """Fields of :class:`StabilitySettings`."""
    scheduler: dict[str, Any] = field(default_factory=dict)
    """``{type: asha, ...}`` with the arguments of Tune's class; empty: every trial runs to its end."""


@dataclass(frozen=True)
class Arm:
    """One side of the comparison.

    Attributes:
        name: of the arm.
        overrides: ``section.key`` -> value, over the file's settings.
        grid: settings to try after the default, each ``section.key`` -> value over ``overrides``.
    """

    name: str
    overrides: Setting
    grid: tuple[Setting, ...]

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The default, {}, and the grid."""
        return ({}, *self.grid)


@dataclass(frozen=True)
class Study:
    """A study that was read and checked.

    Attributes:
        settings: section ``study``.
        stability: its stability rule.
        arms: in order.
        tasks: name -> overrides; never empty.
        run: the file's own run, without arms.
    """

    settings: StudySettings
    stability: StabilitySettings
    arms: tuple[Arm, ...]
    tasks: Mapping[str, Setting]
    run: RunConfig

    def run_of(self, task: str, arm: Arm | None = None, number: int = 0, seed: int | None = None) -> RunConfig:
        """Return the run of a trial: file, task, arm, setting and seed laid over each other in this order."""
        layers = [self.tasks[task]]
        if arm is not None:
            layers += [arm.overrides, arm.settings[number]]
        if seed is not None:
            layers.append({"debugging.seed": seed})
        return _laid_over(self.run, layers)

    def plan(self) -> StudyPlan:
        """Return the order of the trials of one task."""
        s = self.settings
        return StudyPlan(
            arms=tuple(PlannedArm(arm.name, arm.settings) for arm in self.arms),
            search_seed=s.search_seed,
            confirm_seeds=tuple(s.confirm_seeds),
            max_settings=s.max_settings,
            tries_all=s.tries_all,
        )

    def arm(self, name: str) -> Arm:
        """Return an arm by name."""
        return next(arm for arm in self.arms if arm.name == name)


def load_study(path: str | Path, overrides: Sequence[str] = (), *, size: str | None = None) -> Study:
    """Return the study that ``path`` describes, every trial of it checked.

    Args:
        path: YAML file.
        overrides: ``section.key=value`` over the file.
        size: key of ``study.base``; None: its first.

    Raises:
        ConfigError: as :func:`~tune_experiments.run_config.load_run_config`; or an arm, a setting or a limit makes no
            sense, two trials would be the same, or a grid varies what its method never reads.
    """
    sections, places, name = read_sections(path, overrides)
    given = sections.pop(STUDY, None)
    if given is None:
        raise ConfigError(f"{name} has no section 'study', so it is one run: use `arlarena train`.")
    own = {key: place for key, place in places.items() if key[0] == STUDY}
    settings = _study_settings(given, own, name)
    if settings.base or size is not None:
        sections, below = _over_base(sections, settings.base, size, own.get((STUDY, "base"), name))
        places = {**below, **places}
    run = build_run_config(sections, {key: place for key, place in places.items() if key[0] != STUDY}, name)
    study = Study(
        settings=settings,
        stability=_stability(settings.stability, own.get((STUDY, "stability"), name)),
        arms=tuple(_arms(settings.arms, own.get((STUDY, "arms"), name))),
        tasks=_tasks(settings.tasks, own.get((STUDY, "tasks"), name)),
        run=run,
    )
    _check_trials(study)
    return study


def shipped_study(name: str) -> Path:
    """Return the path of a study that comes with the package, by name or as a path."""
    shipped = STUDIES / f"{name}.yaml"
    return shipped if shipped.is_file() else Path(name)


# --- the section --------------------------------------------------------------------------------------------------


def _study_settings(given: Mapping[str, Any], places: Mapping[tuple[str, str], str], file: str) -> StudySettings:
    fields = {f.name: f for f in dataclasses.fields(StudySettings)}
    for key, value in given.items():
        place = places.get((STUDY, key), file)
        if key not in fields:
            raise ConfigError(
                f"study.{key} ({place}) is not a setting.{nearest(key, fields)} Allowed: {', '.join(fields)}."
            )
        problem = _problem(key, value)
        if problem:
            raise ConfigError(f"study.{key}={value!r} ({place}) {problem}")
    values: dict[str, Any] = {key: tuple(value) if key in _LISTS else value for key, value in given.items()}
    settings = StudySettings(**values)
    if settings.search_seed in settings.confirm_seeds:
        raise ConfigError(
            f"study.search_seed={settings.search_seed} is among study.confirm_seeds={list(settings.confirm_seeds)} ({file}): "
            "a setting is confirmed on seeds that it was not chosen on."
        )
    if settings.scheduler:
        check_scheduler(settings.scheduler, places.get((STUDY, "scheduler"), file))
    return settings


def _problem(key: str, value: Any) -> str:
    """Return what is wrong with a value of the section, "" if nothing."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if key == "search_seed":
        return "" if whole and 0 <= value < 2**31 else "must be a whole number from 0, below 2**31"
    if key == "max_settings" or (key == "max_concurrent" and value is not None):
        return "" if whole and value >= 1 else "must be a whole number from 1"
    if key == "confirm_seeds":
        is_list = isinstance(value, list) and all(
            isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in value
        )
        is_list = is_list and 0 < len(set(value)) == len(value) and max(value) < 2**31
        return "" if is_list else "must be a list of at least one, different whole numbers from 0, below 2**31"
    if key == "tries_all":
        return "" if isinstance(value, bool) else "must be true or false"
    if key == "stop_on_collapse":
        signals = CollapseAlarm().signal_names
        is_known = isinstance(value, list) and all(name in signals for name in value)
        return "" if is_known else f"must be a list of {', '.join(signals)}"
    if key == "base":
        is_named = isinstance(value, dict) and all(isinstance(name, str) for name in value.values())
        return "" if is_named else "must be size -> name of a run configuration"
    if key in ("tasks", "stability", "scheduler"):
        return "" if isinstance(value, dict) else "must be a mapping"
    return "" if key != "arms" or (isinstance(value, (dict, list)) and value) else "must name at least one arm"


def _stability(given: Mapping[str, Any], place: str) -> StabilitySettings:
    fields = {f.name for f in dataclasses.fields(StabilitySettings)}
    for key, value in given.items():
        name = f"study.stability.{key}"
        if key not in fields:
            raise ConfigError(
                f"{name} ({place}) is not a setting.{nearest(key, fields)} Allowed: {', '.join(sorted(fields))}."
            )
        if key == "metric":
            if not isinstance(value, str) or not value:
                raise ConfigError(
                    f"{name}={value!r} ({place}) must be the name of a metric, env_runners/success_rate say."
                )
            if problem := _metric_problem(value):
                raise ConfigError(f"{name}={value!r} ({place}) {problem}")
            continue
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        low, high = {"tail_fraction": (0.0, 1.0), "threshold": (0.0, 0.25), "max_drop": (0.0, 1.0)}[key]
        if not is_number or not low <= value <= high or (key != "max_drop" and value == low):
            edge = "[" if key == "max_drop" else "("
            raise ConfigError(f"{name}={value!r} ({place}) must be a number in {edge}{low:g}, {high:g}].")
    return StabilitySettings(**given)


def _metric_problem(metric: str) -> str:
    """Return why no iteration has this metric, "" when one may; most names are known only when a trial has reported."""
    if metric.startswith("learner/"):
        return f"is short for learners/default_policy/{metric.removeprefix('learner/')}: write that."
    name = metric.removeprefix(EVALUATION)
    if name == metric or name.startswith("task_type_") or name in _EVALUATION_NAMES:
        return ""
    return f"is no metric of an evaluation.{nearest(name, _EVALUATION_NAMES)} Allowed: {', '.join(_EVALUATION_NAMES)}."


def _over_base(sections: Sections, base: Mapping[str, str], size: str | None, place: str) -> tuple[Sections, Places]:
    """Return the sections laid over those of the base of this size, and where the base's keys are from."""
    chosen = next(iter(base), None) if size is None else size
    if chosen is None or chosen not in base:
        raise ConfigError(f"--size={size!r} is not among study.base ({place}): {', '.join(base) or 'it has no sizes'}.")
    below, places, _ = read_sections(shipped_config(str(base[chosen])))
    return {name: {**below.get(name, {}), **sections.get(name, {})} for name in {**below, **sections}}, places


# --- arms and tasks -----------------------------------------------------------------------------------------------


def _arms(given: Mapping[str, Any] | Sequence[str], place: str) -> list[Arm]:
    if not given:
        raise ConfigError(f"study.arms ({place}) must name at least one arm: methods, or name -> overrides.")
    if isinstance(given, Mapping):
        return [_arm(name, values, place) for name, values in given.items()]
    if len(set(map(str, given))) != len(given):
        raise ConfigError(f"study.arms={list(given)} ({place}) names a method twice.")
    return [_arm(str(name), {"training.method": name, GRID: AUTO}, place) for name in given]


def _arm(name: str, given: Any, place: str) -> Arm:
    where = f"study.arms.{name}"
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{where} ({place}): the name of an arm has up to 64 letters, digits, '_', '-' and '.', no '.' first."
        )
    if given is None:
        given = {"training.method": name, GRID: AUTO}
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where}={given!r} ({place}) must be a mapping section.key -> value.")
    overrides = {key: value for key, value in given.items() if key != GRID}
    _check_names(overrides, where, place)
    method = overrides.get("training.method")
    if method is not None:
        try:
            find_method(str(method))
        except ValueError as error:
            raise ConfigError(f"{where}: {error} ({place})") from error
    return Arm(name, overrides, tuple(_grid(given.get(GRID), method, where, place)))


def _grid(given: Any, method: Any, where: str, place: str) -> list[Setting]:
    where = f"{where}.grid"
    if given is None:
        return []
    if given == AUTO:
        if method is None:
            raise ConfigError(f"{where}='auto' ({place}) needs training.method in the arm.")
        return grid_of(str(method))
    if isinstance(given, Mapping):
        for key, values in given.items():
            if not isinstance(values, list) or not values:
                raise ConfigError(f"{where}.{key}={values!r} ({place}) must be a list of values.")
        settings = [dict(zip(given, values, strict=True)) for values in itertools.product(*given.values())]
    elif isinstance(given, list) and all(isinstance(setting, Mapping) and setting for setting in given):
        settings = [dict(setting) for setting in given]
    else:
        raise ConfigError(f"{where}={given!r} ({place}) must be 'auto', a list of settings, or key -> list of values.")
    for setting in settings:
        _check_names(setting, where, place)
    return settings


def _tasks(given: Mapping[str, Any], place: str) -> dict[str, Setting]:
    tasks: dict[str, Setting] = {}
    for name, overrides in given.items():
        where = f"study.tasks.{name}"
        if not _NAME.fullmatch(str(name)) or name in _FILES:
            raise ConfigError(
                f"{where} ({place}): the name of a task has up to 64 letters, digits, '_', '-' and '.', no '.' first, and is "
                f"none of {', '.join(_FILES)}."
            )
        if not isinstance(overrides, Mapping):
            raise ConfigError(f"{where}={overrides!r} ({place}) must be a mapping section.key -> value.")
        _check_names(overrides, where, place, alone=("debugging.seed",))
        tasks[name] = dict(overrides)
    return tasks or {"task": {}}


def _check_names(overrides: Mapping[Any, Any], where: str, place: str, alone: Sequence[str] = _ALONE) -> None:
    for key in overrides:
        section, dot, name = str(key).partition(".")
        if not dot or not section or not name:
            raise ConfigError(f"{where}.{key} ({place}) is not of the form section.key.")
        if key in alone or section == "run":
            raise ConfigError(f"{where}.{key} ({place}) is the study's, not an arm's: set it once for all.")


def _laid_over(run: RunConfig, layers: Sequence[Setting]) -> RunConfig:
    """Return the run with ``section.key`` values replaced; every layer goes through the same checks as the file."""
    sections = {name: dict(values) for name, values in run.given.items()}
    for layer in layers:
        for key, value in layer.items():
            section, _, name = key.partition(".")
            sections.setdefault(section, {})[name] = value
    return build_run_config(sections, dict(run.places), run.place)


def _check_trials(study: Study) -> None:
    """Refuse settings that cannot work, trials that would be the same, and a choice that is made on the test tasks."""
    for task in study.tasks:
        seen: dict[str, str] = {}
        for arm in study.arms:
            for number, setting in enumerate(arm.settings):
                label = f"study.arms.{arm.name}" + (f" with {_words(setting)}" if setting else "")
                try:
                    run = study.run_of(task, arm, number)
                    config = run.checked()
                    _check_evaluation(run, config)
                    if study.stability.metric.startswith("prompts/") and not config.prompt_dependence_interval:
                        raise ConfigError(
                            f"study.stability.metric={study.stability.metric!r} needs reporting.prompt_dependence_interval."
                        )
                    resolved = repr(run.resolved(config))
                except ConfigError as error:
                    raise ConfigError(f"{label}: {error}") from None
                if resolved in seen:
                    raise ConfigError(f"{label} is the same configuration as {seen[resolved]}: leave one of them out.")
                seen[resolved] = label


def _check_evaluation(run: RunConfig, config: ARLArenaConfig) -> None:
    interval, split = config.evaluation_interval, run.run.report_split
    if not interval or interval > run.run.iterations:
        raise ConfigError(
            f"evaluation.evaluation_interval={interval!r} with run.iterations={run.run.iterations}: settings are chosen by "
            "evaluations, and there would be none."
        )
    if config.evaluation_split == split:
        raise ConfigError(
            f"evaluation.evaluation_split={split!r} and run.report_split={split!r}: settings would be chosen and "
            "reported on the same tasks."
        )


def _words(setting: Setting) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in setting.items())
