"""Reads a study: a run configuration with one more section, `study`, that says which arms are compared and how."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os.path import isfile
from pathlib import Path
from typing import Any

from arlarena_rllib.config import ARLArenaConfig
from arlarena_rllib.diagnostics import CollapseAlarm
from arlarena_rllib.errors import ConfigError, nearest
from arlarena_rllib.evaluation import PanelResult
from tune_experiments.method_grids import Setting
from tune_experiments.population import MUTATIONS
from tune_experiments.run_config import STUDIES, RunConfig, Sections, build_run_config, read_sections, shipped_config
from tune_experiments.schedulers import PBT, check_scheduler
from tune_experiments.study_arms import ARMS, GRID, TASKS, Arm, read_arms, read_tasks
from tune_experiments.study_plan import PlannedArm, StudyPlan
from tune_experiments.yaml_file import Places, place_of

STUDY = "study"
EVALUATION = "evaluation/env_runners/"
_EVALUATION_NAMES = (
    *(f.name for f in dataclasses.fields(PanelResult) if f.type != "list[float]" and f.name != "by_task_type"),
    "episode_return_mean",
)
_LISTS = ("confirm_seeds", "stop_on_collapse")
_MOST_COMBINATIONS = 256
"""Of mutations, that are checked together; a check takes milliseconds."""


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
    """``{type: asha, ...}`` or ``{type: pbt, mutations: {training.key: values}, ...}`` with the arguments of Tune's class;
    empty: every trial runs to its end."""


@dataclass(frozen=True)
class Study:
    """A study that was read and checked.

    Attributes:
        settings: section ``study``.
        stability: its stability rule.
        arms: in order.
        tasks: name -> overrides; never empty.
        run: the file's own run, without arms.
        places: of the keys of section ``study``.
    """

    settings: StudySettings
    stability: StabilitySettings
    arms: tuple[Arm, ...]
    tasks: Mapping[str, Setting]
    run: RunConfig
    places: Places = field(default_factory=dict)

    def run_of(self, task: str, arm: Arm | None = None, number: int = 0, seed: int | None = None) -> RunConfig:
        """Return the run of a trial: file, task, arm, setting and seed laid over each other in this order."""
        layers: list[tuple[Setting, tuple[str, ...]]] = [(self.tasks[task], (*TASKS, task))]
        if arm is not None:
            layers += [(arm.overrides, (*ARMS, arm.name)), (arm.settings[number], (*ARMS, arm.name, GRID))]
        if seed is not None:
            layers.append(({"debugging.seed": seed}, (STUDY, "confirm_seeds")))
        return _laid_over(self.run, layers, self.places)

    def name_of(self, task: str, arm: Arm | None = None, number: int = 0) -> str:
        """Return what errors call a trial: the keys of its arm and task, and its setting; "" for the file alone."""
        names = []
        if arm is not None:
            setting = arm.settings[number]
            names.append(f"study.arms.{arm.name}" + (f" with {_words(setting)}" if setting else ""))
        if self.settings.tasks:
            names.append(f"study.tasks.{task}")
        return ", ".join(names)

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
    sections, places, name = read_sections(path, overrides, kind="study")
    given = sections.pop(STUDY, None)
    if given is None:
        raise ConfigError(f"{name} has no section 'study', so it is one run: use `arlarena train`.")
    own = {key: place for key, place in places.items() if key[0] == STUDY}
    settings = _study_settings(given, own, name)
    if settings.base or size is not None:
        sections, below = _over_base(sections, settings.base, size, own, name)
        places = {**below, **places}
    study = Study(
        settings=settings,
        stability=_stability(settings.stability, own, name),
        arms=tuple(read_arms(settings.arms, own, name)),
        tasks=read_tasks(settings.tasks, own, name),
        run=build_run_config(sections, {key: place for key, place in places.items() if key[0] != STUDY}, name),
        places=own,
    )
    _check_trials(study)
    return study


def shipped_study(name: str) -> Path:
    """Return the path of a study that comes with the package, by name or as a path."""
    shipped = STUDIES / f"{name}.yaml"
    return shipped if isfile(shipped) else Path(name)


# --- the section --------------------------------------------------------------------------------------------------


def _study_settings(given: Mapping[str, Any], places: Places, file: str) -> StudySettings:
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


def _stability(given: Mapping[str, Any], places: Places, file: str) -> StabilitySettings:
    fields = {f.name for f in dataclasses.fields(StabilitySettings)}
    for key, value in given.items():
        name, place = f"study.stability.{key}", place_of(places, STUDY, "stability", key, otherwise=file)
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


def _over_base(
    sections: Sections, base: Mapping[str, str], size: str | None, places: Places, file: str
) -> tuple[Sections, Places]:
    """Return the sections laid over those of the base of this size, and where the base's keys are from."""
    chosen = next(iter(base), None) if size is None else size
    if chosen is None or chosen not in base:
        place = place_of(places, STUDY, "base", otherwise=file)
        raise ConfigError(f"--size={size!r} is not among study.base ({place}): {', '.join(base) or 'it has no sizes'}.")
    where = f"study.base.{chosen}={base[chosen]!r} ({place_of(places, STUDY, 'base', chosen, otherwise=file)})"
    own = shipped_config(base[chosen])
    if not isfile(own) and isfile(shipped_study(base[chosen])):
        raise ConfigError(f"{where} is a study itself; it must be a run configuration.")
    try:
        below, of_base, _ = read_sections(own)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    if STUDY in below:
        raise ConfigError(f"{where} is a study itself; it must be a run configuration.")
    return {name: {**below.get(name, {}), **sections.get(name, {})} for name in {**below, **sections}}, of_base


# --- its trials ----------------------------------------------------------------------------------------------------


def _laid_over(run: RunConfig, layers: Sequence[tuple[Setting, tuple[str, ...]]], places: Places) -> RunConfig:
    """Return the run with ``section.key`` values replaced; every layer goes through the same checks as the file.

    Args:
        run: below.
        layers: values, and the path of the key that they stand under.
        places: of such keys.
    """
    sections = {name: dict(values) for name, values in run.given.items()}
    of_values = dict(run.places)
    for layer, path in layers:
        for key, value in layer.items():
            section, _, name = key.partition(".")
            sections.setdefault(section, {})[name] = value
            of_values[section, name] = place_of(places, *path, key, otherwise=run.place)
    return build_run_config(sections, of_values, run.place)


def _check_trials(study: Study) -> None:
    """Refuse settings that cannot work, trials that would be the same, and a choice that is made on the test tasks."""
    of_tasks: dict[str, str] = {}
    for task in study.tasks:
        with naming(study.name_of(task)):
            run = study.run_of(task)
            resolved = repr(run.resolved(run.checked()))
        if resolved in of_tasks:
            place = place_of(study.places, *TASKS, task, otherwise=run.place)
            raise ConfigError(
                f"study.tasks.{task} ({place}) is the same as study.tasks.{of_tasks[resolved]}: leave one out."
            )
        of_tasks[resolved] = task
    for task in study.tasks:
        seen: dict[str, str] = {}
        for arm in study.arms:
            for number in range(len(arm.settings)):
                name = study.name_of(task, arm, number)
                with naming(name):
                    run = study.run_of(task, arm, number)
                    config = run.checked()
                    _check_evaluation(run, config)
                    _check_metric(study.stability.metric, config)
                    resolved = repr(run.resolved(config))
                if resolved in seen:
                    place = place_of(study.places, *ARMS, arm.name, otherwise=run.place)
                    raise ConfigError(f"{name} is the same configuration as {seen[resolved]} ({place}): leave one out.")
                seen[resolved] = name
        _check_population(study, task)


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Put the name of a trial before what is wrong with it."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}" if name else str(error)) from None


def _check_population(study: Study, task: str) -> None:
    """Refuse population-based training over what cannot be exchanged, and mutations that no trial could take."""
    given, (arm, *others) = study.settings.scheduler, study.arms
    if given.get("type") != PBT:
        return
    run = study.run_of(task, arm)
    interval, every = given.get("perturbation_interval", 1), run.checked().evaluation_interval
    if others or len(arm.settings) > 1:
        problem = "needs one arm without a grid: its members exchange checkpoints and settings"
    elif len(study.settings.confirm_seeds) < 2:
        problem = "needs two or more study.confirm_seeds: each is a member of the population"
    elif study.settings.max_concurrent is not None:
        problem = "goes without study.max_concurrent: all members are there from the start and share the cluster"
    elif every and interval % every:
        problem = f"needs a perturbation_interval that is a multiple of evaluation.evaluation_interval={every}"
    elif (first := max(interval, given.get("burn_in_period", 0))) >= run.run.iterations:
        problem = (
            f"would exchange nothing: its first exchange is after iteration {first:g}, and "
            f"run.iterations={run.run.iterations}"
        )
    else:
        problem = ""
    place = place_of(study.places, STUDY, "scheduler", otherwise=run.place)
    if problem:
        raise ConfigError(f"study.scheduler.type={PBT!r} ({place}) {problem}.")
    mutations = given[MUTATIONS]
    settings = [{key: value} for key, values in mutations.items() for value in values]
    if len(mutations) > 1 and math.prod(map(len, mutations.values())) <= _MOST_COMBINATIONS:
        settings += [dict(zip(mutations, values, strict=True)) for values in itertools.product(*mutations.values())]
    for setting in settings:
        words = ", ".join(f"{key}={value!r}" for key, value in setting.items())
        with naming(f"study.scheduler.{MUTATIONS}.{words} ({place})"):
            _laid_over(run, [(setting, (STUDY, "scheduler", MUTATIONS))], study.places).checked()


def _check_metric(metric: str, config: ARLArenaConfig) -> None:
    if metric.startswith("prompts/") and not config.prompt_dependence_interval:
        raise ConfigError(f"study.stability.metric={metric!r} needs reporting.prompt_dependence_interval.")


def _check_evaluation(run: RunConfig, config: ARLArenaConfig) -> None:
    interval, split = config.evaluation_interval, run.run.report_split
    if not interval or interval > run.run.iterations:
        problem = (
            f"evaluation.evaluation_interval={interval!r} with run.iterations={run.run.iterations}: settings are chosen by "
            "evaluations, and there would be none."
        )
        raise ConfigError(run.placed(problem))
    if config.evaluation_split == split:
        problem = (
            f"evaluation.evaluation_split={split!r} and run.report_split={split!r}: settings would be chosen and "
            "reported on the same tasks."
        )
        raise ConfigError(run.placed(problem))


def _words(setting: Setting) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in setting.items())
