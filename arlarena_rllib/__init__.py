"""ARLArena on RLlib: train multi-turn LLM agents with any policy-optimisation method of a four-axis grid.

``ARLArena`` and ``ARLArenaConfig`` are imported on first use, so that the light parts of the package (objectives,
trajectory schema, errors) load without Ray.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arlarena_rllib.algorithm import ARLArena
    from arlarena_rllib.config import ARLArenaConfig

__all__ = ["ARLArena", "ARLArenaConfig"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "ARLArena":
        from arlarena_rllib.algorithm import ARLArena

        return ARLArena
    if name == "ARLArenaConfig":
        from arlarena_rllib.config import ARLArenaConfig

        return ARLArenaConfig
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
