"""Tune's schedulers are built from YAML, and what they would not read is refused."""

from __future__ import annotations

from typing import Any

import pytest
from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining

from arlarena_rllib.errors import ConfigError
from tune_experiments.schedulers import build_scheduler


def test_asha_takes_tunes_own_arguments() -> None:
    scheduler = build_scheduler({"type": "asha", "grace_period": 2, "max_t": 8, "reduction_factor": 2}, metric="m")
    assert isinstance(scheduler, ASHAScheduler)
    assert scheduler.metric == "m" and scheduler._max_t == 8


def test_pbt_mutates_settings_of_training_by_their_flat_names() -> None:
    mutations = {"training.lr": {"min": 1e-4, "max": 1e-3}, "training.clip_low": [1e-3, 3e-3]}
    scheduler = build_scheduler({"type": "pbt", "perturbation_interval": 2, "mutations": mutations}, metric="m")
    assert isinstance(scheduler, PopulationBasedTraining)
    assert set(scheduler._hyperparam_mutations) == {"lr", "clip_low"}
    draws = [scheduler._hyperparam_mutations["lr"].sample() for _ in range(20)]
    assert all(1e-4 <= draw <= 1e-3 for draw in draws) and len(set(draws)) > 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"type": "hyperband"}, r"scheduler\.type='hyperband' is not known\. Allowed: asha, pbt"),
        ({}, r"scheduler\.type=None"),
        ({"type": "asha", "grace": 1}, r"scheduler\.grace is not an argument of .*Allowed: .*grace_period"),
        ({"type": "asha", "metric": "x"}, r"scheduler\.metric is not an argument"),
        ({"type": "asha", "grace_period": 9, "max_t": 8}, r"refuses .*grace_period must be <= max_t"),
        ({"type": "pbt"}, r"scheduler\.mutations=None must name at least one setting"),
        ({"type": "pbt", "mutations": {"training.lrr": [1]}}, r"mutations\.training\.lrr is not a setting of training"),
        ({"type": "pbt", "mutations": {"debugging.seed": [1]}}, r"debugging\.seed is not a setting of training"),
        (
            {"type": "pbt", "mutations": {"training.lr": {"min": 1, "max": 1}}},
            r"training\.lr=.* must be a list of values",
        ),
    ],
)
def test_mistake_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_scheduler(given, metric="m")
