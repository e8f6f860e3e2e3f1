"""A method from outside: the further a token is from the old policy, the less it counts."""

from arlarena_rllib.objectives import ClipInput, ClipResult, ObjectiveSpec, token_ratio
from arlarena_rllib.objectives.clipping import register, unbounded
from arlarena_rllib.presets import METHODS, Method


@register("fade", reads=("clip_high",))
def fade(rows: ClipInput, spec: ObjectiveSpec) -> ClipResult:
    """Return ``l = -sg(exp(-|d| / clip_high)) r A``."""
    weight_B_T = (-rows.log_ratio_B_T.detach().abs() / spec.clip_high).exp()
    return unbounded(-weight_B_T * token_ratio(rows.log_ratio_B_T) * rows.adv_B_T)


METHODS["fade"] = Method("token-mean", "fade", "grpo", "none", "one's own", {"clip_high": 0.3, "kl_coef": 0.0})
