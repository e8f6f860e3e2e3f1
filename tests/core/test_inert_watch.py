"""A configured feature that does nothing is noticed, with its name, and not before it had time to act."""

from __future__ import annotations

from arlarena_rllib.inert_watch import NOTICE_ITERATIONS, InertWatch, row_features
from arlarena_rllib.objectives import ObjectiveSpec


def test_feature_that_never_acts_is_named_after_twenty_iterations_and_again_after_forty() -> None:
    watch = InertWatch()
    notices = [watch.note({"filtering='dynamic'": False}) for _ in range(2 * NOTICE_ITERATIONS)]
    said = {number: notice for number, notice in enumerate(notices, start=1) if notice}
    assert said == {
        20: ["training.filtering='dynamic' changed nothing in the last 20 iterations."],
        40: ["training.filtering='dynamic' changed nothing in the last 40 iterations."],
    }


def test_feature_that_acts_starts_from_zero_also_after_a_restore() -> None:
    watch, restored = InertWatch(), InertWatch()
    for _ in range(NOTICE_ITERATIONS - 1):
        watch.note({"void_turn='mask_turn'": False})
    restored.set_state(watch.get_state())
    assert restored.note({"void_turn='mask_turn'": True}) == []
    assert restored.get_state() == {"void_turn='mask_turn'": 0}
    assert "void_turn" in watch.note({"void_turn='mask_turn'": False})[0]


def test_rules_for_rows_are_watched_only_when_they_are_on() -> None:
    metrics = {"rows_masked_overlong": 0.0, "rows_masked_void": 3.0, "rows_masked_small_advantage": 0.0}
    assert row_features(ObjectiveSpec(), metrics) == {}
    spec = ObjectiveSpec(overlong_mask=True, void_turn="mask_turn", min_abs_advantage=0.01)
    assert row_features(spec, metrics) == {
        "overlong_mask": False,
        "void_turn='mask_turn'": True,
        "min_abs_advantage=0.01": False,
    }
