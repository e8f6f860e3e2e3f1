"""Plans the episodes of a panel and sums up what came back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from arlarena_rllib.diagnostics import task_type_names
from arlarena_rllib.rollout.agent_loop import EpisodeSpec
from arlarena_rllib.rollout.metrics import env_metrics, trajectory_metrics
from arlarena_rllib.trajectory import Trajectory

GREEDY_MEMBER = 0
Z95 = 1.959963984540054


@dataclass(frozen=True)
class PanelResult:
    """Success on a panel of ``n`` tasks.

    ``greedy`` and ``sampled`` are means over tasks (``sampled`` first over the draws of a task); ``ci95`` is the
    half-width of the 95 % interval of ``sampled`` (of ``greedy`` when nothing was sampled) over tasks. The lists have
    one entry per task, NaN for a task all of whose episodes failed. ``at_k`` has ``pass_at_<k>`` for k = 1, 2, 4, .. and all
    the draws, and ``avg_at_<draws>``; {} with fewer than two draws. ``by_task_type`` has ``task_type_<type>_greedy``,
    ``_sampled`` and ``_n`` (its tasks) of each type; {} unless the panel has tasks of several types. ``env_metrics`` are
    the means of what the environment counts of an episode, over the episodes that ``score`` is of, and
    ``task_env_metrics`` the same by task, NaN for a task without such a number.
    """

    greedy: float
    sampled: float
    n: int
    draws: int
    ci95: float
    greedy_ci95: float
    score: float
    turns: float
    format_valid: float
    failed: int
    task_greedy: list[float]
    task_sampled: list[float]
    by_task_type: dict[str, float]
    env_metrics: dict[str, float]
    at_k: dict[str, float]
    task_env_metrics: dict[str, list[float]]

    def summary(self) -> dict[str, Any]:
        """Return the result without the per-task lists, the numbers by k, type and environment beside the others."""
        parts = self.at_k | self.by_task_type | self.env_metrics
        lists = ("task_greedy", "task_sampled", "at_k", "by_task_type", "env_metrics", "task_env_metrics")
        return {k: v for k, v in asdict(self).items() if k not in lists} | parts


def panel_episodes(task_ids: Sequence[str], *, draws: int, seed: int) -> list[EpisodeSpec]:
    """Return one greedy episode and ``draws`` sampled ones per task; seeds depend on task number and draw only."""
    episodes = []
    for number, task_id in enumerate(task_ids):
        for member in range(draws + 1):
            state = np.random.SeedSequence([seed, 0x6576, number, member]).generate_state(1)
            episodes.append(EpisodeSpec(number, member, task_id, int(state[0] % 2**31), greedy=member == GREEDY_MEMBER))
    return episodes


def summarise_panel(trajectories: Sequence[Trajectory], *, n: int) -> PanelResult:
    """Return the :class:`PanelResult` of the episodes that :func:`panel_episodes` planned for ``n`` tasks."""
    good = [t for t in trajectories if not t.stop_reason.is_failed_episode]
    greedy = [[float(t.success) for t in good if t.group_id == i and t.member == GREEDY_MEMBER] for i in range(n)]
    sampled = [[float(t.success) for t in good if t.group_id == i and t.member != GREEDY_MEMBER] for i in range(n)]
    task_greedy, task_sampled = [_mean(x) for x in greedy], [_mean(x) for x in sampled]
    shown = [t for t in good if t.member != GREEDY_MEMBER] or good
    metrics = trajectory_metrics(shown)
    draws = max((len(x) for x in sampled), default=0)
    greedy_ci95 = interval95(task_greedy)
    return PanelResult(
        greedy=_nanmean(task_greedy),
        sampled=_nanmean(task_sampled),
        n=n,
        draws=draws,
        ci95=interval95(task_sampled) if draws else greedy_ci95,
        greedy_ci95=greedy_ci95,
        score=metrics.get("episode_return_mean", math.nan),
        turns=metrics.get("episode_len_mean", math.nan),
        format_valid=metrics.get("format_valid_frac", math.nan),
        failed=len(trajectories) - len(good),
        task_greedy=task_greedy,
        task_sampled=task_sampled,
        by_task_type=_by_task_type(good, task_greedy, task_sampled),
        env_metrics=env_metrics(shown),
        at_k=_at_k(sampled, draws),
        task_env_metrics=_by_task(shown, n),
    )


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Return the probability that at least one of ``k`` draws is right, estimated from ``n`` draws, ``correct`` of them right.

    ``1 - C(n - correct, k) / C(n, k)`` over all subsets of k draws, without bias for n >= k; NaN for fewer draws.
    """
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k) if n >= k else math.nan


def _at_k(sampled: Sequence[Sequence[float]], draws: int) -> dict[str, float]:
    """Return means over tasks; a task with fewer than k draws that came back is left out of pass@k."""
    if draws < 2:
        return {}
    numbers = sorted({draws, *(2**i for i in range(draws.bit_length()) if 2**i <= draws)})
    passed = {f"pass_at_{k}": _nanmean([pass_at_k(len(won), round(sum(won)), k) for won in sampled]) for k in numbers}
    return {f"avg_at_{draws}": _nanmean([_mean(won) for won in sampled]), **passed}


def _by_task(trajectories: Sequence[Trajectory], n: int) -> dict[str, list[float]]:
    means = [env_metrics([t for t in trajectories if t.group_id == i]) for i in range(n)]
    return {name: [found.get(name, math.nan) for found in means] for name in env_metrics(trajectories)}


def _by_task_type(
    good: Sequence[Trajectory], task_greedy: Sequence[float], task_sampled: Sequence[float]
) -> dict[str, float]:
    type_of = {trajectory.group_id: trajectory.task_type for trajectory in good}
    if len(set(type_of.values())) < 2:
        return {}
    numbers: dict[str, list[int]] = {}
    for number, task_type in sorted(type_of.items()):
        for name in task_type_names(task_type):
            numbers.setdefault(name, []).append(number)
    metrics: dict[str, float] = {}
    for name, tasks in sorted(numbers.items()):
        metrics[f"task_type_{name}_greedy"] = _nanmean([task_greedy[i] for i in tasks])
        metrics[f"task_type_{name}_sampled"] = _nanmean([task_sampled[i] for i in tasks])
        metrics[f"task_type_{name}_n"] = float(len(tasks))
    return metrics


def interval95(values: Sequence[float]) -> float:
    """Return the half-width of the normal 95 % interval of the mean over tasks (0 for fewer than 2)."""
    finite = [v for v in values if math.isfinite(v)]
    return Z95 * float(np.std(finite, ddof=1)) / math.sqrt(len(finite)) if len(finite) > 1 else 0.0


def paired_difference(after: Sequence[float], before: Sequence[float]) -> dict[str, float]:
    """Return mean, standard error and z of ``after - before``, paired by task (NaN pairs left out)."""
    pairs = [a - b for a, b in zip(after, before, strict=True) if math.isfinite(a) and math.isfinite(b)]
    mean = _mean(pairs)
    error = float(np.std(pairs, ddof=1)) / math.sqrt(len(pairs)) if len(pairs) > 1 else math.nan
    return {"difference": mean, "standard_error": error, "z": mean / error if error else math.inf, "n": len(pairs)}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def _nanmean(values: Sequence[float]) -> float:
    return _mean([v for v in values if math.isfinite(v)])
