"""The numeric reference cases: the file, its fixtures, and the translation of a case into this project's parameters.

``ARLARENA_REFCASES=/path/cases.json pytest tests/refcases`` runs another file of the same form.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from arlarena_rllib.objectives import (
    AdvantageRows,
    ObjectiveSpec,
    RowIds,
    anchor_ids,
    compute_advantages,
    episode_returns,
)

SHIPPED = Path(__file__).with_name("cases.json")
CASES_PATH = Path(os.environ.get("ARLARENA_REFCASES", SHIPPED))
DOCUMENT = json.loads(CASES_PATH.read_text(encoding="utf-8"))
CASES = DOCUMENT["cases"]

RTOL = {torch.float64: 1e-9, torch.float32: 2e-4}
ROUNDING_OVER_EPS = 1e-8
"""Group of equal scores: the reference has rounding noise over a tiny eps where this project has exactly 0."""

Case = dict[str, Any]
Family = tuple[str, str]
Result = dict[str, Any]


def family(case: Case) -> Family:
    """Return what decides how a case is computed: kind and method."""
    return case["kind"], case["method"]


def shipped_cases() -> list[Case]:
    """Return the cases of the file in the repository, whichever file is run."""
    return json.loads(SHIPPED.read_text(encoding="utf-8"))["cases"]


class Fixture:
    """Tensors and row vectors of one fixture in one dtype."""

    def __init__(self, name: str | None, dtype: torch.dtype) -> None:
        self.raw = DOCUMENT["fixtures"][name] if name else {}
        self.dtype = dtype
        self.rows = self.raw.get("rows", [])

    def tensor(self, name: str) -> Tensor:
        return torch.tensor(self.raw[name], dtype=self.dtype)

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.rows]

    def mask(self, params: dict[str, Any]) -> Tensor:
        mask_B_T = torch.tensor(self.raw["mask"]).bool()
        return torch.zeros_like(mask_B_T) if params.get("mask_override") == "all zeros" else mask_B_T

    def advantage_rows(self) -> AdvantageRows:
        trajectory_id_B = self.trajectory_id()
        reward_B = torch.tensor(self.column("env_reward"), dtype=self.dtype)
        valid_B = torch.tensor(self.column("format_valid")).bool()
        tokens = ("old_logp", "ref_logp", "entropy")
        return AdvantageRows(
            mask_B_T=torch.tensor(self.raw["mask"]).bool(),
            **{f"{name}_B_T": self.tensor(name) for name in tokens if name in self.raw},
            group_id_B=anchor_ids(self.column("group")),
            trajectory_id_B=trajectory_id_B,
            turn_index_B=torch.tensor(self.column("turn")),
            step_reward_B=reward_B,
            episode_return_B=episode_returns(reward_B, trajectory_id_B),
            format_valid_B=valid_B,
            action_valid_B=torch.ones_like(valid_B),
            anchor_id_B=anchor_ids(self.column("obs")),
        )

    def trajectory_id(self) -> Tensor:
        return anchor_ids([(row["group"], row["traj"]) for row in self.rows])

    def row_ids(self) -> RowIds:
        return RowIds(self.trajectory_id(), torch.tensor(self.column("turn")))


def spec_of(params: dict[str, Any], **more: Any) -> ObjectiveSpec:
    """Translate the parameters of a case; keys that a case does not have keep the defaults."""
    names = {"eps_low": "clip_low", "eps_high": "clip_high", "agg": "aggregation", "dual_clip": "dual_clip"}
    names |= {"Lmax": "length_norm", "divide_by_rows": "norm_by_rows", "unit": "adv_unit", "eps": "adv_eps"}
    names |= {"ddof": "adv_ddof", "lam": "format_penalty", "scheme": "penalty_scheme", "mode": "adv_norm"}
    names |= {"singleton": "adv_singleton", "gamma": "gamma", "omega": "omega"}
    names |= {"kl": "kl_estimator", "kl_coef": "kl_coef", "tau_pos": "tau_pos", "tau_neg": "tau_neg"}
    names |= {"delta": "seq_mask_delta", "denominator": "seq_mask_norm", "granularity": "ratio_level"}
    names |= {"K": "hgpo_levels", "alpha": "hgpo_alpha"}
    names |= {"k": "empg_k", "k_prime": "empg_k_future", "zeta": "empg_zeta"}
    values = {ours: params[theirs] for theirs, ours in names.items() if theirs in params}
    return ObjectiveSpec(**{"penalise": "format", "kl_coef": 0.0, **values, **more})


class LossInputs(NamedTuple):
    """What the loss of a case is computed from, beside its fixture."""

    spec: ObjectiveSpec
    advantages: Tensor


def clipped_loss(clipping: str) -> Callable[[Case, Fixture], LossInputs]:
    """Return the translation of a family of a clipping choice, with or without sequence masking."""

    def inputs(case: Case, fixture: Fixture) -> LossInputs:
        params = dict(case["params"])
        if params["agg"] == "seq-mean-token-sum-norm":
            params.setdefault("Lmax", len(fixture.raw["mask"][0]))
        return LossInputs(
            spec_of(params, clipping=clipping, **_bounds(clipping, params)), fixture.tensor(params["adv"])
        )

    return inputs


def _bounds(clipping: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return what the cases of a clipping state in another form than the spec: CISPO's cap or distance from 1."""
    if clipping != "cispo":
        return {}
    if "cap" in params:
        return {"is_low": 0.0, "is_high": params["cap"]}
    return {"is_low": 1.0 - params["eps_low"], "is_high": 1.0 + params["eps_high"]}


def corrected_loss(case: Case, fixture: Fixture) -> LossInputs:
    """PPO under a correction of the mismatch."""
    params = case["params"]
    assert params["denominator"] == "all_tokens"
    token, sequence = "token" in params["level"], params["level"] == "sequence_product"
    operation = {"mask": "mis", "truncate": "tis", "mask_only": None}[params.get("op", "truncate")]
    kind = f"{operation}_{'seq' if sequence else 'token'}" if operation and (token or sequence) else "none"
    bounds = {"mismatch_low": params.get("lo"), "mismatch_high": params.get("cap", params.get("hi"))}
    if "geometric" in params["level"]:
        bounds = {"mismatch_high": params.get("cap"), "geo_low": params["lo"], "geo_high": params["hi"]}
    given = {key: value for key, value in bounds.items() if value is not None}
    spec = spec_of(params, clipping="ppo", mismatch="active", mismatch_is=kind, **given)
    return LossInputs(spec, fixture.tensor(params["adv"]))


def loop_loss(case: Case, fixture: Fixture) -> LossInputs:
    """Products of ratios under the reduction that belongs to each level, with leave-one-out advantages."""
    params = case["params"]
    level, is_reciprocal = params["granularity"], "/reciprocal/" in case["id"]
    base, _, penalty = params["adv"].partition(" lam=")
    assert base == "rloo unit=traj score=episode_sum"
    assert math.isclose(params["clip_lo"], 1 / params["clip_hi"] if is_reciprocal else 2 - params["clip_hi"])
    spec = spec_of(
        params,
        clipping="loop",
        advantage="rloo",
        aggregation="traj-mean-turn-mean-token-mean" if level == "turn" else "traj-mean-token-mean",
        ratio_bounds="reciprocal" if is_reciprocal else "symmetric",
        clip_low=1.0 - params["clip_lo"],
        clip_high=params["clip_hi"] - 1.0,
        format_penalty=float(penalty),
    )
    return LossInputs(spec, compute_advantages(fixture.advantage_rows(), spec).advantages_B)


def kl_loss(case: Case, fixture: Fixture) -> LossInputs:
    """The KL alone: no advantage."""
    spec = spec_of(case["params"], kl_estimator=case["params"]["kind"], kl_coef=1.0)
    return LossInputs(spec, torch.zeros(len(fixture.rows)))


def sampo_loss(case: Case, fixture: Fixture) -> LossInputs:
    """The whole method, advantages included."""
    assert case["params"]["seq_mask"] is False
    spec = spec_of(case["params"], clipping="gspo", advantage="gigpo", filtering="dynamic")
    return LossInputs(spec, compute_advantages(fixture.advantage_rows(), spec).advantages_B)


LOSS_INPUTS: dict[Family, Callable[[Case, Fixture], LossInputs]] = {
    ("loss", "ppo_clip"): clipped_loss("ppo"),
    ("loss", "dapo"): clipped_loss("ppo"),
    ("loss", "gspo"): clipped_loss("gspo"),
    ("loss", "gspo_token"): clipped_loss("gspo_token"),
    ("loss", "kl"): kl_loss,
    ("loss", "cispo"): clipped_loss("cispo"),
    ("loss", "sapo"): clipped_loss("sapo"),
    ("loss", "reinforce"): clipped_loss("none"),
    ("loss", "grpo_sm"): clipped_loss("ppo"),
    ("loss", "cispo_sm"): clipped_loss("cispo"),
    ("loss", "sapo_sm"): clipped_loss("sapo"),
    ("loss", "mismatch_is"): corrected_loss,
    ("loss", "loop"): loop_loss,
    ("loss", "sampo"): sampo_loss,
}
"""Family of the loss cases -> spec and advantages of a case."""


def differences(got: Any, expected: Any, rtol: float, where: str = "") -> list[str]:
    """List where two nested results differ; numbers of one list are compared relative to the largest of the list."""
    if isinstance(expected, dict):
        if not isinstance(got, dict) or set(got) != set(expected):
            return [f"{where}: keys {sorted(got)} != {sorted(expected)}"]
        return [line for key in expected for line in differences(got[key], expected[key], rtol, f"{where}/{key}")]
    numbers = _flat_numbers(expected)
    if numbers is None:
        if isinstance(expected, list) and isinstance(got, list) and len(got) == len(expected):
            pairs = enumerate(zip(got, expected, strict=True))
            return [line for i, (g, e) in pairs for line in differences(g, e, rtol, f"{where}[{i}]")]
        return [] if got == expected else [f"{where}: {got!r} != {expected!r}"]
    mine = _flat_numbers(got)
    if mine is None or len(mine) != len(numbers):
        return [f"{where}: not the same shape"]
    allowed = rtol * max((abs(number) for number in numbers), default=0.0)
    return [f"{where}: {g!r} != {e!r}" for g, e in zip(mine, numbers, strict=True) if not _close(g, e, allowed)]


def _close(got: float, expected: float, allowed: float) -> bool:
    if got == 0.0 and abs(expected) <= ROUNDING_OVER_EPS:
        return True
    return math.isfinite(got) and abs(got - expected) <= allowed


def _flat_numbers(value: Any) -> list[float] | None:
    """Return the numbers of a number or of nested lists of numbers, else None."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return [float(value)]
    if isinstance(value, list):
        parts = [_flat_numbers(item) for item in value]
        return None if any(part is None for part in parts) else [number for part in parts for number in part or []]
    return None
