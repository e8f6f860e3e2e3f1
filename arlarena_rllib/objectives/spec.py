"""ObjectiveSpec: the four axis choices and every parameter they read; the one place of defaults."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from arlarena_rllib.objectives import advantages, aggregation, clipping, filtering, kl, mismatch, shaping, weighting
from arlarena_rllib.objectives.registry import NEEDS, SCORED_NEEDS, Registry, unknown_choice
from arlarena_rllib.objectives.scores import PENALISED_FLAGS, PENALTY_SCHEMES

AXES: dict[str, Registry[Any]] = {
    "aggregation": aggregation.REGISTRY,
    "clipping": clipping.REGISTRY,
    "advantage": advantages.REGISTRY,
    "filtering": filtering.REGISTRY,
}
"""Axis name (a field of `ObjectiveSpec`) -> its registry."""

REGISTRIES: dict[str, Registry[Any]] = {
    **AXES,
    "kl_estimator": kl.REGISTRY,
    "mismatch_is": mismatch.REGISTRY,
}
"""Every field that names a registered choice -> its registry."""

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
_OPTIONAL_INTEGERS = ("length_norm", "overlong_max_len")
_INTEGERS = (
    *("adv_ddof", "max_tries", "cold_start_iterations", "hgpo_levels", "overlong_buffer"),
    *_OPTIONAL_INTEGERS,
)
_FLAGS = ("norm_by_rows", "fill", "adv_whiten", "overlong_mask")


@dataclass(frozen=True)
class ObjectiveSpec:
    """One point of the method grid: four axis names, and the parameters that the named choices read.

    A value outside its range or list is refused on construction, all problems in one `ValueError`. A parameter that no
    chosen axis reads is harmless here; `refuse_unread` turns it into an error for keys that a person set.
    """

    aggregation: str = "token-mean"
    """How per-token losses become one number; see `arlarena_rllib.objectives.aggregation`."""
    clipping: str = "ppo"
    """Per-token surrogate and its trust region; see `arlarena_rllib.objectives.clipping`."""
    advantage: str = "grpo"
    """Advantage estimator; see `arlarena_rllib.objectives.advantages`."""
    filtering: str = "none"
    """Which groups are worth training on; see `arlarena_rllib.objectives.filtering`."""

    clip_low: float = 0.2
    """Ratio bound 1 - clip_low, in [0, 1]."""
    clip_high: float = 0.2
    """Ratio bound 1 + clip_high, >= 0."""
    dual_clip: float | None = None
    """Second bound for negative advantages, > 1; None = off, as in every paper objective."""
    is_low: float = 0.0
    """CISPO: lower bound of the importance weight itself, in [0, 1]; 0 = none, as in the paper."""
    is_high: float = 1.2
    """CISPO: upper bound of the importance weight itself, >= 1 (ARLArena 1.2, ScaleRL 5)."""
    tau_pos: float = 1.0
    """SAPO: steepness of the gate for positive advantages, > 0."""
    tau_neg: float = 1.05
    """SAPO: steepness of the gate for the other advantages, > 0."""
    ratio_level: str = "token"
    """LOOP: the ratio is that of a "token", or the product over a "turn" (row) or a "trajectory"."""
    ratio_bounds: str = "symmetric"
    """LOOP: "symmetric" [1 - clip_low, 1 + clip_high], or "reciprocal" [1 / (1 + clip_high), 1 + clip_high]."""
    cov_low: float = 1.0
    """Clip-Cov: only tokens with a larger covariance are candidates."""
    cov_high: float = 5.0
    """Clip-Cov: only tokens with a smaller covariance are candidates."""
    cov_frac: float = 2e-4
    """Clip-Cov and KL-Cov: share of the tokens that are picked, in (0, 1]; at least one token."""
    cov_coef: float = 1.0
    """KL-Cov: weight of |log ratio| on the picked tokens."""

    seq_mask_delta: float | None = None
    """Sequence masking, on any clipping: drop rows with A < 0 whose mean log(pi_old / pi) exceeds it; None = off."""
    seq_mask_norm: str = "all_tokens"
    """Masked rows count in the denominators ("all_tokens", papers), or not ("kept_tokens", released code)."""

    mismatch: str = "off"
    """Correction of trainer against engine, rho = pi_old / mu: "off", "observe" (metrics only) or "active"."""
    mismatch_is: str = "tis_token"
    """Weight on the policy loss; see `arlarena_rllib.objectives.mismatch`."""
    mismatch_low: float = 0.5
    """mis_*: smallest rho that is not masked, in [0, 1]; 0 = no bound."""
    mismatch_high: float = 2.0
    """tis_*: cap on rho; mis_*: largest rho that is not masked, >= 1."""
    geo_low: float | None = None
    """Rows with a smaller geometric mean of rho are masked, in [0, 1]; None = no bound."""
    geo_high: float | None = None
    """Rows with a larger geometric mean of rho are masked, >= 1; None = no bound."""

    length_norm: int | None = None
    """Constant response length L_max [tokens] of seq-mean-token-sum-norm; None = the run's longest row (`within`)."""
    norm_by_rows: bool = True
    """seq-mean-token-sum-norm: divide by the number of rows too (verl does not)."""

    adv_unit: str = "traj"
    """One sample of the group statistics: "traj" (papers) or "row" (released code; long episodes weigh more)."""
    adv_norm: str = "mean_std_norm"
    """"mean_std_norm" divides by the group's standard deviation, "mean_norm" only subtracts the mean (Dr. GRPO)."""
    adv_eps: float = 1e-6
    """Added to the standard deviation."""
    adv_ddof: int = 1
    """1 = unbiased standard deviation, 0 = population."""
    adv_singleton: str = "zero"
    """Advantage of a group of one: "zero" (no baseline, no signal) or "raw" (the score itself, as verl)."""
    gamma: float = 0.95
    """Discount per turn: step returns of GiGPO and HGPO, turn-level GAE."""
    omega: float = 1.0
    """Weight of the step advantage of GiGPO."""
    anchor_match: str = "exact"
    """Which turns share a state: "exact" (equal anchors) or "similar" (texts of the state, greedy clusters)."""
    similarity_threshold: float = 0.95
    """Smallest text similarity of one state, in [0.01, 1]."""
    hgpo_levels: int = 2
    """HGPO: most turns before the current one that must be equal too."""
    hgpo_alpha: float = 1.0
    """HGPO: level k weighs (k + 1)^hgpo_alpha."""
    empg_k: float = 1.0
    """EMPG: how strongly a turn's entropy scales its advantage down."""
    empg_k_future: float = 1.0
    """EMPG: how strongly the next turn's entropy scales the bonus down."""
    empg_zeta: float = 0.05
    """EMPG: weight of the bonus for a sure next turn."""
    token_gamma: float = 1.0
    """Discount per policy token: REINFORCE++, token-level GAE."""
    gae_lambda: float = 1.0
    """GAE: 1 = Monte-Carlo return minus value, 0 = one-step difference."""
    adv_whiten: bool = True
    """GAE: shift and scale advantages over the batch to mean 0 and variance 1."""
    value_coef: float = 0.5
    """Weight of the critic's loss beside the policy's."""
    value_clip: float = 0.5
    """Most that a value may move from that of the rollout before its loss is clipped, in units of value."""

    format_penalty: float = 0.1
    """Subtracted for a malformed or invalid action, in units of reward; 0 = off."""
    penalty_scheme: str = "episode_sum"
    """Where the penalty lands: "turn", "episode_sum" or "episode_any"."""
    penalise: str = "action"
    """Which flag is penalised: "action" (inadmissible counts too) or "format" (tags only)."""

    filter_metric: str = "success"
    """What must differ inside a group: "success" (0 < #success < G) or "reward" (returns not all equal)."""
    max_tries: int = 3
    """Most times that groups are sampled in one iteration."""
    fill: bool = True
    """Last try: complete the batch with uniform groups, in order."""
    cold_start_iterations: int = 0
    """The first so many iterations are not filtered."""
    oversampling: float = 1.0
    """Each try samples so many times the groups that are missing, >= 1; DAPO's code has 3."""
    surplus: str = "drop"
    """Informative groups beyond the target: "drop", or "keep" (a larger batch)."""

    overlong_buffer: int = 0
    """Tokens before overlong_max_len over which a reply's punishment grows from 0 to overlong_factor; 0 = off."""
    overlong_max_len: int | None = None
    """Longest allowed reply [tokens], buffer included; None = the run's longest row (`within`)."""
    overlong_factor: float = 1.0
    """Largest overlong punishment, in units of reward."""
    overlong_mask: bool = False
    """Leave replies that the length limit cut out of the loss; they still count in their group's statistics."""
    void_turn: str = "keep"
    """A turn without a valid action: "keep", "mask_turn" (out of the loss) or "drop_trajectory" (all its turns)."""
    min_abs_advantage: float = 0.0
    """Leave rows with no advantage of at least this size out of the loss; 0 = off."""

    kl_coef: float = 0.01
    """Weight of the KL to the reference policy; 0 = off."""
    kl_in: str = "loss"
    """Where the KL acts: "loss" (with gradient), or "reward" (subtracted per token, no gradient)."""
    kl_estimator: str = "k3"
    """See `arlarena_rllib.objectives.kl`."""
    entropy_coef: float = 0.0
    """Weight of the entropy bonus; 0 = off (the study does not mention one)."""

    def __post_init__(self) -> None:
        unknown = self._unknown_names()
        problems = [*unknown, *self._bad_types(), *self._bad_values(), *self._bad_combinations()]
        problems += [] if unknown else self._ruled_out()
        if problems:
            raise ValueError("\n".join(problems))

    def within(self, max_row_tokens: int) -> ObjectiveSpec:
        """Return the spec with every length that is left open set to the run's own limit.

        Args:
            max_row_tokens: most policy tokens of one row.
        """
        open_lengths: dict[str, Any] = {k: max_row_tokens for k in _OPTIONAL_INTEGERS if getattr(self, k) is None}
        return dataclasses.replace(self, **open_lengths)

    def read_keys(self) -> frozenset[str]:
        """Return the names of the parameters that this point of the grid reads, the axis names included."""
        return self._candidates() - self._switched_off()

    def _candidates(self) -> frozenset[str]:
        by_choice = [registry.reads(getattr(self, key)) for key, registry in REGISTRIES.items()]
        return frozenset(_ALWAYS_READ).union(*by_choice)

    def _switched_off(self) -> set[str]:
        read = self._candidates()
        return {k for k, (switch, off) in _UNREAD_IF.items() if switch in read and getattr(self, switch) == off}

    def needs(self) -> frozenset[str]:
        """Return what the rows must carry before the advantages can be computed, keys of `NEEDS`."""
        return frozenset(need for need, _ in self._needs_and_owners())

    @property
    def scores_before_advantages(self) -> bool:
        """Whether a scoring pass of the learner must come before the advantages."""
        return bool(self.needs() & SCORED_NEEDS)

    def refuse_missing(self, available: Iterable[str], *, where: str) -> None:
        """Check that everything this point of the grid needs can be had.

        Args:
            available: keys of `NEEDS` that the rows will carry.
            where: what the rows come from, for the message, e.g. "trajectory_mode='append'".
        Raises:
            ValueError: lists each missing need, who needs it, and what it is.
        """
        have = set(available)
        missing = [
            f"{owner} needs {need} ({NEEDS[need]}), which {where} does not give. Choose another {owner.split('=')[0]}."
            for need, owner in self._needs_and_owners()
            if need not in have
        ]
        if missing:
            raise ValueError("\n".join(missing))

    def _ruled_out(self) -> list[str]:
        return [
            self._ruled_out_message(need, owner, axis)
            for need, owner in self._needs_and_owners()
            for axis, registry in AXES.items()
            if need in registry.rules_out(getattr(self, axis))
        ]

    def _ruled_out_message(self, need: str, owner: str, axis: str) -> str:
        key, now = owner.split("=")[0], getattr(self, axis)
        others = [n for n in AXES[key].names() if need not in AXES[key].needs(n)] if key in AXES else []
        relatives_first = sorted(others, key=lambda name: not name.startswith(getattr(self, key)))
        instead = f" ({', '.join(relatives_first)})" if others else ""
        givers = ", ".join(name for name in AXES[axis].names() if need not in AXES[axis].rules_out(name))
        return (
            f"{owner} needs {need} ({NEEDS[need]}), which {axis}={now!r} does not give. "
            f"Choose another {key}{instead} or another {axis} ({givers})."
        )

    def _needs_and_owners(self) -> list[tuple[str, str]]:
        pairs = [
            (need, f"{axis}={getattr(self, axis)!r}")
            for axis, registry in AXES.items()
            for need in sorted(registry.needs(getattr(self, axis)))
        ]
        if self.kl_in == "reward" and self.kl_coef != 0.0:
            pairs += [(need, "kl_in='reward'") for need in ("mask", "old_logp", "ref_logp")]
        if self.anchor_match == "similar" and "anchor_match" in self.read_keys():
            pairs.append(("anchor_texts", "anchor_match='similar'"))
        if self.overlong_buffer > 0:
            pairs.append(("mask", f"overlong_buffer={self.overlong_buffer}"))
        if self.void_turn == "mask_turn":
            pairs.append(("turns", "void_turn='mask_turn'"))
        if self.clipping == "loop" and self.ratio_level != "token":
            need = "turns" if self.ratio_level == "turn" else "trajectories"
            pairs += [(name, f"ratio_level={self.ratio_level!r}") for name in (need, "row_advantages")]
        return pairs

    def refuse_unread(self, keys: Iterable[str]) -> None:
        """Check that every given parameter is read by the chosen axes.

        Raises:
            ValueError: lists each unread key with the choice in force and the choices that would read it.
        """
        unread = [self._unread_message(key) for key in sorted(set(keys) - self.read_keys())]
        if unread:
            raise ValueError("\n".join(unread))

    def _unread_message(self, key: str) -> str:
        if key not in SPEC_FIELDS:
            return str(unknown_choice("objective parameter", key, SPEC_FIELDS))
        prefix = f"{key}={getattr(self, key)!r} is set, but nothing reads it with these choices"
        if key in self._switched_off():
            switch, off = _UNREAD_IF[key]
            return f"{prefix} ({switch}={off!r}). Remove it, or set another {switch}."
        readers = {axis: registry.readers(key) for axis, registry in REGISTRIES.items() if registry.readers(key)}
        now = ", ".join(f"{axis}={getattr(self, axis)!r}" for axis in readers)
        who = "; ".join(f"{axis}: {', '.join(names)}" for axis, names in readers.items())
        return f"{prefix} ({now}). Remove it, or choose one that reads it: {who}."

    def _unknown_names(self) -> list[str]:
        closed = {**{key: registry.names() for key, registry in REGISTRIES.items()}, **CHOICES}
        return [
            str(unknown_choice(key, getattr(self, key), names))
            for key, names in closed.items()
            if getattr(self, key) not in names
        ]

    def _bad_types(self) -> list[str]:
        whole = [key for key in _INTEGERS if not _is_integer(getattr(self, key), optional=key in _OPTIONAL_INTEGERS)]
        flags = [key for key in _FLAGS if not isinstance(getattr(self, key), bool)]
        return [f"{key}={getattr(self, key)!r} must be a whole number." for key in whole] + [
            f"{key}={getattr(self, key)!r} must be true or false." for key in flags
        ]

    def _bad_values(self) -> list[str]:
        problems = []
        for key, (low, high) in _RANGES.items():
            value = getattr(self, key)
            if not _is_number(value) or not low <= value <= high:
                problems.append(f"{key}={value!r} must be a finite number in [{low:g}, {high:g}].")
        for key, (low, high) in _RANGES_OR_OFF.items():
            value = getattr(self, key)
            if value is not None and not (_is_number(value) and low <= value <= high):
                problems.append(f"{key}={value!r} must be a finite number in [{low:g}, {high:g}], or none for off.")
        for key, high in _ABOVE_ZERO.items():
            value = getattr(self, key)
            if not (_is_number(value) and 0.0 < value <= high):
                problems.append(f"{key}={value!r} must be a finite number in (0, {high:g}].")
        if self.dual_clip is not None and not (_is_number(self.dual_clip) and self.dual_clip > 1.0):
            problems.append(f"dual_clip={self.dual_clip!r} must be a number greater than 1, or none to switch it off.")
        if _is_integer(self.length_norm, optional=False) and self.length_norm < 1:  # type: ignore[operator]
            problems.append(f"length_norm={self.length_norm!r} must be at least 1 token.")
        return problems + self._bad_overlong()

    def _bad_overlong(self) -> list[str]:
        buffer, longest = self.overlong_buffer, self.overlong_max_len
        if longest is None or not _is_integer(buffer, optional=False) or not _is_integer(longest, optional=False):
            return []
        return [] if longest >= buffer else [f"overlong_max_len={longest} must be at least overlong_buffer={buffer}."]

    def _bad_combinations(self) -> list[str]:
        problems = []
        if self.kl_in == "reward" and self.kl_coef != 0.0 and self.kl_estimator in tuple(kl.LOSS_ONLY):
            why = kl.LOSS_ONLY[self.kl_estimator]
            problems.append(f"kl_in='reward' cannot use kl_estimator={self.kl_estimator!r}: {why}.")
        both = _is_number(self.cov_low) and _is_number(self.cov_high)
        if self.clipping == "clip_cov" and both and self.cov_low >= self.cov_high:
            problems.append(f"cov_low={self.cov_low!r} must be smaller than cov_high={self.cov_high!r}.")
        if self.mismatch != "off" and self.mismatch_is == "none" and self.geo_low is None and self.geo_high is None:
            problems.append(
                f"mismatch={self.mismatch!r} corrects nothing: set geo_low or geo_high, or another mismatch_is."
            )
        return problems


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_integer(value: object, *, optional: bool) -> bool:
    if value is None:
        return optional
    return isinstance(value, int) and not isinstance(value, bool)


SPEC_FIELDS: tuple[str, ...] = tuple(field.name for field in dataclasses.fields(ObjectiveSpec))
"""All parameter names, in order of declaration."""
