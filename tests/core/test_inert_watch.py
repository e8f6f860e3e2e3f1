"""A configured feature that does nothing is noticed, with its name, and not before it had time to act."""

from __future__ import annotations

import warnings

import pytest

from arlarena_rllib.inert_watch import WARNING_ITERATIONS, InertWatch, row_features
from arlarena_rllib.objectives import ObjectiveSpec


def test_feature_that_never_acts_is_named_after_twenty_iterations_and_again_after_forty() -> None:
    watch = InertWatch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(WARNING_ITERATIONS - 1):
            watch.note({"filtering='dynamic'": False})
    with pytest.warns(UserWarning, match=r"training\.filtering='dynamic' changed nothing in the last 20 iterations"):
        watch.note({"filtering='dynamic'": False})
    with pytest.warns(UserWarning, match="last 40 iterations"):
        for _ in range(WARNING_ITERATIONS):
            watch.note({"filtering='dynamic'": False})


def test_feature_that_acts_starts_from_zero_also_after_a_restore() -> None:
    watch, restored = InertWatch(), InertWatch()
    for _ in range(WARNING_ITERATIONS - 1):
        watch.note({"void_turn='mask_turn'": False})
    restored.set_state(watch.get_state())
    restored.note({"void_turn='mask_turn'": True})
    assert restored.get_state() == {"void_turn='mask_turn'": 0}
    with pytest.warns(UserWarning, match="void_turn"):
        watch.note({"void_turn='mask_turn'": False})


def test_rules_for_rows_are_watched_only_when_they_are_on() -> None:
    metrics = {"rows_masked_overlong": 0.0, "rows_masked_void": 3.0, "rows_masked_small_advantage": 0.0}
    assert row_features(ObjectiveSpec(), metrics) == {}
    spec = ObjectiveSpec(overlong_mask=True, void_turn="mask_turn", min_abs_advantage=0.01)
    assert row_features(spec, metrics) == {
        "overlong_mask": False,
        "void_turn='mask_turn'": True,
        "min_abs_advantage=0.01": False,
    }
