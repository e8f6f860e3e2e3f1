"""Clipping: the per-token surrogate loss and its trust region; one file per family of choices.

A registered function gets a `ClipInput` and the spec, and returns a `ClipResult`. A choice that needs to see the whole
minibatch registers a second function with `register_context`; what that returns travels with the rows as their context.
"""

from arlarena_rllib.objectives.clipping.base import (
    CONTEXTS,
    MAX_LOG_RATIO,
    MAX_SEQUENCE_LOG_RATIO,
    REGISTRY,
    ClipInput,
    ClipResult,
    RowIds,
    WholeBatch,
    clipped_surrogate,
    register,
    register_context,
    row_log_ratio,
    sequence_log_ratio,
    token_ratio,
    unbounded,
)
from arlarena_rllib.objectives.clipping.covariance import clip_cov, kl_cov
from arlarena_rllib.objectives.clipping.gspo import gspo, gspo_token
from arlarena_rllib.objectives.clipping.loop import RATIO_BOUNDS, RATIO_LEVELS, loop
from arlarena_rllib.objectives.clipping.ppo import none, ppo
from arlarena_rllib.objectives.clipping.soft import cispo, sapo

__all__ = [
    "CONTEXTS",
    "MAX_LOG_RATIO",
    "MAX_SEQUENCE_LOG_RATIO",
    "RATIO_BOUNDS",
    "RATIO_LEVELS",
    "REGISTRY",
    "ClipInput",
    "ClipResult",
    "RowIds",
    "WholeBatch",
    "cispo",
    "clip_cov",
    "clipped_surrogate",
    "gspo",
    "gspo_token",
    "kl_cov",
    "loop",
    "none",
    "ppo",
    "register",
    "register_context",
    "row_log_ratio",
    "sapo",
    "sequence_log_ratio",
    "token_ratio",
    "unbounded",
]
