"""ObjectiveSpec: the four axis choices and every parameter they read; the one place of defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from arlarena_rllib.objectives.registry import NEEDS, SCORED_NEEDS, unknown_choice
from arlarena_rllib.objectives.spec_needs import another_choice, needs_and_owners, ruled_out
from arlarena_rllib.objectives.spec_reads import read_keys, unread_message
from arlarena_rllib.objectives.spec_values import OPEN_LENGTHS, bad_values, unknown_names


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
        unknown = unknown_names(self)
        problems = [*unknown, *bad_values(self)] if unknown else [*bad_values(self), *ruled_out(self)]
        if problems:
            raise ValueError("\n".join(problems))

    def within(self, max_row_tokens: int) -> ObjectiveSpec:
        """Return the spec with every length that is left open set to the run's own limit.

        Args:
            max_row_tokens: most policy tokens of one row.
        """
        open_lengths: dict[str, Any] = {k: max_row_tokens for k in OPEN_LENGTHS if getattr(self, k) is None}
        return dataclasses.replace(self, **open_lengths)

    def read_keys(self) -> frozenset[str]:
        """Return the names of the parameters that this point of the grid reads, the axis names included."""
        return read_keys(self)

    def needs(self) -> frozenset[str]:
        """Return what the rows must carry before the advantages can be computed, keys of `NEEDS`."""
        return frozenset(need for need, _ in needs_and_owners(self))

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
            f"{owner} needs {need} ({NEEDS[need]}), which {where} does not give. {another_choice(self, need, owner)}."
            for need, owner in needs_and_owners(self)
            if need not in have
        ]
        if missing:
            raise ValueError("\n".join(missing))

    def refuse_unread(self, keys: Iterable[str]) -> None:
        """Check that every given parameter is read by the chosen axes.

        Raises:
            ValueError: lists each unread key with the choice in force and the choices that would read it.
        """
        unread = [
            unread_message(self, key)
            if key in SPEC_FIELDS
            else str(unknown_choice("objective parameter", key, SPEC_FIELDS))
            for key in sorted(set(keys) - self.read_keys())
        ]
        if unread:
            raise ValueError("\n".join(unread))


SPEC_FIELDS: tuple[str, ...] = tuple(field.name for field in dataclasses.fields(ObjectiveSpec))
"""All parameter names, in order of declaration."""
