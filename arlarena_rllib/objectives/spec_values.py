"""Which values the parameters of a spec may have."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from arlarena_rllib.objectives import advantages, clipping, filtering, kl, mismatch, shaping, weighting
from arlarena_rllib.objectives.axes import REGISTRIES
from arlarena_rllib.objectives.registry import unknown_choice
from arlarena_rllib.objectives.scores import PENALISED_FLAGS, PENALTY_SCHEMES

if TYPE_CHECKING:
    from arlarena_rllib.objectives.spec import ObjectiveSpec

CHOICES: dict[str, tuple[str, ...]] = {
    "adv_unit": advantages.UNITS,
    "adv_norm": advantages.NORMS,
    "adv_singleton": advantages.SINGLETONS,
    "anchor_match": advantages.ANCHOR_MATCHES,
    "penalty_scheme": PENALTY_SCHEMES,
    "penalise": PENALISED_FLAGS,
    "filter_metric": filtering.METRICS,
    "ratio_level": clipping.RATIO_LEVELS,
    "ratio_bounds": clipping.RATIO_BOUNDS,
    "seq_mask_norm": weighting.SEQ_MASK_NORMS,
    "kl_in": kl.PLACES,
    "mismatch": mismatch.MODES,
    "surplus": filtering.SURPLUSES,
    "void_turn": shaping.VOID_TURNS,
}
"""Parameters with a closed list of values."""

_RANGES: dict[str, tuple[float, float]] = {
    "clip_low": (0.0, 1.0),
    "clip_high": (0.0, math.inf),
    "is_low": (0.0, 1.0),
    "is_high": (1.0, math.inf),
    "cov_low": (-math.inf, math.inf),
    "cov_high": (-math.inf, math.inf),
    "cov_coef": (0.0, math.inf),
    "mismatch_low": (0.0, 1.0),
    "mismatch_high": (1.0, math.inf),
    "adv_eps": (0.0, 1.0),
    "adv_ddof": (0, 1),
    "gamma": (0.0, 1.0),
    "omega": (0.0, math.inf),
    "similarity_threshold": (0.01, 1.0),
    "hgpo_levels": (0, math.inf),
    "hgpo_alpha": (0.0, math.inf),
    "empg_k": (0.0, math.inf),
    "empg_k_future": (0.0, math.inf),
    "empg_zeta": (0.0, math.inf),
    "token_gamma": (0.0, 1.0),
    "gae_lambda": (0.0, 1.0),
    "value_coef": (0.0, math.inf),
    "value_clip": (0.0, math.inf),
    "overlong_buffer": (0, math.inf),
    "overlong_factor": (0.0, math.inf),
    "min_abs_advantage": (0.0, math.inf),
    "format_penalty": (0.0, math.inf),
    "max_tries": (1, math.inf),
    "oversampling": (1.0, math.inf),
    "cold_start_iterations": (0, math.inf),
    "kl_coef": (0.0, math.inf),
    "entropy_coef": (0.0, math.inf),
}
_ABOVE_ZERO: dict[str, float] = {"tau_pos": math.inf, "tau_neg": math.inf, "cov_frac": 1.0}
"""Parameter -> upper end of its range (0, upper]."""
_RANGES_OR_OFF: dict[str, tuple[float, float]] = {
    "seq_mask_delta": (0.0, math.inf),
    "geo_low": (0.0, 1.0),
    "geo_high": (1.0, math.inf),
}
"""As the ranges above, but None switches the parameter off."""
OPEN_LENGTHS = ("length_norm", "overlong_max_len")
"""Token counts that None leaves to the run."""
_INTEGERS = (
    *("adv_ddof", "max_tries", "cold_start_iterations", "hgpo_levels", "overlong_buffer"),
    *OPEN_LENGTHS,
)
_FLAGS = ("norm_by_rows", "fill", "adv_whiten", "overlong_mask")


def bad_values(spec: ObjectiveSpec) -> list[str]:
    """Return one message for every wrong type, value out of its range, and impossible combination of values."""
    return [*_bad_types(spec), *_out_of_range(spec), *_bad_combinations(spec)]


def unknown_names(spec: ObjectiveSpec) -> list[str]:
    """Return one message for every name that is not among the choices of its parameter."""
    closed = {**{key: registry.names() for key, registry in REGISTRIES.items()}, **CHOICES}
    return [
        str(unknown_choice(key, getattr(spec, key), names))
        for key, names in closed.items()
        if getattr(spec, key) not in names
    ]


def _bad_types(spec: ObjectiveSpec) -> list[str]:
    whole = [key for key in _INTEGERS if not _is_integer(getattr(spec, key), optional=key in OPEN_LENGTHS)]
    flags = [key for key in _FLAGS if not isinstance(getattr(spec, key), bool)]
    return [f"{key}={getattr(spec, key)!r} must be a whole number." for key in whole] + [
        f"{key}={getattr(spec, key)!r} must be true or false." for key in flags
    ]


def _out_of_range(spec: ObjectiveSpec) -> list[str]:
    problems = []
    for key, (low, high) in _RANGES.items():
        value = getattr(spec, key)
        if not _is_number(value) or not low <= value <= high:
            problems.append(f"{key}={value!r} must be a finite number in [{low:g}, {high:g}].")
    for key, (low, high) in _RANGES_OR_OFF.items():
        value = getattr(spec, key)
        if value is not None and not (_is_number(value) and low <= value <= high):
            problems.append(f"{key}={value!r} must be a finite number in [{low:g}, {high:g}], or none for off.")
    for key, high in _ABOVE_ZERO.items():
        value = getattr(spec, key)
        if not (_is_number(value) and 0.0 < value <= high):
            problems.append(f"{key}={value!r} must be a finite number in (0, {high:g}].")
    if spec.dual_clip is not None and not (_is_number(spec.dual_clip) and spec.dual_clip > 1.0):
        problems.append(f"dual_clip={spec.dual_clip!r} must be a number greater than 1, or none to switch it off.")
    if _is_integer(spec.length_norm, optional=False) and spec.length_norm < 1:  # type: ignore[operator]
        problems.append(f"length_norm={spec.length_norm!r} must be at least 1 token.")
    return problems + _bad_overlong(spec)


def _bad_overlong(spec: ObjectiveSpec) -> list[str]:
    buffer, longest = spec.overlong_buffer, spec.overlong_max_len
    if longest is None or not _is_integer(buffer, optional=False) or not _is_integer(longest, optional=False):
        return []
    return [] if longest >= buffer else [f"overlong_max_len={longest} must be at least overlong_buffer={buffer}."]


def _bad_combinations(spec: ObjectiveSpec) -> list[str]:
    problems = []
    if spec.kl_in == "reward" and spec.kl_coef != 0.0 and spec.kl_estimator in tuple(kl.LOSS_ONLY):
        why = kl.LOSS_ONLY[spec.kl_estimator]
        problems.append(f"kl_in='reward' cannot use kl_estimator={spec.kl_estimator!r}: {why}.")
    both = _is_number(spec.cov_low) and _is_number(spec.cov_high)
    if spec.clipping == "clip_cov" and both and spec.cov_low >= spec.cov_high:
        problems.append(f"cov_low={spec.cov_low!r} must be smaller than cov_high={spec.cov_high!r}.")
    if spec.mismatch != "off" and spec.mismatch_is == "none" and spec.geo_low is None and spec.geo_high is None:
        problems.append(
            f"mismatch={spec.mismatch!r} corrects nothing: set geo_low or geo_high, or another mismatch_is."
        )
    return problems


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_integer(value: object, *, optional: bool) -> bool:
    if value is None:
        return optional
    return isinstance(value, int) and not isinstance(value, bool)
