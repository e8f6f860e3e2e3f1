"""The record of a study: arms, trials, their curves and tests, as one JSON file; knows neither Ray nor torch.

Numbers that are not finite are null in the file and NaN when read: the file is strict JSON.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from arlarena_rllib.errors import CheckpointError, ConfigError, nearest
from tune_experiments.mlflow_names import plain

PURPOSES = ("search", "confirm")
STATUSES = ("finished", "stopped", "failed")
STABILITY_KEYS = ("metric", "tail_fraction", "threshold", "max_drop")


class JsonRecord:
    """A dataclass that is one JSON file."""

    def save(self, path: str | Path) -> Path:
        """Write the record and return the path; a reader sees the old file or the new one, never half of one."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(_strict(plain(asdict(self))), allow_nan=False, separators=(",", ":"))  # type: ignore[call-overload]
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o644)  # mkstemp's file is its owner's alone
            os.replace(name, target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        return target

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the record in a file.

        Raises:
            CheckpointError: the file is missing, is not JSON, or does not hold such a record; the message names the file
                and the key.
        """
        try:
            document = json.loads(Path(path).read_text())
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
        except ValueError as error:  # JSON, or bytes that are not text
            raise CheckpointError(f"{path} is not JSON: {error}.") from error
        try:
            return _build(cls, document, "")
        except ConfigError as error:
            raise CheckpointError(f"{path} does not hold a {cls.__name__}: {error}") from error


@dataclass(frozen=True)
class TestResult:
    """Success of a policy on the fixed test panel of a task.

    Attributes:
        sampled: mean over tasks of the share of won draws, in [0, 1].
        greedy: mean over tasks of the greedy episode's success.
        n: tasks in the panel.
        draws: sampled episodes per task.
        task_sampled: per task, in the panel's order; NaN where all episodes failed.
        task_greedy: the same, greedy.
    """

    __test__ = False  # not a class of tests, whatever pytest makes of the name

    sampled: float
    greedy: float
    n: int
    draws: int
    task_sampled: list[float]
    task_greedy: list[float]


@dataclass(frozen=True)
class TrialRecord(JsonRecord):
    """One training run of a study.

    Attributes:
        trial_id: unique in the study.
        arm: name of its arm.
        task: key of the study's tasks.
        setting: what it changes over its arm, "section.key" -> value; empty = the arm's default.
        seed: of the run.
        purpose: "search" compares settings, "confirm" measures the chosen one.
        status: "finished", "stopped" (ended early on purpose) or "failed".
        reason: why it was stopped or failed.
        history: flat metrics per iteration, under the names of docs/diagnostics.md.
        test: None where it was not tested.
        checkpoint: folder of the last one.
        mlflow_run_id: of its run.
    """

    trial_id: str
    arm: str
    task: str
    setting: dict[str, Any]
    seed: int
    purpose: Literal["search", "confirm"]
    status: Literal["finished", "stopped", "failed"]
    reason: str = ""
    history: list[dict[str, float]] = field(default_factory=list)
    test: TestResult | None = None
    checkpoint: str = ""
    mlflow_run_id: str = ""

    def __post_init__(self) -> None:
        for key, allowed in (("purpose", PURPOSES), ("status", STATUSES)):
            value = getattr(self, key)
            if value not in allowed:
                raise ConfigError(f"trial {self.trial_id!r}: {key}={value!r} must be one of {', '.join(allowed)}.")


@dataclass(frozen=True)
class ArmRecord:
    """A method as the study runs it.

    Attributes:
        name: of the arm.
        method: name in the table of methods.
        axes: aggregation, clipping, advantage, filtering -> choice.
        overrides: what all its trials change over the method, "section.key" -> value.
    """

    name: str
    method: str
    axes: dict[str, str] = field(default_factory=dict)
    overrides: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyRecord(JsonRecord):
    """A study: every arm on every task.

    Attributes:
        name: of the study.
        arms: in the order of the report.
        tasks: task -> env id, panel_hash, test n.
        stability: metric, tail_fraction, threshold, max_drop of the stability rule.
        iterations: of a trial that finishes.
        seeds: "search" and "confirm" -> planned seeds.
        trials: all that were started.
        start_test: task -> the policy that all trials start from, on the same test panel.
        seconds: wall time of the study.
        commit: of the code.
        engine: that sampled.
    """

    name: str
    arms: list[ArmRecord]
    tasks: dict[str, dict[str, Any]]
    stability: dict[str, Any]
    iterations: int
    seeds: dict[str, list[int]]
    trials: list[TrialRecord] = field(default_factory=list)
    start_test: dict[str, TestResult] = field(default_factory=dict)
    seconds: float = math.nan
    commit: str = ""
    engine: str = ""

    def __post_init__(self) -> None:
        missing = [key for key in STABILITY_KEYS if key not in self.stability]
        if missing:
            raise ConfigError(f"stability lacks {', '.join(missing)}; it needs {', '.join(STABILITY_KEYS)}.")
        arms = [arm.name for arm in self.arms]
        if len(set(arms)) < len(arms):
            raise ConfigError(f"arms={arms} must have different names.")
        ids = set()
        for trial in self.trials:
            for key, allowed in (("arm", arms), ("task", list(self.tasks))):
                value = getattr(trial, key)
                if value not in allowed:
                    raise ConfigError(
                        f"trial {trial.trial_id!r}: {key}={value!r} is not one of the study's."
                        f"{nearest(str(value), allowed)} Allowed: {', '.join(allowed)}."
                    )
            if trial.trial_id in ids:
                raise ConfigError(f"trial_id={trial.trial_id!r} is there twice; it must be unique in the study.")
            ids.add(trial.trial_id)


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _build(kind: Any, value: Any, where: str) -> Any:
    """Return ``value`` from JSON as ``kind``, a type of this file's fields; ``where`` is its key for an error."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if is_dataclass(kind):
        return _build_dataclass(kind, _expect(dict, value, where), where)
    if origin is list:
        return [_build(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(_expect(list, value, where))]
    if origin is dict:
        return {key: _build(arguments[1], item, f"{where}.{key}") for key, item in _expect(dict, value, where).items()}
    if origin in (Union, UnionType):
        return None if value is None else _build(next(a for a in arguments if a is not NoneType), value, where)
    if origin is Literal:
        return _expect(str, value, where)
    if kind is float:
        return math.nan if value is None else float(_expect((int, float), value, where))
    return _expect(kind, value, where)


def _build_dataclass(kind: Any, document: Mapping[str, Any], where: str) -> Any:
    prefix = f"{where}." if where else ""
    known = {f.name: f for f in fields(kind)}
    for key in document:
        if key not in known:
            raise ConfigError(f"key {prefix}{key} is not known.{nearest(key, known)} Allowed: {', '.join(known)}.")
    required = [n for n, f in known.items() if f.default is MISSING and f.default_factory is MISSING]
    missing = [f"{prefix}{name}" for name in required if name not in document]
    if missing:
        raise ConfigError(f"key {', '.join(missing)} is missing.")
    hints = get_type_hints(kind)
    return kind(**{key: _build(hints[key], value, f"{prefix}{key}") for key, value in document.items()})


def _expect(kind: Any, value: Any, where: str) -> Any:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kind) or (isinstance(value, bool) and bool not in kinds):
        names = {dict: "an object", list: "a list", str: "text", int: "a whole number", float: "a number"}
        text = repr(value)
        shown = text if len(text) <= 60 else text[:57] + "..."
        raise ConfigError(f"{where or 'the document'}={shown} must be {names[kinds[-1]]}.")
    return value
