"""InertWatch: says so when something that was configured has done nothing for a long time."""

from __future__ import annotations

from collections.abc import Mapping

from arlarena_rllib.objectives import ObjectiveSpec

NOTICE_ITERATIONS = 20


class InertWatch:
    """Counts iterations in a row in which a configured feature acted on nothing."""

    def __init__(self) -> None:
        self._idle: dict[str, int] = {}

    def note(self, features: Mapping[str, bool]) -> list[str]:
        """Take in one iteration: what is configured, e.g. ``"filtering='dynamic'"`` -> whether it acted.

        Returns a notice after every 20 idle iterations of a feature.
        """
        notices = []
        for feature, acted in features.items():
            idle = self._idle[feature] = 0 if acted else self._idle.get(feature, 0) + 1
            if idle and idle % NOTICE_ITERATIONS == 0:
                notices.append(f"training.{feature} changed nothing in the last {idle} iterations.")
        return notices

    def get_state(self) -> dict[str, int]:
        """Return the counts."""
        return dict(self._idle)

    def set_state(self, state: Mapping[str, int]) -> None:
        """Go on from what :meth:`get_state` returned."""
        self._idle = dict(state)


def row_features(spec: ObjectiveSpec, metrics: Mapping[str, float]) -> dict[str, bool]:
    """Return which rules that leave rows out of the loss are configured, and whether each one acted.

    Args:
        spec: The point of the method grid.
        metrics: Of `build_learner_batch`.
    """
    rules = {
        "overlong_mask": (spec.overlong_mask, "rows_masked_overlong"),
        f"void_turn={spec.void_turn!r}": (spec.void_turn != "keep", "rows_masked_void"),
        f"min_abs_advantage={spec.min_abs_advantage:g}": (spec.min_abs_advantage > 0, "rows_masked_small_advantage"),
    }
    return {name: metrics[metric] > 0 for name, (is_on, metric) in rules.items() if is_on}
