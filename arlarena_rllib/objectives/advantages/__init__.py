"""Advantages, one family per file: registered functions from the rows of a batch to a number per row or per token.

A new one is a function ``(AdvantageRows, ObjectiveSpec) -> AdvantageTerms`` under ``@register(name, reads=, needs=)``; one
whose advantages differ inside a row adds ``rules_out=("row_advantages",)``.
"""

from arlarena_rllib.objectives.advantages.compute import AdvantageResult, compute_advantages
from arlarena_rllib.objectives.advantages.entropy_modulated import empg
from arlarena_rllib.objectives.advantages.gae import gae_token, gae_turn, generalised_advantages
from arlarena_rllib.objectives.advantages.group_relative import grpo, rloo
from arlarena_rllib.objectives.advantages.prefixes import arpo_hard, arpo_soft
from arlarena_rllib.objectives.advantages.rewards import penalised_flag, token_rewards
from arlarena_rllib.objectives.advantages.rows import AdvantageRows
from arlarena_rllib.objectives.advantages.step_groups import gigpo, hgpo
from arlarena_rllib.objectives.advantages.terms import (
    ANCHOR_MATCHES,
    NORMS,
    REGISTRY,
    SINGLETONS,
    UNITS,
    AdvantageFn,
    AdvantageTerms,
    register,
)
from arlarena_rllib.objectives.advantages.token_returns import reinforce_pp, reinforce_pp_baseline

__all__ = [
    "ANCHOR_MATCHES",
    "AdvantageFn",
    "AdvantageResult",
    "AdvantageRows",
    "AdvantageTerms",
    "NORMS",
    "REGISTRY",
    "SINGLETONS",
    "UNITS",
    "arpo_hard",
    "arpo_soft",
    "compute_advantages",
    "empg",
    "gae_token",
    "gae_turn",
    "generalised_advantages",
    "gigpo",
    "grpo",
    "hgpo",
    "penalised_flag",
    "register",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "rloo",
    "token_rewards",
]
