"""Presets: the table method name -> one point of the four-axis grid, with the parameters its authors used."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from arlarena_rllib.objectives import AXES, SPEC_FIELDS, ObjectiveSpec
from arlarena_rllib.task_defaults import TASKS


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


def _row(aggregation: str, clipping: str, advantage: str, filtering: str, source: str, **params: Any) -> Method:
    return Method(aggregation, clipping, advantage, filtering, source, params)


_ARL = "ARLArena 2602.21534 table S1"
_PPO = {"clip_low": 0.2, "clip_high": 0.2}
_GSPO = {"clip_low": 3e-3, "clip_high": 4e-3}
_GIGPO = {"adv_norm": "mean_std_norm", "gamma": 0.95, "omega": 1.0}
_CISPO = {"is_low": 0.0, "is_high": 1.2}
_SAPO = {"tau_pos": 1.0, "tau_neg": 1.05}
_DYNAMIC = {"filter_metric": "success", "max_tries": 3, "fill": True}

# fmt: off
METHODS: dict[str, Method] = {
    # name: aggregation, clipping, advantage, filtering, source, parameters that the source sets
    "grpo": _row("token-mean", "ppo", "grpo", "none", f"GRPO 2402.03300 sec. 4.1; {_ARL}", **_PPO),
    "grpo_st": _row("seq-mean-token-mean", "ppo", "grpo", "none", f"GRPO with the paper's mean over sequences; {_ARL}", **_PPO),
    "grpo_sm": _row("token-mean", "ppo", "grpo", "none", "GRPO with sequence masking; 2602.21534 table 1",
                    **_PPO, seq_mask_delta=3e-3),
    "dr_grpo": _row("seq-mean-token-sum-norm", "ppo", "grpo", "none", "Dr. GRPO 2503.20783 sec. 3", **_PPO,
                    adv_norm="mean_norm", kl_coef=0.0),
    "gspo": _row("seq-mean-token-mean", "gspo", "grpo", "none", f"GSPO 2507.18071 eq. 5-7; {_ARL} (paper: 3e-4, 4e-4)", **_GSPO),
    "gspo_token": _row("seq-mean-token-mean", "gspo_token", "grpo", "none", "GSPO 2507.18071 eq. 13-14", **_GSPO),
    "cispo": _row("token-mean", "cispo", "grpo", "none", f"CISPO, MiniMax-M1 2506.13585; {_ARL}", **_CISPO),
    "cispo_sm": _row("token-mean", "cispo", "grpo", "none", "CISPO with sequence masking; 2602.21534 table 1",
                     **_CISPO, seq_mask_delta=3e-3),
    "sapo": _row("seq-mean-token-mean", "sapo", "grpo", "none", "SAPO 2511.20347 (ARLArena aggregates by token-mean)", **_SAPO),
    "sapo_sm": _row("seq-mean-token-mean", "sapo", "grpo", "none", "SAPO with sequence masking; 2602.21534 table 1",
                    **_SAPO, seq_mask_delta=3e-3),
    "clip_cov": _row("token-mean", "clip_cov", "grpo", "none", "Clip-Cov 2505.22617", **_PPO, cov_frac=2e-4, cov_low=1.0,
                     cov_high=5.0, kl_coef=0.0),
    "kl_cov": _row("token-mean", "kl_cov", "grpo", "none", "KL-Cov 2505.22617", cov_frac=2e-4, cov_coef=1.0, kl_coef=0.0),
    "gigpo": _row("token-mean", "ppo", "gigpo", "none", f"GiGPO 2505.10978; {_ARL}", **_PPO, **_GIGPO),
    "hgpo": _row("token-mean", "ppo", "hgpo", "none", "HGPO 2602.22817", **_PPO, gamma=0.95, hgpo_levels=2, hgpo_alpha=1.0,
                 adv_ddof=0),
    "empg": _row("token-mean", "ppo", "empg", "none", f"EMPG 2509.09265; {_ARL}", **_PPO, empg_k=1.0, empg_k_future=1.0,
                 empg_zeta=0.05),
    "dapo": _row("token-mean", "ppo", "grpo", "dynamic", "DAPO 2503.14476 (clip-higher, no KL)", **_DYNAMIC, clip_low=0.2,
                 clip_high=0.28, kl_coef=0.0),
    "dapo_grpo": _row("token-mean", "ppo", "grpo", "dynamic", f"the study's DAPO with GRPO advantages; {_ARL}", **_DYNAMIC,
                      **_PPO),
    "dapo_gigpo": _row("token-mean", "ppo", "gigpo", "dynamic", f"the study's DAPO with GiGPO advantages; {_ARL}", **_DYNAMIC,
                       **_PPO, **_GIGPO),
    "rloo": _row("seq-mean-token-sum", "none", "rloo", "none", "RLOO 2402.14740 (REINFORCE, leave-one-out baseline)"),
    "reinforce_pp": _row("token-mean", "ppo", "reinforce_pp", "none", "REINFORCE++ 2501.03262 (KL k1 in the reward)", **_PPO,
                         token_gamma=1.0, kl_in="reward", kl_estimator="k1"),
    "reinforce_pp_baseline": _row("token-mean", "ppo", "reinforce_pp_baseline", "none", "REINFORCE++-baseline 2501.03262",
                                  **_PPO, kl_estimator="k2"),
    "loop": _row("traj-mean-token-mean", "loop", "rloo", "none", "LOOP 2502.01600 eq. 10; released code's bounds",
                 clip_high=0.1, ratio_level="token", ratio_bounds="reciprocal", min_abs_advantage=0.01, kl_coef=0.0),
    "ppo": _row("token-mean", "ppo", "gae_token", "none", "PPO 1707.06347, token-level GAE with a value head", **_PPO,
                token_gamma=1.0, gae_lambda=1.0),
    "turn_ppo": _row("token-mean", "ppo", "gae_turn", "none", "Turn-PPO 2512.17008, turn-level GAE with a value head", **_PPO,
                     gamma=0.99, gae_lambda=0.95),
    "sampo": _row("seq-mean-token-mean", "gspo", "gigpo", "dynamic",
                  f"SAMPO 2602.21534 sec. 5.2 eq. 8; {_ARL}; aggregation of its released code (eq. 8 has token-mean)",
                  **_GSPO, **_GIGPO, **_DYNAMIC),
    "sampo_token": _row("seq-mean-token-mean", "gspo_token", "gigpo", "dynamic",
                        "SAMPO 2602.21534 for growing conversations: several advantages in a row need GSPO-token (2507.18071 "
                        "sec. 4.3)", **_GSPO, **_GIGPO, **_DYNAMIC),
}
# fmt: on
"""All methods by name. A new one is one more row and, at most, one function on one axis.

KL 0.01 to the reference (k3, in the loss), format penalty 0.1 and one sample per trajectory are `ObjectiveSpec`'s defaults,
those of the ARLArena study.
"""


def method_names() -> list[str]:
    """Return the names of all methods, in the order of the table."""
    return list(METHODS)


def find_method(name: str) -> str:
    """Return the key of a method in `METHODS`; ``module:name`` imports the module that adds it first.

    Every process of a run resolves its method by this name, so a method from outside works in all of them.

    Raises:
        ValueError: the module cannot be imported, or the method is unknown (with the nearest).
    """
    module, _, key = name.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except Exception as error:  # a module of somebody else may raise anything
            raise ValueError(
                f"method={name!r}: module {module!r} cannot be imported: {type(error).__name__}: {error}."
            ) from error
    if key not in METHODS:
        raise ValueError(f"method={name!r} is not known.{_nearest(key, METHODS)} Allowed: {', '.join(METHODS)}.")
    return key


@dataclass(frozen=True)
class Resolved:
    """A resolved method.

    Attributes:
        spec: All parameters.
        origin: Parameter -> where its value comes from: "given", "task ...", "method ..." or "default".
    """

    spec: ObjectiveSpec
    origin: Mapping[str, str]


def resolve_method(name: str, overrides: Mapping[str, Any] | None = None, *, task: str | None = None) -> ObjectiveSpec:
    """Return the spec of a method with some parameters, also axes, replaced; see `resolve_with_origin`."""
    return resolve_with_origin(name, overrides, task=task).spec


def resolve_with_origin(name: str, overrides: Mapping[str, Any] | None = None, *, task: str | None = None) -> Resolved:
    """Return a method's spec and where each value comes from. Later wins: default, method, task, given.

    Args:
        name: a key of `METHODS`, or ``module:name`` (see `find_method`).
        overrides: `ObjectiveSpec` fields -> values.
        task: a key of `TASKS`, whose published values lie between the method's and the given ones; None = no task.
    Raises:
        ValueError: the method, the task or a key is unknown (with the nearest), a value is not allowed, or the resolved
            method reads none of what an override sets.
    """
    name = find_method(name)
    if task is not None and task not in TASKS:
        raise ValueError(f"task={task!r} is not known.{_nearest(task, TASKS)} Allowed: {', '.join(TASKS)}.")
    given = dict(overrides or {})
    unknown = [key for key in given if key not in SPEC_FIELDS]
    if unknown:
        raise ValueError("\n".join(_unknown_key(key, name) for key in unknown))
    preset = METHODS[name].settings()
    axes = {axis: given.get(axis, preset[axis]) for axis in AXES}
    by_task = TASKS[task].settings_for(axes) if task is not None else {}
    origin = dict.fromkeys(SPEC_FIELDS, "default")
    for layer, values in ((f"method {name}", preset), (f"task {task}", by_task), ("given", given)):
        origin |= dict.fromkeys(values, layer)
    spec = ObjectiveSpec(**{**preset, **by_task, **given})
    spec.refuse_unread(given)
    return Resolved(spec, origin)


def _unknown_key(key: str, method: str) -> str:
    return (
        f"method {method!r} has no parameter {key!r}.{_nearest(key, SPEC_FIELDS)} "
        f"Allowed: {', '.join(sorted(SPEC_FIELDS))}."
    )


def _nearest(name: str, allowed: Any) -> str:
    close = difflib.get_close_matches(name, list(allowed), n=1, cutoff=0.5)
    return f" Nearest: {close[0]!r}." if close else ""
