"""Splits rows into minibatches, learner shards and micro-batches; every split leaves the objective unchanged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def assign_minibatches(units: np.ndarray, num_minibatches: int, *, seed: int, iteration: int) -> np.ndarray:
    """Return int64 [B]: the minibatch of each row, a seeded permutation of its units cut into near-equal parts.

    Args:
        units: int64 [B]; rows of one unit stay together: row numbers, or trajectory ids.
        num_minibatches: With fewer units every unit is a minibatch of its own.
    """
    distinct, unit_of_row = np.unique(units, return_inverse=True)
    order = np.random.default_rng(np.random.SeedSequence([seed, iteration, 0x6D62])).permutation(len(distinct))
    minibatch = np.empty(len(distinct), dtype=np.int64)
    for index, part in enumerate(np.array_split(order, max(1, min(num_minibatches, len(distinct))))):
        minibatch[part] = index
    return minibatch[unit_of_row]


def shard_rows(lengths: np.ndarray, minibatch: np.ndarray, num_shards: int) -> list[np.ndarray]:
    """Return for each shard its row indices; within every minibatch the tokens are spread evenly, longest first."""
    shards: list[list[int]] = [[] for _ in range(num_shards)]
    for index in np.unique(minibatch):
        rows = np.flatnonzero(minibatch == index)
        load = np.zeros(num_shards, dtype=np.int64)
        for row in rows[np.argsort(-lengths[rows], kind="stable")]:
            target = int(np.argmin(load))
            load[target] += lengths[row]
            shards[target].append(int(row))
    return [np.array(sorted(rows), dtype=np.int64) for rows in shards]


def micro_batches(lengths: Sequence[int] | np.ndarray, token_budget: int) -> list[np.ndarray]:
    """Return row indices of micro-batches whose padded size (rows x longest row) stays within ``token_budget``.

    Rows are sorted by length, so that little is padding. A single row longer than the budget is a micro-batch alone.

    Raises:
        ValueError: ``token_budget`` is not positive.
    """
    if token_budget < 1:
        raise ValueError(f"token_budget={token_budget} must be positive")
    lengths = np.asarray(lengths)
    order = np.argsort(lengths, kind="stable")
    batches: list[list[int]] = []
    for row in order:
        if batches and (len(batches[-1]) + 1) * int(lengths[row]) <= token_budget:
            batches[-1].append(int(row))
        else:
            batches.append([int(row)])
    return [np.array(rows, dtype=np.int64) for rows in batches]
