"""The numbers of a study's report: spread over seeds, the stability verdict, paired comparisons, cost."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tune_experiments.study_record import ArmRecord, StudyRecord, TestResult, TrialRecord

if TYPE_CHECKING:
    from arlarena_rllib.objectives import Stability

BEFORE = "evaluation_before/env_runners/sampled"
RESAMPLES = 19_999
ALPHA = 0.05

Decoding = Literal["sampled", "greedy"]


@dataclass(frozen=True)
class Contender:
    """An arm with one confirmed setting on one task; ``setting`` is None where nothing was confirmed."""

    arm: ArmRecord
    task: str
    setting: Mapping[str, Any] | None
    label: str
    trials: tuple[TrialRecord, ...]
    unstarted_seeds: tuple[int, ...]

    @property
    def num_seeds(self) -> int:
        """Seeds that should have a result."""
        return len(self.trials) + len(self.unstarted_seeds)


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation (n - 1) of the finite ones of ``values``; NaN where there are too few."""

    mean: float
    sd: float
    values: tuple[float, ...]

    @property
    def count(self) -> int:
        """Finite values."""
        return len(finite(self.values))


@dataclass(frozen=True)
class Verdict:
    """Whether a trial counts as stable; ``numbers`` are None without a value of the stability metric."""

    is_stable: bool
    words: str
    numbers: Stability | None


@dataclass(frozen=True)
class Comparison:
    """Success of ``first`` minus ``second`` on the shared test panel.

    Attributes:
        difference: mean over tasks of the difference of the means over seeds.
        standard_error: of it, over tasks.
        p: of the sign-flip test, two-sided.
        p_holm: after Holm's correction over all pairs of the task.
        seed_error: standard error of the difference of two means over seeds, from the spread of the seeds alone.
        n: tasks that both have.
    """

    first: str
    second: str
    difference: float
    standard_error: float
    p: float
    p_holm: float
    seed_error: float
    n: int

    @property
    def higher(self) -> str:
        """The one whose success is higher on tasks like these (corrected p < ``ALPHA``), or ""."""
        if not self.p_holm < ALPHA:
            return ""
        return self.first if self.difference > 0 else self.second

    @property
    def is_beyond_seeds(self) -> bool:
        """Whether the difference is more than two standard errors of the seeds; False where they are unknown."""
        return abs(self.difference) > 2 * self.seed_error


@dataclass(frozen=True)
class TaskNumbers:
    """All arms on one task, and every two of them compared."""

    task: str
    rows: tuple[Contender, ...]
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class Cost:
    """What trials have used; NaN where no iteration says."""

    response_tokens: float
    seconds: float
    iterations: int
    trials: int


def finite(values: Iterable[float]) -> list[float]:
    """Return the values without NaN and infinities."""
    return [v for v in values if math.isfinite(v)]


def spread(values: Sequence[float]) -> Spread:
    """Return mean and standard deviation of what is finite."""
    good = finite(values)
    return Spread(fmean(good) if good else math.nan, stdev(good) if len(good) > 1 else math.nan, tuple(values))


def same_setting(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Say whether two settings change the same keys to the same values."""
    return _key(first) == _key(second)


def _key(setting: Mapping[str, Any]) -> str:
    return json.dumps(setting, sort_keys=True, default=str)


def setting_words(setting: Mapping[str, Any]) -> str:
    """Return "default", or the changed keys with their values."""
    return ", ".join(f"{key}={_value_words(value)}" for key, value in setting.items()) or "default"


def _value_words(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def task_numbers(record: StudyRecord, task: str) -> TaskNumbers:
    """Return the arms of a study on one task, compared by sampled success."""
    rows = contenders(record, task)
    return TaskNumbers(task, tuple(rows), tuple(compare_all(rows)))


def contenders(record: StudyRecord, task: str) -> list[Contender]:
    """Return every arm with each setting that was confirmed on ``task``, in the order of the arms."""
    found = []
    for arm in record.arms:
        confirmed = [t for t in record.trials if (t.arm, t.task, t.purpose) == (arm.name, task, "confirm")]
        by_setting: dict[str, list[TrialRecord]] = {}
        for trial in sorted(confirmed, key=lambda t: t.seed):
            by_setting.setdefault(_key(trial.setting), []).append(trial)
        for trials in by_setting.values():
            setting = trials[0].setting
            label = arm.name if len(by_setting) == 1 else f"{arm.name} ({setting_words(setting)})"
            started = {t.seed for t in trials}
            unstarted = tuple(s for s in record.seeds.get("confirm", []) if s not in started)
            found.append(Contender(arm, task, setting, label, tuple(trials), unstarted))
        if not confirmed:
            found.append(Contender(arm, task, None, arm.name, (), tuple(record.seeds.get("confirm", []))))
    return found


def success(contender: Contender, decoding: Decoding) -> Spread:
    """Return test success over the confirm seeds, NaN for a trial without a test."""
    return spread([getattr(t.test, decoding) if t.test else math.nan for t in contender.trials])


def task_means(contender: Contender, decoding: Decoding) -> list[float]:
    """Return success per test task, the mean over the tested seeds; empty if there is none or their panels differ."""
    lists = [task_values(t.test, decoding) for t in contender.trials if t.test]
    if not lists or len({len(values) for values in lists}) > 1:
        return []
    return [spread(values).mean for values in zip(*lists, strict=True)]


def task_values(test: TestResult, decoding: Decoding) -> list[float]:
    """Return success per test task."""
    return test.task_sampled if decoding == "sampled" else test.task_greedy


def difference(first: Sequence[float], second: Sequence[float]) -> tuple[float, float, int]:
    """Return mean and standard error of ``first - second`` paired by task, and n; NaN if the panels differ."""
    from arlarena_rllib.evaluation import paired_difference  # torch comes with it

    if len(first) != len(second) or not first:
        return math.nan, math.nan, 0
    found = paired_difference(first, second)
    return found["difference"], found["standard_error"], int(found["n"])


def compare_all(rows: Sequence[Contender], decoding: Decoding = "sampled") -> list[Comparison]:
    """Return the comparison of every two contenders that were tested on the same panel."""
    means = {row.label: task_means(row, decoding) for row in rows}
    tested = [row for row in rows if means[row.label]]
    pairs = [(a, b) for a, b in combinations(tested, 2) if len(means[a.label]) == len(means[b.label])]
    p_values = [sign_flip_p(means[a.label], means[b.label]) for a, b in pairs]
    found = []
    for (a, b), p, p_holm in zip(pairs, p_values, holm(p_values), strict=True):
        mean, error, n = difference(means[a.label], means[b.label])
        seed_error = math.sqrt(sum(s.sd**2 / max(s.count, 1) for s in (success(a, decoding), success(b, decoding))))
        found.append(Comparison(a.label, b.label, mean, error, p, p_holm, seed_error, n))
    return found


def sign_flip_p(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the two-sided p-value of the mean difference paired by task, from flipping the sign of each difference.

    Per-task differences take few values and many are zero, so neither a normal distribution (t) nor ranks (Wilcoxon,
    which drops the zeros and tests no mean) fit them; this tests the very mean that the report shows. Exact where
    2^n is at most ``RESAMPLES``, otherwise from that many draws with a fixed seed.

    Returns:
        NaN for fewer than two tasks.
    """
    from scipy.stats import permutation_test

    differences = np.array([a - b for a, b in zip(first, second, strict=True) if math.isfinite(a) and math.isfinite(b)])
    if len(differences) < 2:
        return math.nan
    found = permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=RESAMPLES, batch=2000, vectorized=True,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    return float(found.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values after Holm's step-down correction (Holm 1979); NaN stays and does not count as a test."""
    order = sorted((i for i, p in enumerate(p_values) if math.isfinite(p)), key=lambda i: p_values[i])
    adjusted = [math.nan] * len(p_values)
    highest = 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def series(trial: TrialRecord, metric: str) -> list[float]:
    """Return the finite values of a metric over the iterations."""
    return finite(row.get(metric, math.nan) for row in trial.history)


def verdict(trial: TrialRecord, stability: Mapping[str, Any]) -> Verdict:
    """Return the study's stability rule on a trial; one that did not finish is not stable."""
    from arlarena_rllib.objectives import stability_rule  # torch comes with it

    values, before = series(trial, stability["metric"]), series(trial, BEFORE)
    rule = {key: stability[key] for key in ("tail_fraction", "threshold", "max_drop")}
    numbers = stability_rule(values, start=before[0] if before else None, **rule) if values else None
    if trial.status != "finished":
        return Verdict(False, trial.status, numbers)
    if numbers is None:
        return Verdict(False, "not measured", None)
    if numbers.is_stable:
        return Verdict(True, "stable", numbers)
    too = [word for word, holds in (("varies", not numbers.is_steady), ("drops", _drops(numbers, rule))) if holds]
    return Verdict(False, f"unstable: {' and '.join(too)}", numbers)


def _drops(numbers: Stability, rule: Mapping[str, Any]) -> bool:
    return bool(numbers.drop_from_best > rule["max_drop"])


def cost(trials: Sequence[TrialRecord]) -> Cost:
    """Return what the trials have used, all iterations in their histories summed."""
    tokens, seconds = (
        [value for trial in trials for value in series(trial, metric)]
        for metric in ("env_runners/num_response_tokens", "time_this_iter_s")
    )
    return Cost(
        math.fsum(tokens) if tokens else math.nan,
        math.fsum(seconds) if seconds else math.nan,
        sum(len(t.history) for t in trials),
        len(trials),
    )


def counts_once(trial: TrialRecord) -> bool | None:
    """Say whether ``training_iteration`` runs 1..n with nothing lost or repeated; None if an iteration does not say."""
    numbers = [row.get("training_iteration", math.nan) for row in trial.history]
    if not numbers or len(finite(numbers)) < len(numbers):
        return None
    return not trial.repeated and numbers == list(range(1, len(numbers) + 1))
