"""LearnerLink: what the algorithm asks of its learners, whether they are in its process or remote."""

from __future__ import annotations

from typing import Any

import numpy as np
from ray.rllib.core.learner.learner_group import LearnerGroup

from arlarena_rllib.learner import collectives
from arlarena_rllib.learner.batching import learner_shards
from arlarena_rllib.trajectory import TokenBatch

_SCORED = ("input_ids", "attention_mask", "loss_mask")


class LearnerLink:
    """Calls the learners of a group."""

    def __init__(self, group: LearnerGroup, num_learners: int) -> None:
        """``num_learners`` as in the configuration; 0 = one learner in this process."""
        self._group = group
        self._num_learners = num_learners

    def update(self, batch: TokenBatch, timesteps: dict[str, Any]) -> Any:
        """Train on ``batch`` and return the learners' results."""
        if self._num_learners == 0:
            return self._group.update(batch=learner_shards(batch, 1)[0], timesteps=timesteps)
        return self._group.update(batches=learner_shards(batch, self._num_learners), timesteps=timesteps)

    def scores(self, rows: TokenBatch) -> TokenBatch:
        """Return the learners' scores of ``rows``, see :meth:`RowScorer.scores`; several learners share the rows."""
        read = {name: rows[name] for name in _SCORED}
        if self._num_learners == 0:
            return self._group._learner.score_rows(read)
        parts = np.array_split(np.arange(len(read["input_ids"])), self._num_learners)
        shares = [{name: column[part] for name, column in read.items()} for part in parts]
        answers = self._group.foreach_learner(
            lambda learner, shares=shares, **_: (collectives.rank(), learner.score_rows(shares[collectives.rank()]))
        )
        by_rank = dict(answer.get() for answer in answers)
        return {name: np.concatenate([by_rank[r][name] for r in sorted(by_rank)]) for name in by_rank[0]}

    def ask_each(self, method: str) -> list[Any]:
        """Call a method of every learner and return their answers."""
        if self._num_learners == 0:
            return [getattr(self._group._learner, method)()]
        return [r.get() for r in self._group.foreach_learner(lambda learner, **_: getattr(learner, method)())]

    def ask(self, method: str, *args: Any) -> Any:
        """Call a method of the (first) learner and return its answer."""
        if self._num_learners == 0:
            return getattr(self._group._learner, method)(*args)
        results = self._group.foreach_learner(lambda learner, **_: getattr(learner, method)(*args))
        return next(r.get() for r in results if r.ok)
