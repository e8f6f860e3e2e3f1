"""StudySearcher: hands Ray Tune the trials of a study, one after the other, as their predecessors' results allow."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ray.tune.search import Searcher
from ray.tune.utils import flatten_dict

from arlarena_rllib.errors import CheckpointError
from tune_experiments.study_journal import FAILED, FINISHED, STOPPED, StudyJournal
from tune_experiments.study_plan import StudyPlan, TrialKey
from tune_experiments.study_settings import StabilitySettings

Suggest = Callable[[TrialKey], Mapping[str, Any]]


class StudySearcher(Searcher):
    """A `ray.tune.search.Searcher` over a :class:`StudyPlan`; all it remembers is in the study's journal.

    Args:
        plan: order of the trials.
        configs: trial's arm, setting and seed -> flat settings over the tuner's ``param_space``; picklable.
        folder: of the task; holds the journal.
        stability: rule that decides whether a setting is stable.
        iterations: of a trial that is not stopped early.
        concurrent: most trials at a time. Tune's own limit forgets a trial that failed, and would not tell of its end again.
    """

    def __init__(
        self,
        plan: StudyPlan,
        configs: Suggest,
        folder: Path,
        stability: StabilitySettings,
        iterations: int,
        concurrent: int = 1,
    ) -> None:
        super().__init__()
        self._concurrent = concurrent
        self._plan, self._configs, self._folder = plan, configs, folder
        self._stability, self._iterations = stability, iterations
        self._journal: StudyJournal | None = None
        self._is_closed = False

    def close(self) -> None:
        """Hand out no more trials: the study is being stopped."""
        self._is_closed = True

    @property
    def is_over(self) -> bool:
        """Whether every trial of the plan has ended."""
        return self._plan.is_over(self.journal.outcomes())

    @property
    def journal(self) -> StudyJournal:
        """What the trials did so far."""
        if self._journal is None:
            file = self._folder / "journal.jsonl"
            journal = StudyJournal(file, self._stability, self._iterations)
            for trial_id, key in journal.keys().items():
                if not self._plan.has(key):
                    raise CheckpointError(f"{file}: trial {trial_id}, {key}, is none of this study's.")
            self._journal = journal
        return self._journal

    def name_of(self, trial_id: str) -> str:
        """Return a readable name of a trial."""
        return str(self.journal.keys()[trial_id])

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the settings of the next trial, None when it has to wait for one that runs, FINISHED at the end."""
        if self._is_closed or len(self.journal.running()) >= self._concurrent:
            return None
        known = self.journal.outcomes()
        waiting = self._plan.open_trials(known)
        if not waiting:
            return Searcher.FINISHED if self._plan.is_over(known) else None
        key = waiting[0]
        config = dict(self._configs(key))
        self.journal.started(trial_id, key)
        return config

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Note an iteration."""
        self.journal.result(trial_id, flatten_dict(result, delimiter="/"))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Note the end of a trial; Tune sends its last result only here."""
        if error:
            self.journal.ended(trial_id, FAILED)
            return
        if result is not None:
            self.on_trial_result(trial_id, result)
        done = int(result["training_iteration"]) if result is not None else 0
        self.journal.ended(trial_id, FINISHED if done >= self._iterations else STOPPED)

    def save(self, checkpoint_path: str) -> None:
        """Write what Tune wants to see; the journal is the memory."""
        Path(checkpoint_path).write_bytes(pickle.dumps({"folder": str(self._folder)}))

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the journal is the memory, and others hold this searcher's."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_journal": None, "_is_closed": False}
