"""Diagnostics: the learner's minibatch steps with the tables of an update, against the same steps without them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from arlarena_rllib.learner import torch_learner
from benchmarks.report import figure, table
from benchmarks.setting import quickstart_run
from benchmarks.update import STEPS, WHOLE, TimedLearner, UpdateSize, on_base_model
from benchmarks.update_batch import learner_batch

TARGET = 1.05
WITH, WITHOUT = "with tables", "without tables"

Seconds = dict[str, dict[str, float]]
"""Part of the update -> wall and CPU seconds."""


@contextmanager
def no_tables() -> Iterator[None]:
    """Let the learner collect no tables."""
    kept = torch_learner.update_tables
    torch_learner.update_tables = lambda *args, **kwargs: {}
    try:
        yield
    finally:
        torch_learner.update_tables = kept


def run(*, rounds: int, small: bool = False) -> tuple[dict[str, Any], str]:
    """Return the result and its table; ``small`` is for a look, not for a measurement."""
    return on_base_model(measure, rounds=rounds, small=small)


def measure(model: Path, *, rounds: int, size: UpdateSize) -> tuple[dict[str, Any], str]:
    """Update one learner with and without the tables, ``rounds`` times each after a warm-up; who is first alternates."""
    config = quickstart_run().algorithm(model)
    batch = learner_batch(config, model, groups=size.groups, members=size.members)
    learner = TimedLearner(config, batch)
    found: list[dict[str, Seconds]] = []
    for number in range(rounds + 1):
        seconds: dict[str, Seconds] = {}
        for arm in (WITH, WITHOUT) if number % 2 else (WITHOUT, WITH):
            if arm == WITH:
                seconds[arm] = learner.update()
            else:
                with no_tables():
                    seconds[arm] = learner.update()
        if number > 0:
            found.append(seconds)
    learner.close()
    settings = {
        "groups": size.groups,
        "members": size.members,
        "rows": len(batch["minibatch"]),
        "tokens": int(batch["attention_mask"].sum()),
        "policy_tokens": int(batch["loss_mask"].sum()),
        "minibatches": int(batch["minibatch"].max()) + 1,
        "micro_batch_tokens": config.micro_batch_tokens,
        "method": config.method,
    }
    return _result(found, settings)


def _result(rounds: list[dict[str, Seconds]], settings: dict[str, Any]) -> tuple[dict[str, Any], str]:
    ratios = {
        part: {unit: [r[WITH][part][unit] / r[WITHOUT][part][unit] for r in rounds] for unit in ("wall_s", "cpu_s")}
        for part in (STEPS, WHOLE)
    }
    seconds = {
        arm: {part: median(r[arm][part]["cpu_s"] for r in rounds) for part in (STEPS, WHOLE)} for arm in rounds[0]
    }
    ratio_cpu = median(ratios[STEPS]["cpu_s"])
    result = {
        "benchmark": "diagnostics",
        "figure": figure(
            "CPU seconds of the learner's steps, with : without the tables", ratio_cpu, target=TARGET, at_least=False
        ),
        "ratio_cpu": ratio_cpu,
        "ratio_wall": median(ratios[STEPS]["wall_s"]),
        "ratio_cpu_whole_update": median(ratios[WHOLE]["cpu_s"]),
        "ratio_cpu_of_rounds": ratios[STEPS]["cpu_s"],
        "cpu_s_of_one_update": seconds,
        "rounds": rounds,
        "settings": settings,
    }
    return result, _text(result)


def _text(result: dict[str, Any]) -> str:
    settings, seconds = result["settings"], result["cpu_s_of_one_update"]
    rows = [[arm, seconds[arm][STEPS], seconds[arm][WHOLE]] for arm in (WITH, WITHOUT)]
    rows.append([f"{WITH} : {WITHOUT}", result["ratio_cpu"], result["ratio_cpu_whole_update"]])
    return "\n".join(
        [
            f"  {settings['rows']} rows, {settings['tokens']} tokens, {settings['minibatches']} minibatches; medians of "
            f"{len(result['rounds'])} rounds, CPU seconds",
            table(["", STEPS, WHOLE], rows),
        ]
    )
