"""The control: the CPU time that RL took, spent on more cloning of the same demonstrations."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from arlarena_rllib.errors import ConfigError
from arlarena_rllib.models.export import save_policy
from arlarena_rllib.rollout.codec import TextCodec
from arlarena_rllib.trajectory import build_token_batch
from arlarena_rllib.warmstart.cloning import CloningConfig
from tune_experiments.prepare import Progress, clone, demonstration_groups
from tune_experiments.run_config import RunConfig


def more_cloning(run: RunConfig, start: Path, folder: Path, cpu_seconds: float, progress: Progress | None) -> Path:
    """Continue cloning from ``start`` for ``cpu_seconds`` of CPU time; write and return ``folder/control``.

    Same demonstrations, batch size and optimiser as the warm start; the learning rate starts at its peak again and
    decays over the given time.

    Raises:
        ConfigError: the run clones nothing, or its own successes, which cannot be made again.
    """
    if run.warm_start.source not in ("gold", "clumsy"):
        raise ConfigError(f"warm_start.source={run.warm_start.source!r} leaves no demonstrations to clone further.")
    codec = TextCodec(str(start))
    groups = demonstration_groups(run, start)
    batch = build_token_batch(groups, pad_id=codec.pad_id)
    config = CloningConfig(**{**asdict(run.warm_start.cloning), "cpu_seconds": cpu_seconds, "seed": run.seed + 1})
    model, _ = clone(run, start, batch, config, progress)
    out = folder / "control"
    save_policy(model, start, out)
    return out
