"""Points of the method grid that tests of invariants run over; a newly registered choice joins by itself."""

from __future__ import annotations

from typing import Any

from arlarena_rllib.objectives import AXES, ObjectiveSpec
from arlarena_rllib.objectives.mismatch import REGISTRY as MISMATCH

CLIPPINGS = AXES["clipping"].names()
MISMATCHES = MISMATCH.names()
PICKS = {"cov_low": 0.02, "cov_high": 9.0, "cov_frac": 0.2}
"""Makes the choices by covariance pick something in a batch of a few tokens."""

CLIPPING_VARIANTS: dict[str, dict[str, Any]] = {
    **{name: {"clipping": name} for name in CLIPPINGS},
    "loop-turn": {"clipping": "loop", "ratio_level": "turn"},
    "loop-trajectory": {"clipping": "loop", "ratio_level": "trajectory", "ratio_bounds": "reciprocal"},
}
"""Every clipping with its defaults, and the levels of LOOP."""

MODIFIERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "seq_mask": {"seq_mask_delta": 0.05},
    "seq_mask-kept": {"seq_mask_delta": 0.05, "seq_mask_norm": "kept_tokens"},
    **{f"mismatch-{name}": {"mismatch": "active", "mismatch_is": name, "geo_high": 1.1} for name in MISMATCHES},
    "observe": {"mismatch": "observe", "mismatch_is": "mis_token"},
    "all": {"seq_mask_delta": 0.05, "seq_mask_norm": "kept_tokens", "mismatch": "active", "geo_low": 0.8},
}
"""What may be put on top of any clipping."""


def spec_of(clipping: str, modifier: str = "plain", **more: Any) -> ObjectiveSpec:
    """Return the spec of a clipping variant under a modifier, with all terms of the loss switched on."""
    terms = {"length_norm": 8, "kl_coef": 0.1, "kl_estimator": "k3_is", "entropy_coef": 0.02}
    return ObjectiveSpec(**{**terms, **PICKS, **CLIPPING_VARIANTS[clipping], **MODIFIERS[modifier], **more})
