"""Iteration: which share of its time goes into rollout, batching, update, weight sync and evaluation."""

from __future__ import annotations

import math
from statistics import median
from typing import Any

from benchmarks.report import bars, table
from benchmarks.trial import SMALL, trained

PARTS = {
    "rollout": "rollout_s",
    "batching": "batching_s",
    "update": "update_s",
    "weight sync": "weight_sync_s",
}
EVALUATION, REST = "evaluation", "rest"


def run(*, rounds: int, small: bool = False) -> tuple[dict[str, Any], str]:
    """Return the result and its table: medians of ``rounds`` iterations after a first one that is left out."""
    overrides = [f"run.iterations={rounds + 1}", "evaluation.evaluation_interval=1"]
    overrides += ["evaluation.evaluate_before_training=false", *(SMALL if small else ())]
    results, settings = trained(overrides)
    from benchmarks.setting import quickstart_run

    interval = int(quickstart_run().sections["evaluation"]["evaluation_interval"])
    splits = [_split(result) for result in results[1:]]
    medians = {part: median(split[part] for split in splits) for part in splits[0]}
    spread = dict(medians)
    spread[EVALUATION] = medians[EVALUATION] / interval
    total = sum(spread.values())
    result = {
        "benchmark": "iteration",
        "seconds": medians,
        "evaluation_interval": interval,
        "seconds_evaluation_spread": spread,
        "shares": {part: value / total for part, value in spread.items()},
        "rounds": splits,
        "episodes": [result["env_runners"]["num_episodes"] for result in results[1:]],
        "settings": settings,
    }
    return result, _text(medians, spread, interval, len(splits))


def _split(result: dict[str, Any]) -> dict[str, float]:
    """Return the seconds of each part of one iteration; parts that did not run are 0."""
    timers = result["timers"]
    parts = {part: _seconds(timers.get(key)) for part, key in PARTS.items()}
    parts[EVALUATION] = _seconds(timers.get("evaluation_s"))
    parts[REST] = max(0.0, result["time_this_iter_s"] - sum(parts.values()))
    return parts


def _seconds(value: float | None) -> float:
    return 0.0 if value is None or math.isnan(value) else float(value)


def _text(medians: dict[str, float], spread: dict[str, float], interval: int, rounds: int) -> str:
    rows = [[part, medians[part]] for part in medians]
    rows.append(["sum", sum(medians.values())])
    return "\n".join(
        [
            f"  medians of {rounds} iterations, each with an evaluation:",
            table(["part", "seconds"], rows),
            f"  one iteration of the quick start, which evaluates every {interval}. time:",
            bars(spread, unit="s"),
        ]
    )
