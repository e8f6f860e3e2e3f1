"""Every split keeps every row exactly once and keeps to its budget."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arlarena_rllib.learner.packing import assign_minibatches, micro_batches, shard_rows

lengths_strategy = st.lists(st.integers(1, 60), min_size=1, max_size=80)


@given(lengths_strategy, st.integers(1, 300))
def test_micro_batches_hold_each_row_once_and_keep_the_budget(lengths: list[int], budget: int) -> None:
    batches = micro_batches(lengths, budget)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for rows in batches:
        padded = len(rows) * max(lengths[i] for i in rows)
        assert padded <= budget or len(rows) == 1


def test_micro_batches_refuse_an_empty_budget() -> None:
    with pytest.raises(ValueError, match="token_budget=0"):
        micro_batches([3], 0)


@given(lengths_strategy, st.integers(1, 6), st.integers(1, 3), st.integers(0, 5))
def test_shards_hold_each_row_once_with_its_minibatch(lengths: list[int], parts: int, shards: int, seed: int) -> None:
    minibatch = assign_minibatches(np.arange(len(lengths)), parts, seed=seed, iteration=1)
    assert set(minibatch.tolist()) == set(range(min(parts, len(lengths))))
    found = shard_rows(np.array(lengths), minibatch, shards)
    assert sorted(np.concatenate(found).tolist()) == list(range(len(lengths)))


def test_minibatches_depend_on_seed_and_iteration_only() -> None:
    one = assign_minibatches(np.arange(50), 4, seed=3, iteration=7)
    assert (one == assign_minibatches(np.arange(50), 4, seed=3, iteration=7)).all()
    assert (one != assign_minibatches(np.arange(50), 4, seed=3, iteration=8)).any()
    assert (one != assign_minibatches(np.arange(50), 4, seed=4, iteration=7)).any()
    sizes = np.bincount(one)
    assert sizes.max() - sizes.min() <= 1


def test_rows_of_one_unit_share_a_minibatch() -> None:
    units = np.repeat([7, 3, 9, 5], [4, 1, 2, 3])
    minibatch = assign_minibatches(units, 2, seed=0, iteration=0)
    assert all(len(set(minibatch[units == unit])) == 1 for unit in np.unique(units))
    assert set(minibatch) == {0, 1}


def test_shards_are_balanced_by_tokens() -> None:
    lengths = np.array([40, 10, 10, 10, 10, 40])
    loads = [lengths[rows].sum() for rows in shard_rows(lengths, np.zeros(6, dtype=np.int64), 2)]
    assert loads == [60, 60]
