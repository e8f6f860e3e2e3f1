"""Presets: the table method name -> one point of the four-axis grid, with the parameters its authors used."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from arlarena_rllib.objectives import AXES, SPEC_FIELDS, ObjectiveSpec


@dataclass(frozen=True)
class Method:
    """One row of the table: a choice on every axis, the parameters that differ from `ObjectiveSpec`'s defaults, a source."""

    aggregation: str
    clipping: str
    advantage: str
    filtering: str
    source: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        """Return the row as `ObjectiveSpec` keyword arguments."""
        return {**{axis: getattr(self, axis) for axis in AXES}, **self.params}


METHODS: dict[str, Method] = {
    "grpo": Method(
        aggregation="token-mean",
        clipping="ppo",
        advantage="grpo",
        filtering="none",
        params={
            "clip_low": 0.2,
            "clip_high": 0.2,
            "adv_unit": "traj",
            "adv_norm": "mean_std_norm",
            "kl_estimator": "k3",
            "kl_coef": 0.01,
            "format_penalty": 0.1,
            "penalty_scheme": "episode_sum",
        },
        source="GRPO 2402.03300 sec. 4.1; clip .2/.2, KL .01, penalty .1: ARLArena 2602.21534 sec. 4, table S1",
    ),
    "sampo": Method(
        aggregation="seq-mean-token-mean",
        clipping="gspo",
        advantage="gigpo",
        filtering="dynamic",
        params={
            "clip_low": 3e-3,
            "clip_high": 4e-3,
            "adv_unit": "traj",
            "adv_norm": "mean_std_norm",
            "omega": 1.0,
            "gamma": 0.95,
            "filter_metric": "success",
            "max_tries": 3,
            "fill": True,
            "kl_estimator": "k3",
            "kl_coef": 0.01,
            "format_penalty": 0.1,
            "penalty_scheme": "episode_sum",
        },
        source=(
            "SAMPO 2602.21534 sec. 5.2 eq. 8, table S1 (GSPO + GiGPO + dynamic filter); aggregation as its released "
            "code (eq. 8 has token-mean)"
        ),
    ),
}
"""All methods by name. A new one is one more row and, at most, one function on one axis."""


def method_names() -> list[str]:
    """Return the names of all methods, in the order of the table."""
    return list(METHODS)


def resolve_method(name: str, overrides: Mapping[str, Any] | None = None) -> ObjectiveSpec:
    """Return the spec of a method with some parameters, also axes, replaced.

    Args:
        name: a key of `METHODS`.
        overrides: `ObjectiveSpec` fields -> values.
    Returns:
        the resolved spec.
    Raises:
        ValueError: the method or a key is unknown (with the nearest), a value is not allowed, or the resolved method
            reads none of what an override sets.
    """
    if name not in METHODS:
        raise ValueError(f"method={name!r} is not known.{_nearest(name, METHODS)} Allowed: {', '.join(METHODS)}.")
    changes = dict(overrides or {})
    unknown = [key for key in changes if key not in SPEC_FIELDS]
    if unknown:
        raise ValueError("\n".join(_unknown_key(key, name) for key in unknown))
    spec = ObjectiveSpec(**{**METHODS[name].settings(), **changes})
    spec.refuse_unread(changes)
    return spec


def _unknown_key(key: str, method: str) -> str:
    return (
        f"method {method!r} has no parameter {key!r}.{_nearest(key, SPEC_FIELDS)} "
        f"Allowed: {', '.join(sorted(SPEC_FIELDS))}."
    )


def _nearest(name: str, allowed: Any) -> str:
    close = difflib.get_close_matches(name, list(allowed), n=1, cutoff=0.5)
    return f" Nearest: {close[0]!r}." if close else ""
