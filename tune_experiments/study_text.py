"""How a study's report writes numbers; what is missing or not finite is a dash."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tune_experiments.study_statistics import Spread, setting_words

DASH = "\N{EN DASH}"


def number(value: float, digits: int = 3) -> str:
    """Return ``digits`` significant digits."""
    return f"{value:.{digits}g}" if math.isfinite(value) else DASH


def percent(share: float) -> str:
    """Return a share in percent, without the sign."""
    return f"{100 * share:.1f}" if math.isfinite(share) else DASH


def points(share: float, error: float) -> str:
    """Return a difference of shares in percentage points, its standard error in brackets."""
    return f"{100 * share:+.1f} ({percent(error)})" if math.isfinite(share) else DASH


def mean_and_sd(found: Spread) -> str:
    """Return mean and standard deviation in percent."""
    return percent(found.mean) + (f" ± {percent(found.sd)}" if math.isfinite(found.sd) else "")


def each_seed(found: Spread) -> str:
    """Return the value of every seed in percent."""
    return " · ".join(percent(value) for value in found.values)


def p_value(p: float) -> str:
    """Return a p-value."""
    if not math.isfinite(p):
        return DASH
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def amount(count: float) -> str:
    """Return a large count, e.g. 1.2 M."""
    if not math.isfinite(count):
        return DASH
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f}"


def duration(seconds: float) -> str:
    """Return a time, e.g. 1 h 05 min."""
    if not math.isfinite(seconds):
        return DASH
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


def setting_or_dash(setting: Mapping[str, object] | None) -> str:
    """Return "default", the changed keys, or a dash where there is no setting."""
    return DASH if setting is None else setting_words(setting)
