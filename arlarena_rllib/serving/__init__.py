"""The inference side: engines behind Ray Serve, weight pushes, and the client that rollouts use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arlarena_rllib.serving.client import Client, ClientSpec
from arlarena_rllib.serving.connect import connect
from arlarena_rllib.serving.engines.base import (
    FINISH_REASONS,
    Engine,
    EngineSpec,
    GenerationRequest,
    GenerationResult,
    register_engine,
)

if TYPE_CHECKING:
    from arlarena_rllib.serving.policy import LocalPolicy, Policy, start_policy
    from arlarena_rllib.serving.served_policy import ServedPolicy

__all__ = [
    "FINISH_REASONS",
    "Client",
    "ClientSpec",
    "Engine",
    "EngineSpec",
    "GenerationRequest",
    "GenerationResult",
    "LocalPolicy",
    "Policy",
    "ServedPolicy",
    "connect",
    "register_engine",
    "start_policy",
]

_LAZY = {
    "LocalPolicy": "arlarena_rllib.serving.policy",
    "Policy": "arlarena_rllib.serving.policy",
    "ServedPolicy": "arlarena_rllib.serving.served_policy",
    "start_policy": "arlarena_rllib.serving.policy",
}


def __getattr__(name: str) -> Any:
    """Import the driver side only where it is used."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LAZY[name]), name)
