"""The axes of the method grid and their registries."""

from __future__ import annotations

from typing import Any

from arlarena_rllib.objectives import advantages, aggregation, clipping, filtering, kl, mismatch
from arlarena_rllib.objectives.registry import Registry

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
