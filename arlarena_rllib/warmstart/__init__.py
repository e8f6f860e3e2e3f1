"""Warm start: demonstrations (gold, or the policy's own successes) and behaviour cloning on them."""

from arlarena_rllib.warmstart.cloning import CloningConfig, CloningReport, behaviour_cloning
from arlarena_rllib.warmstart.demonstrations import demonstrations, keep_successes

__all__ = ["CloningConfig", "CloningReport", "behaviour_cloning", "demonstrations", "keep_successes"]
