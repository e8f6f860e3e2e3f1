"""Section `study` itself: its settings, the stability rule among them, and what is wrong with a value."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from arlarena_rllib.diagnostics import CollapseAlarm
from arlarena_rllib.errors import ConfigError, nearest
from arlarena_rllib.evaluation import PanelResult
from tune_experiments.schedulers import check_scheduler
from tune_experiments.yaml_file import Places, place_of

STUDY = "study"
EVALUATION = "evaluation/env_runners/"
_EVALUATION_NAMES = (
    *(f.name for f in dataclasses.fields(PanelResult) if f.type in ("float", "int")),
    "episode_return_mean",
)
_LISTS = ("confirm_seeds", "stop_on_collapse")


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


def read_settings(given: Mapping[str, Any], places: Places, file: str) -> StudySettings:
    """Return the section's settings; raises :class:`ConfigError` with the key, its place and what is allowed."""
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


def read_stability(given: Mapping[str, Any], places: Places, file: str) -> StabilitySettings:
    """Return ``study.stability``; raises :class:`ConfigError` with the key, its place and what is allowed."""
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
