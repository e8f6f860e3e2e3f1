"""Which parameters a spec reads: those of its choices, without those behind a switch that is off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arlarena_rllib.objectives.axes import REGISTRIES

if TYPE_CHECKING:
    from arlarena_rllib.objectives.spec import ObjectiveSpec

_UNREAD_IF: dict[str, tuple[str, object]] = {
    "penalty_scheme": ("format_penalty", 0.0),
    "penalise": ("format_penalty", 0.0),
    "kl_estimator": ("kl_coef", 0.0),
    "kl_in": ("kl_coef", 0.0),
    "clip_low": ("ratio_bounds", "reciprocal"),
    "seq_mask_norm": ("seq_mask_delta", None),
    **dict.fromkeys(("mismatch_is", "mismatch_low", "mismatch_high", "geo_low", "geo_high"), ("mismatch", "off")),
    "adv_eps": ("adv_norm", "mean_norm"),
    "adv_ddof": ("adv_norm", "mean_norm"),
    "similarity_threshold": ("anchor_match", "exact"),
    "surplus": ("oversampling", 1.0),
    "overlong_max_len": ("overlong_buffer", 0),
    "overlong_factor": ("overlong_buffer", 0),
}
"""Parameter -> (switch, value of the switch at which the parameter is not read); counts if the switch itself is read."""
_ALWAYS_READ = (
    *REGISTRIES,
    *("format_penalty", "penalise", "kl_coef", "kl_in", "entropy_coef"),
    *("seq_mask_delta", "seq_mask_norm", "mismatch", "geo_low", "geo_high"),
    *("overlong_buffer", "overlong_max_len", "overlong_factor", "overlong_mask", "void_turn", "min_abs_advantage"),
)


def read_keys(spec: ObjectiveSpec) -> frozenset[str]:
    """Return the names of the parameters that this point of the grid reads, the axis names included."""
    return _candidates(spec) - _switched_off(spec)


def unread_message(spec: ObjectiveSpec, key: str) -> str:
    """Return why nothing reads ``key`` in this spec, and which choice would."""
    prefix = f"{key}={getattr(spec, key)!r} is set, but nothing reads it with these choices"
    if key in _switched_off(spec):
        switch, off = _UNREAD_IF[key]
        return f"{prefix} ({switch}={off!r}). Remove it, or set another {switch}."
    readers = {axis: registry.readers(key) for axis, registry in REGISTRIES.items() if registry.readers(key)}
    now = ", ".join(f"{axis}={getattr(spec, axis)!r}" for axis in readers)
    who = "; ".join(f"{axis}: {', '.join(names)}" for axis, names in readers.items())
    return f"{prefix} ({now}). Remove it, or choose one that reads it: {who}."


def _candidates(spec: ObjectiveSpec) -> frozenset[str]:
    by_choice = [registry.reads(getattr(spec, key)) for key, registry in REGISTRIES.items()]
    return frozenset(_ALWAYS_READ).union(*by_choice)


def _switched_off(spec: ObjectiveSpec) -> set[str]:
    read = _candidates(spec)
    return {k for k, (switch, off) in _UNREAD_IF.items() if switch in read and getattr(spec, switch) == off}
