"""What ends the trials of a study: their last iteration, the collapse alarm, and a stability metric that nobody reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ray import tune
from ray.tune.stopper import CombinedStopper

from arlarena_rllib.diagnostics import AlarmThresholds
from arlarena_rllib.diagnostics.metric_names import SUCCESS
from arlarena_rllib.errors import ConfigError
from tune_experiments.mlflow_names import BOOKKEEPING_KEYS, as_number
from tune_experiments.stopper_base import OncePerIteration, near
from tune_experiments.stoppers import BudgetStopper, CollapseStopper
from tune_experiments.trial_errors import last_line

if TYPE_CHECKING:
    from tune_experiments.study_config import Study

NOW_AND_THEN = ("evaluation", "prompts")
"""First parts of the names of metrics that only some iterations have."""
SKIPPED_UPDATES = "batch/skipped_updates"


class StabilityMetricStopper(OncePerIteration):
    """Ends the study when the metric of its stability rule is not in the first result that should have it.

    Args:
        metric: flat name.
    """

    def __init__(self, metric: str) -> None:
        super().__init__()
        self.metric = metric
        # No episode of an iteration may have gone well, so the default is taken on trust.
        self._is_found = metric == SUCCESS

    def judge(self, trial_id: str, iteration: int, metrics: Mapping[str, Any]) -> bool:
        """Look for the metric until it was found once.

        Raises:
            ConfigError: it is not there.
        """
        root = self.metric.partition("/")[0]
        is_later = root in NOW_AND_THEN and not any(name.startswith(f"{root}/") for name in metrics)
        if self._is_found or is_later or metrics.get(SKIPPED_UPDATES):
            return False
        self._is_found = as_number(metrics.get(self.metric)) is not None
        if not self._is_found:
            raise ConfigError(_not_there(self.metric, iteration, metrics))
        return False


def _not_there(metric: str, iteration: int, metrics: Mapping[str, Any]) -> str:
    known = sorted(name for name in metrics if name not in BOOKKEEPING_KEYS and as_number(metrics[name]) is not None)
    root = metric.partition("/")[0]
    shown = [name for name in known if name.partition("/")[0] == root] or known
    what = f"is {metrics[metric]!r}, not a number," if metric in metrics else "is not among the metrics"
    return (
        f"study.stability.metric={metric!r} {what} of iteration {iteration}.{near(metric, known)} "
        f"There are: {', '.join(shown)}. Start a new study with one of them."
    )


@contextmanager
def errors_of_stoppers() -> Iterator[None]:
    """Raise what a stopper raised inside; Tune makes it the last line of a TuneError's text."""
    try:
        yield
    except tune.TuneError as error:
        kind, _, text = last_line(str(error)).partition(": ")
        if kind != f"{ConfigError.__module__}.{ConfigError.__name__}":
            raise
        raise ConfigError(text) from error


def study_stopper(study: Study) -> tune.Stopper:
    """Return the stopper of all trials of a study."""
    stoppers: list[tune.Stopper] = [
        StabilityMetricStopper(study.stability.metric),
        BudgetStopper(study.run.run.iterations, metric="training_iteration"),
    ]
    if study.settings.stop_on_collapse:
        thresholds = AlarmThresholds(**study.run.algorithm("").alarm_thresholds)
        stoppers.append(CollapseStopper(thresholds, signals=study.settings.stop_on_collapse))
    return CombinedStopper(*stoppers)
