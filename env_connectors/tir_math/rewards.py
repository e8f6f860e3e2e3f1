"""The environment's own parts of the reward; each reads the facts of an episode and gives 0 or 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from env_connectors.reward_parts import RewardFn

Facts = Mapping[str, Any]


def answer(facts: Facts) -> float:
    """1 for an answer that is equivalent to the right one."""
    return float(facts["is_correct"])


def format_kept(facts: Facts) -> float:
    """1 for an episode that ended with an answer and had no void turn and no empty program."""
    return float(facts["is_answered"] and not facts["void_turns"] and not facts["empty_calls"])


def tool_use(facts: Facts) -> float:
    """1 for a right answer after at least one program that ended well: calls for their own sake earn nothing."""
    return float(facts["is_correct"] and facts["tool_calls"] > facts["tool_errors"])


OWN: dict[str, RewardFn] = {"answer": answer, "format": format_kept, "tool_use": tool_use}
DEFAULT: dict[str, float] = {"answer": 1.0}
