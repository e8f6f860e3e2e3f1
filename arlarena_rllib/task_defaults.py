"""What the ARLArena study sets per task, between a method's preset and a user's own values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

STUDY = "ARLArena 2602.21534 table S1"
Choice = tuple[str, str]


@dataclass(frozen=True)
class TaskDefaults:
    """Parameters of one task.

    Attributes:
        by_choice: (axis, choice) -> method parameters, applied to methods that make this choice.
        params: Method parameters for every method.
        scale: The study's run settings for its models of 4B parameters, to be read, not applied: `section.key` -> value.
        source: Where the values stand.
    """

    by_choice: Mapping[Choice, Mapping[str, Any]] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    scale: Mapping[str, Any] = field(default_factory=dict)
    source: str = STUDY

    def settings_for(self, axes: Mapping[str, str]) -> dict[str, Any]:
        """Return the parameters for a method with these choices, axis -> choice."""
        found = dict(self.params)
        for (axis, choice), params in self.by_choice.items():
            if axes.get(axis) == choice:
                found.update(params)
        return found


def _scale(
    groups: int, size: int, window: int, prompt: int, response: int, lr: float, temperature: float
) -> dict[str, Any]:
    return {
        "env_runners.groups_per_iteration": groups,
        "env_runners.group_size": size,
        "env_runners.memory_window": window,
        "env_runners.max_response_tokens": response,
        "serving.max_model_len": prompt + response,
        "training.lr": lr,
        "evaluation.evaluation_temperature": temperature,
    }


_GSPO: Choice = ("clipping", "gspo")
_GSPO_TOKEN: Choice = ("clipping", "gspo_token")
_DYNAMIC: Choice = ("filtering", "dynamic")
_OF_STATES = ("gigpo", "hgpo")
_WIDE = {"clip_low": 3e-2, "clip_high": 4e-2}

TASKS: dict[str, TaskDefaults] = {
    "alfworld": TaskDefaults(
        by_choice={_DYNAMIC: {"cold_start_iterations": 15}},
        scale=_scale(16, 8, 2, 2048, 512, 1e-6, 0.6),
    ),
    "webshop": TaskDefaults(
        by_choice={_GSPO: _WIDE, _GSPO_TOKEN: _WIDE, _DYNAMIC: {"cold_start_iterations": 5}},
        scale=_scale(16, 8, 2, 4096, 512, 1e-6, 0.6),
    ),
    "sokoban": TaskDefaults(scale=_scale(32, 8, 2, 1024, 512, 1e-6, 0.7)),
    "tir_math": TaskDefaults(
        by_choice={
            ("clipping", "ppo"): {"clip_high": 0.28},
            ("clipping", "cispo"): {"is_high": 1.28},
            _DYNAMIC: {"max_tries": 2},
        },
        params={"kl_coef": 0.0},
        scale=_scale(512, 5, 0, 8196, 4096, 1e-6, 0.6),
    ),
    "search_qa": TaskDefaults(
        by_choice={
            ("advantage", name): {"anchor_match": "similar", "similarity_threshold": 0.9} for name in _OF_STATES
        },
        params={"kl_coef": 0.0},
        scale=_scale(256, 8, 4, 4096, 500, 1e-6, 0.6),
        source="ARLArena's released search scripts; groups of 8 as in T2PO 2605.02178",
    ),
}
"""By task family; the first steps of dynamic filtering are those of the released scripts."""
