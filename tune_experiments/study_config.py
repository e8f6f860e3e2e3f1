"""Reads a study: a run configuration with one more section, `study`, that says which arms are compared and how."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from os.path import isfile
from pathlib import Path

from arlarena_rllib.config import ARLArenaConfig
from arlarena_rllib.errors import ConfigError
from tune_experiments.method_grids import Setting
from tune_experiments.population import MUTATIONS
from tune_experiments.run_config import STUDIES, RunConfig, Sections, build_run_config, read_sections, shipped_config
from tune_experiments.schedulers import PBT
from tune_experiments.study_arms import ARMS, GRID, TASKS, Arm, read_arms, read_tasks
from tune_experiments.study_plan import PlannedArm, StudyPlan
from tune_experiments.study_settings import STUDY, StabilitySettings, StudySettings, read_settings, read_stability
from tune_experiments.yaml_file import Places, place_of

_MOST_COMBINATIONS = 256
"""Of mutations, that are checked together; a check takes milliseconds."""


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
    if misplaced := next((key for key in sections if key in {f.name for f in fields(StudySettings)}), None):
        raise ConfigError(
            f"{misplaced!r} ({name}) is not a section but a key of section study: write study.{misplaced}."
        )
    own = {key: place for key, place in places.items() if key[0] == STUDY}
    settings = read_settings(given, own, name)
    if settings.base or size is not None:
        sections, below = _over_base(sections, settings.base, size, own, name)
        places = {**below, **places}
    study = Study(
        settings=settings,
        stability=read_stability(settings.stability, own, name),
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


# --- its base ----------------------------------------------------------------------------------------------------


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
