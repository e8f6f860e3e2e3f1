"""Arms and tasks of a study: names and what each lays over the study's run, as section `study` gives them."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arlarena_rllib.errors import ConfigError, nearest
from arlarena_rllib.presets import find_method
from tune_experiments.method_grids import Setting, grid_of
from tune_experiments.yaml_file import Places, place_of

ARMS, TASKS = ("study", "arms"), ("study", "tasks")
"""Paths of the two keys, as places are asked for."""
GRID, AUTO = "grid", "auto"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}")
_FILES = ("config.yaml", "study.json", "report.html", "report.md")
"""Beside the folders of the tasks."""
_ALONE = ("debugging.seed", "environment.env", "environment.env_config")
"""What an arm may not change: seeds and tasks are the study's."""
_MOST_SETTINGS = 1000
"""Of an arm's grid: each is checked, which takes milliseconds, and a product of ten keys fills the memory."""


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


def read_arms(given: Mapping[str, Any] | Sequence[Any], places: Places, file: str) -> list[Arm]:
    """Return the arms that `study.arms` names.

    Args:
        given: methods, or name -> overrides.
        places: of the keys of section `study`.
        file: of the study, for what has no line.

    Raises:
        ConfigError: a name, a method or a grid makes no sense.
    """
    place = place_of(places, *ARMS, otherwise=file)
    if not given:
        raise ConfigError(f"study.arms ({place}) must name at least one arm: methods, or name -> overrides.")
    if isinstance(given, Mapping):
        return [_arm(name, values, places, file) for name, values in given.items()]
    for name in given:
        if not isinstance(name, str):
            raise ConfigError(
                f"study.arms={list(given)} ({place}): {name!r} is not the name of a method. Write [grpo, gspo] say, or "
                "name -> overrides."
            )
    if len(set(given)) != len(given):
        raise ConfigError(f"study.arms={list(given)} ({place}) names a method twice.")
    return [_arm(name, None, places, file) for name in given]


def _arm(name: str, given: Any, places: Places, file: str) -> Arm:
    where, place = f"study.arms.{name}", place_of(places, *ARMS, name, otherwise=file)
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
            of_method = place_of(places, *ARMS, name, "training.method", otherwise=file)
            raise ConfigError(f"{where}: {error} ({of_method})") from error
    of_grid = place_of(places, *ARMS, name, GRID, otherwise=file)
    return Arm(name, overrides, tuple(_grid(given.get(GRID), method, f"{where}.{GRID}", of_grid)))


def _grid(given: Any, method: Any, where: str, place: str) -> list[Setting]:
    if given is None:
        return []
    if given == AUTO:
        if method is None:
            raise ConfigError(f"{where}='auto' ({place}) needs training.method in the arm.")
        return grid_of(str(method))
    if isinstance(given, Mapping) and given:
        for key, values in given.items():
            if not isinstance(values, list) or not values:
                raise ConfigError(f"{where}.{key}={values!r} ({place}) must be a list of values.")
        _check_count(math.prod(map(len, given.values())), where, place)
        settings = [dict(zip(given, values, strict=True)) for values in itertools.product(*given.values())]
    elif isinstance(given, list) and all(isinstance(setting, Mapping) and setting for setting in given):
        _check_count(len(given), where, place)
        settings = [dict(setting) for setting in given]
    else:
        none = " Leave it out for an arm without a search." if not given else ""
        raise ConfigError(
            f"{where}={given!r} ({place}) must be 'auto', a list of settings, or key -> list of values.{none}"
        )
    for setting in settings:
        _check_names(setting, where, place)
        if "training.method" in setting:
            raise ConfigError(
                f"{where} ({place}) varies training.method: an arm has one method, by which it is reported. Make an arm of each."
            )
    return settings


def _check_count(count: int, where: str, place: str) -> None:
    if count > _MOST_SETTINGS:
        raise ConfigError(f"{where} ({place}) has {count:,} settings; at most {_MOST_SETTINGS:,} are allowed.")


def read_tasks(given: Mapping[str, Any], places: Places, file: str) -> dict[str, Setting]:
    """Return name -> overrides of `study.tasks`; the one task of the file itself when there are none.

    Raises:
        ConfigError: a name or a key makes no sense.
    """
    tasks: dict[str, Setting] = {}
    for name, overrides in given.items():
        where, place = f"study.tasks.{name}", place_of(places, *TASKS, name, otherwise=file)
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
            hint = nearest(str(key), (GRID,))
            raise ConfigError(f"{where}.{key} ({place}) is not of the form section.key.{hint}")
        if key in alone or section == "run":
            raise ConfigError(f"{where}.{key} ({place}) is the study's, not an arm's: set it once for all.")
