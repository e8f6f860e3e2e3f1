"""CollapseWatch: feeds the alarm once per iteration, says when a signal fires, and measures prompt dependence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ray.rllib.utils.typing import ResultDict
from ray.tune.utils import flatten_dict

from arlarena_rllib.diagnostics import (
    AlarmThresholds,
    CollapseAlarm,
    cross_scores,
    plan_cross_scoring,
    prompt_dependence,
    telling_rows,
)
from arlarena_rllib.trajectory import TrajectoryGroup

Score = Callable[[list[tuple[list[int], list[int]]]], list[list[float]]]


class CollapseWatch:
    """Watches the results of an algorithm.

    Args:
        thresholds: fields of :class:`~arlarena_rllib.diagnostics.AlarmThresholds`.
    """

    def __init__(self, thresholds: Mapping[str, Any]) -> None:
        self._alarm = CollapseAlarm(AlarmThresholds(**thresholds))

    @property
    def has_fired(self) -> bool:
        """Whether any signal has ever fired."""
        return self._alarm.report.first is not None

    def judge(self, iteration: int, result: ResultDict) -> list[str]:
        """Add ``alarm/...`` to an iteration's result; return a notice on each new signal and the rows behind it."""
        metrics = flatten_dict(result, delimiter="/")
        report = self._alarm.update(iteration, metrics)
        result["alarm"] = report.as_metrics()
        rows = telling_rows(metrics)
        return [f"collapse alarm: {signal}{f' ({rows})' if rows else ''}" for signal in report.new]

    def get_state(self) -> dict[str, Any]:
        """Return the alarm's memory."""
        return self._alarm.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`get_state` returned."""
        self._alarm.set_state(state)


def measure_prompt_dependence(groups: Sequence[TrajectoryGroup], score: Score, *, seed: int) -> dict[str, float]:
    """Return ``prompt_dependence`` of the first turns of some episodes, {} when their prompts do not differ.

    Args:
        groups: The iteration's groups.
        score: Returns the log-probs of the reply's tokens for (prompt, reply) pairs.
        seed: Decides which episodes.
    """
    first = [t.turns[0] for group in groups for t in group.trained]
    plan = plan_cross_scoring([(turn.context_ids, turn.response_ids) for turn in first], seed=seed)
    if plan is None:
        return {}
    logp_R_P = cross_scores(plan, score(plan.sequences()))
    return prompt_dependence(logp_R_P, plan.own, [len(response) for response in plan.responses])
