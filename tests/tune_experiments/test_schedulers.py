"""Tune's scheduler is built from YAML, and what it would not read is refused."""

from __future__ import annotations

from typing import Any

import pytest
from ray.tune.schedulers import ASHAScheduler

from arlarena_rllib.errors import ConfigError
from tune_experiments.schedulers import build_scheduler


def test_asha_takes_tunes_own_arguments() -> None:
    scheduler = build_scheduler({"type": "asha", "grace_period": 2, "max_t": 8, "reduction_factor": 2}, metric="m")
    assert isinstance(scheduler, ASHAScheduler)
    assert scheduler.metric == "m" and scheduler._max_t == 8


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"type": "hyperband"}, r"scheduler\.type='hyperband' is not known\. Allowed: asha"),
        ({}, r"scheduler\.type=None"),
        ({"type": ["asha"]}, r"scheduler\.type=\['asha'\]"),
        ({"type": "asha", "grace": 1}, r"scheduler\.grace is not an argument of .*Allowed: .*grace_period"),
        ({"type": "asha", "metric": "x"}, r"scheduler\.metric is not an argument"),
        ({"type": "asha", "max_t": float("inf")}, r"scheduler\.max_t=inf must be a number from 1"),
        ({"type": "asha", "grace_period": True}, r"scheduler\.grace_period=True must be a number"),
        ({"type": "pbt"}, r"scheduler\.mutations=None must be a mapping"),
        (
            {"type": "pbt", "mutations": {"training.lr": [1e-4]}},
            r"'training\.lr': \[0\.0001\] must be .* two values or more",
        ),
        ({"type": "pbt", "mutations": {"run.name": ["a", "b"]}}, r"must be a key of section training"),
        ({"type": "pbt", "mutations": {"training.lr": [1, 2]}, "grace_period": 2}, r"grace_period is not an argument"),
        ({"type": "pbt", "mutations": {"training.lr": [1, 2]}, "synch": 1}, r"synch=1 must be true or false"),
        (
            {"type": "pbt", "mutations": {"training.lr": [1, 2]}, "quantile_fraction": 0.7},
            r"quantile_fraction=0\.7 must be a number from 1e-06 to 0\.5",
        ),
        (
            {"type": "pbt", "mutations": {"training.lr": [1, 2]}, "quantile_fraction": 0},
            r"quantile_fraction=0 must be a number from 1e-06 to 0\.5",
        ),
        (
            {"type": "pbt", "mutations": {"training.lr": [1, 1.0]}},
            r"'training\.lr': \[1, 1\.0\] must be .* all different",
        ),
        (
            {"type": "pbt", "mutations": {"training.method": ["grpo", "ppo"]}},
            r"'training\.method' does not mutate: .* as arms",
        ),
        (
            {"type": "pbt", "mutations": {"training.advantage": ["grpo", "gae_token"]}},
            r"'training\.advantage' does not",
        ),
        ({"type": "asha", "reduction_factor": 1}, r"reduction_factor=1 must be a number from 1"),
        ({"type": "asha", "brackets": 2.5}, r"brackets=2\.5 must be a whole number from 1 to 100"),
        ({"type": "asha", "brackets": 10**6}, r"brackets=1000000 must be a whole number from 1 to 100"),
        ({"type": "asha", "grace_period": 9, "max_t": 8}, r"refuses .*grace_period must be <= max_t"),
    ],
)
def test_mistake_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_scheduler(given, metric="m")
