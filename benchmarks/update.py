"""Update: training tokens per second of the learner's minibatch steps, against plain PyTorch on the same micro-batches."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.env import INPUT_ENV_SPACES

from arlarena_rllib.config import ARLArenaConfig
from arlarena_rllib.learner.batching import learner_shards
from arlarena_rllib.trajectory import TokenBatch
from benchmarks.plain_update import PlainLoop
from benchmarks.report import bars, figure, table
from benchmarks.setting import quickstart_run
from benchmarks.timing import Stopwatch
from benchmarks.update_batch import learner_batch
from tune_experiments.prepare import base_model

TARGET = 0.85
Measured = tuple[dict[str, Any], str]
"""Result and its table."""
STEPS, SCORING, WHOLE, PLAIN = "minibatch steps", "scoring passes", "whole update", "plain PyTorch"


@dataclass(frozen=True)
class UpdateSize:
    """How much is trained on: the quick start's 16 groups of 8 episodes by default."""

    groups: int = 16
    members: int = 8


class TimedLearner:
    """A real LearnerGroup without remote learners, with clocks around its scoring passes and its minibatch steps."""

    def __init__(self, config: ARLArenaConfig, batch: TokenBatch) -> None:
        spaces: tuple[gymnasium.Space, gymnasium.Space] = (gymnasium.spaces.Discrete(1), gymnasium.spaces.Discrete(1))
        spec = config.get_multi_rl_module_spec(spaces={INPUT_ENV_SPACES: spaces, DEFAULT_MODULE_ID: spaces})
        self._group = config.build_learner_group(rl_module_spec=spec)
        self._batch = batch
        self._clocks = {name: Stopwatch() for name in (STEPS, SCORING, WHOLE)}
        learner: Any = self._group._learner
        learner._step = self._clocks[STEPS].around(learner._step)
        learner._scores = self._clocks[SCORING].around(learner._scores)

    def update(self) -> dict[str, dict[str, float]]:
        """Run one update; return wall and CPU seconds of its parts."""
        shard = learner_shards(self._batch, 1)[0]
        with self._clocks[WHOLE].running():
            self._group.update(batch=shard)
        return {name: clock.take() for name, clock in self._clocks.items()}

    def close(self) -> None:
        """Free the learner."""
        self._group.shutdown()


def run(*, rounds: int, small: bool = False) -> tuple[dict[str, Any], str]:
    """Return the result and its table; ``small`` is for a look, not for a measurement."""
    return on_base_model(measure, rounds=rounds, small=small)


def on_base_model(measure: Callable[..., Measured], *, rounds: int, small: bool) -> Measured:
    """Return what ``measure(model, rounds=, size=)`` finds on the quick start's model before any training."""
    settings = quickstart_run(["model.corpus_tasks=40"] if small else [])
    with tempfile.TemporaryDirectory(prefix="arlarena-bench-") as folder:
        model = base_model(settings, Path(folder))
        return measure(model, rounds=rounds, size=UpdateSize(3, 2) if small else UpdateSize())


def measure(model: Path, *, rounds: int, size: UpdateSize) -> tuple[dict[str, Any], str]:
    """Alternate the learner, plain PyTorch, and the learner without a reference, ``rounds`` times after a warm-up."""
    config = quickstart_run().algorithm(model)
    batch = learner_batch(config, model, groups=size.groups, members=size.members)
    learner, plain = TimedLearner(config, batch), PlainLoop(model, batch, config)
    alone = TimedLearner(quickstart_run(["training.kl_coef=0.0"]).algorithm(model), batch)
    found = []
    for number in range(rounds + 1):
        clock = Stopwatch()
        parts = learner.update()
        plain.warm_up()
        with clock.running():
            plain.update()
        parts[PLAIN] = clock.take()
        parts["scoring without reference"] = alone.update()[SCORING]
        if number > 0:
            found.append(parts)
    learner.close()
    alone.close()
    return _result(found, batch, config, plain, size)


def _result(
    rounds: list[dict[str, dict[str, float]]],
    batch: TokenBatch,
    config: ARLArenaConfig,
    plain: PlainLoop,
    size: UpdateSize,
) -> tuple[dict[str, Any], str]:
    tokens = int(batch["attention_mask"].sum())
    seconds = {
        name: {unit: median(r[name][unit] for r in rounds) for unit in ("wall_s", "cpu_s")} for name in rounds[0]
    }
    speed = {name: {unit: tokens / value for unit, value in times.items()} for name, times in seconds.items()}
    ratios = {unit: speed[STEPS][unit] / speed[PLAIN][unit] for unit in ("wall_s", "cpu_s")}
    cpu = {name: times["cpu_s"] for name, times in seconds.items()}
    parts = {
        "minibatch steps": cpu[STEPS],
        "old log-probs": cpu["scoring without reference"],
        "reference log-probs": max(0.0, cpu[SCORING] - cpu["scoring without reference"]),
        "rest of the update": max(0.0, cpu[WHOLE] - cpu[STEPS] - cpu[SCORING]),
    }
    result = {
        "benchmark": "update",
        "figure": figure(
            "tokens per CPU second, learner's steps : plain PyTorch", ratios["cpu_s"], target=TARGET, at_least=True
        ),
        "ratio_wall": ratios["wall_s"],
        "ratio_cpu": ratios["cpu_s"],
        "ratio_cpu_of_rounds": [r[PLAIN]["cpu_s"] / r[STEPS]["cpu_s"] for r in rounds],
        "tokens_per_wall_s": {name: values["wall_s"] for name, values in speed.items()},
        "tokens_per_cpu_s": {name: values["cpu_s"] for name, values in speed.items()},
        "cpu_s_of_one_update": parts,
        "extra_passes_per_step": {name: parts[name] / cpu[STEPS] for name in ("old log-probs", "reference log-probs")},
        "rounds": rounds,
        "settings": {
            "groups": size.groups,
            "members": size.members,
            "rows": len(batch["minibatch"]),
            "tokens": tokens,
            "policy_tokens": int(batch["loss_mask"].sum()),
            "minibatches": int(batch["minibatch"].max()) + 1,
            "micro_batches": plain.num_micro_batches,
            "micro_batch_tokens": config.micro_batch_tokens,
            "method": config.method,
        },
    }
    return result, _text(result, speed, parts)


def _text(result: dict[str, Any], speed: dict[str, dict[str, float]], parts: dict[str, float]) -> str:
    settings = result["settings"]
    lines = [
        f"  {settings['rows']} rows, {settings['tokens']} tokens, {settings['minibatches']} minibatches, "
        f"{settings['micro_batches']} micro-batches; medians of {len(result['rounds'])} rounds",
        table(
            ["", "tokens/s", "tokens/CPU s"],
            [[name, speed[name]["wall_s"], speed[name]["cpu_s"]] for name in (PLAIN, STEPS, WHOLE)]
            + [[f"{STEPS} : {PLAIN}", result["ratio_wall"], result["ratio_cpu"]]],
        ),
        "  CPU of one update of the learner:",
        bars(parts, unit="s"),
        "  beside the steps: "
        + ", ".join(f"{name} + {share:.0%}" for name, share in result["extra_passes_per_step"].items()),
    ]
    return "\n".join(lines)
