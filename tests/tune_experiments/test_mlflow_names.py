"""Flat names and values for MLflow: nothing lost, nothing twice, nothing that MLflow refuses."""

from __future__ import annotations

import math
from enum import StrEnum

import numpy as np
import yaml
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import MAX_ENTITY_KEY_LENGTH, MAX_PARAM_VAL_LENGTH, _validate_metric_name

from tune_experiments.mlflow_names import acceptable_names, headline_values, metric_values, overlay, param_values, plain


class _Colour(StrEnum):
    RED = "red"


def test_metric_values_keep_finite_numbers_only_under_nested_names() -> None:
    result = {
        "training_iteration": 3,
        "pid": 1,
        "config": {"lr": 0.1},
        "env_runners": {"success_rate": np.float32(0.5), "n": np.int64(4), "nan": math.nan, "text": "x", "none": None},
        "learners": {"default_policy": {"loss": np.array(2.0), "vector": np.zeros(3), "inf": np.inf}},
        "alarm": np.bool_(True),
        "empty": {},
    }
    assert metric_values(result) == {
        "training_iteration": 3.0,
        "env_runners/success_rate": 0.5,
        "env_runners/n": 4.0,
        "learners/default_policy/loss": 2.0,
        "alarm": 1.0,
    }


def test_headlines_are_copies_of_what_the_iteration_has() -> None:
    values = metric_values({"env_runners": {"success_rate": 0.5}, "evaluation": {"env_runners": {"sampled": math.nan}}})
    assert headline_values(values) == {"success": 0.5}


def test_acceptable_names_that_collide_keep_the_clean_one_and_mark_the_other() -> None:
    names = acceptable_names(["a/b@c", "a/b_c", "/lead", "x//y"])
    assert (names["a/b_c"], names["/lead"], names["x//y"]) == ("a/b_c", "lead", "x/y")
    assert names["a/b@c"].startswith("a/b_c-") and len(set(names.values())) == 4


@given(st.lists(st.text(max_size=300), max_size=8))
def test_acceptable_names_of_any_text_are_accepted_and_differ(raw: list[str]) -> None:
    names = acceptable_names(raw)
    assert len(set(names.values())) == len(set(raw))
    for name in names.values():
        _validate_metric_name(name)
        assert 0 < len(name) <= MAX_ENTITY_KEY_LENGTH


def test_param_values_are_flat_text_within_the_limit() -> None:
    config = {
        "training": {"lr": 1e-6, "betas": (0.9, 0.99), "none": None},
        "environment": {"env_config": {}},
        "s": "x" * 9000,
    }
    params = param_values(config)
    assert params["training.lr"] == "1e-06"
    assert params["training.betas"] == "[0.9, 0.99]"
    assert params["training.none"] == "None"
    assert params["environment.env_config"] == "{}"
    assert len(params["s"]) == MAX_PARAM_VAL_LENGTH and params["s"].endswith("...")


def test_overlay_replaces_the_fitting_leaf_and_keeps_the_rest_apart() -> None:
    config = {
        "training": {"lr": 0.1},
        "environment": {"env_config": {"observation": "grid"}},
        "a": {"seed": 1},
        "b": {"seed": 2},
    }
    own = {"lr": np.float64(0.2), "env_config/observation": "coords", "seed": 5, "new": 1}
    assert overlay(config, own) == {
        "training": {"lr": 0.2},
        "environment": {"env_config": {"observation": "coords"}},
        "a": {"seed": 1},
        "b": {"seed": 2},
        "trial": {"seed": 5, "new": 1},
    }
    assert config["training"] == {"lr": 0.1}


def test_plain_makes_any_settings_yaml_able() -> None:
    tree = plain({"a": np.float64(0.5), "b": (np.int32(1), _Colour.RED), 3: {"x"}, "t": int, "n": None, "f": True})
    assert tree == {"a": 0.5, "b": [1, "red"], "3": ["x"], "t": "<class 'int'>", "n": None, "f": True}
    assert yaml.safe_load(yaml.safe_dump(tree)) == tree
