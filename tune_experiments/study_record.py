"""The record of a study: arms, trials, their curves and tests, as one JSON file; knows neither Ray nor torch."""

from __future__ import annotations

import math
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from arlarena_rllib.errors import CheckpointError, ConfigError, nearest

PURPOSES = ("search", "confirm")
STATUSES = ("finished", "stopped", "failed")
STABILITY_KEYS = ("metric", "tail_fraction", "threshold", "max_drop")


class JsonRecord:
    """A dataclass that is one JSON file; NaN and infinities are written as text, so the file is strict JSON."""

    def save(self, path: str | Path) -> Path:
        """Write the record and return the path; a reader sees the old file or the new one, never half of one."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_adapter(type(self)).dump_json(self) + b"\n")
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
            return _adapter(cls).validate_json(Path(path).read_bytes())
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the document"
            raise CheckpointError(f"{path} does not hold a {cls.__name__}: {where}: {first['msg']}.") from error
        except ConfigError as error:
            raise CheckpointError(f"{path} does not hold a {cls.__name__}: {error}") from error


def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(with_config(ConfigDict(extra="forbid", ser_json_inf_nan="strings"))(kind))


@dataclass(frozen=True)
class TestResult(JsonRecord):
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
        repeated: iterations that were done again after a stop or a kill.
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
    repeated: int = 0
    test: TestResult | None = None
    checkpoint: str = ""
    mlflow_run_id: str = ""

    def __post_init__(self) -> None:
        for key, allowed in (("purpose", PURPOSES), ("status", STATUSES)):
            value = getattr(self, key)
            if value not in allowed:
                raise ConfigError(f"trial {self.trial_id!r}: {key}={value!r} must be one of {', '.join(allowed)}.")


@dataclass(frozen=True)
class ExchangeRecord:
    """A member of a population that went on from another's checkpoint.

    Attributes:
        iteration: after which it did.
        member: its seed.
        source: seed of the member whose checkpoint it took over.
        before: its own settings that mutate.
        after: those that it went on with.
    """

    iteration: int
    member: int
    source: int
    before: dict[str, Any]
    after: dict[str, Any]


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
        exchanges: task -> exchanges of its population, in order; empty without one.
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
    exchanges: dict[str, list[ExchangeRecord]] = field(default_factory=dict)
    seconds: float = math.nan
    commit: str = ""
    engine: str = ""

    def __post_init__(self) -> None:
        missing = [key for key in STABILITY_KEYS if key not in self.stability]
        if missing:
            raise ConfigError(f"stability lacks {', '.join(missing)}; it needs {', '.join(STABILITY_KEYS)}.")
        for key in STABILITY_KEYS[1:]:
            value, most = self.stability[key], 1 if key == "tail_fraction" else math.inf
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or not 0 <= value <= most or (value == 0 and most == 1):
                raise ConfigError(
                    f"stability.{key}={value!r} must be a number {'in (0, 1]' if most == 1 else 'from 0'}."
                )
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
