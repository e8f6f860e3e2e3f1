"""Prefix cache: CPU of the engine on conversations that grow, with the cache of their beginnings against without it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from arlarena_rllib.config import ARLArenaConfig
from benchmarks.processes import CpuWindow
from benchmarks.report import figure, table
from benchmarks.served_rollout import Played, ServedRollout
from benchmarks.setting import cloned_start, own_cluster
from tune_experiments.run_config import load_run_config, shipped_config

TARGET = 0.9
ENGINE_CORE = "engine core"
WITH, WITHOUT = "with cache", "without cache"
_SETTING = (
    # Questions whose documents are pages of text: prompts of some hundred tokens, up to four turns.
    "environment.env_config={data: world, hops: [2, 3], max_turns: 4}",
    "model.vocab_size=2048",
    "model.config={hidden_size: 256, num_hidden_layers: 4, intermediate_size: 768, max_position_embeddings: 2048}",
    "warm_start.source=gold",
    "warm_start.num_tasks=200",
    "warm_start.steps=150",
    "warm_start.batch_rows=8",
    "serving.engine=vllm",
    "serving.num_replicas=1",
    "serving.num_cpus_per_replica=0.5",
    "serving.max_model_len=2048",
    "serving.max_num_seqs=64",
    "env_runners.max_response_tokens=40",
    "env_runners.groups_per_iteration=8",
    "evaluation.evaluation_interval=null",
)
_SMALL = (
    "env_runners.groups_per_iteration=1",
    "env_runners.group_size=2",
    "warm_start.num_tasks=20",
    "warm_start.steps=4",
)


def run(*, rounds: int, small: bool = False) -> tuple[dict[str, Any], str]:
    """Return the result and its table; ``small`` is for a look, not for a measurement."""
    settings = load_run_config(shipped_config("search_qa_cpu"), [*_SETTING, *(_SMALL if small else ())])
    with tempfile.TemporaryDirectory(prefix="arlarena-bench-") as folder:
        start = cloned_start(settings, Path(folder))
        with own_cluster(4), _arms(settings.algorithm, start.path) as arms:
            return _result([_round(arms, number) for number in range(rounds + 1)][1:])


@contextmanager
def _arms(configure: Any, model: Path) -> Iterator[dict[str, ServedRollout]]:
    """Serve the policy twice; the arm that does not play costs nothing meanwhile."""
    with (
        ServedRollout(_config(configure(model), True)) as cached,
        ServedRollout(_config(configure(model), False)) as plain,
    ):
        yield {WITH: cached, WITHOUT: plain}


def _config(config: ARLArenaConfig, is_cached: bool) -> ARLArenaConfig:
    return config.serving(engine_kwargs={"block_size": 32, "enable_prefix_caching": is_cached})


def _round(arms: dict[str, ServedRollout], number: int) -> dict[str, Any]:
    """Let both arms play the same tasks, one after the other, the first of the last round last."""
    found = {}
    for name in sorted(arms, reverse=bool(number % 2)):
        arms[name].publish()  # empties the cache, as an iteration does
        with CpuWindow(arms[name].processes) as window:
            played = arms[name].play(number * 8, 8)
        found[name] = _work(played) | {"engine_cpu_s": window.by_role.get(ENGINE_CORE, 0.0), "wall_s": window.wall_s}
    return found


def _work(played: Played) -> dict[str, Any]:
    prompts = sum(sum(t.prompt_lengths) for t in played.trajectories)
    cached = sum(turn.cached_tokens for t in played.trajectories for turn in t.turns)
    return {
        "requests": len(played.generations),
        "response_tokens": played.num_tokens,
        "prompt_tokens": prompts,
        "cached_frac": cached / prompts,
    }


def _result(rounds: list[dict[str, Any]]) -> tuple[dict[str, Any], str]:
    def of(arm: str, name: str) -> float:
        return median(r[arm][name] for r in rounds)

    # Per request: the two arms sample replies of their own, so episodes differ a little in number of turns.
    cost = {arm: median(1e3 * r[arm]["engine_cpu_s"] / r[arm]["requests"] for r in rounds) for arm in (WITH, WITHOUT)}
    ratios = [
        (r[WITH]["engine_cpu_s"] / r[WITH]["requests"]) / (r[WITHOUT]["engine_cpu_s"] / r[WITHOUT]["requests"])
        for r in rounds
    ]
    result = {
        "benchmark": "prefix_cache",
        "figure": figure("CPU of the engine, with cache : without", median(ratios), target=TARGET, at_least=False),
        "cached_prompt_tokens_frac": of(WITH, "cached_frac"),
        "engine_cpu_ms_per_request": cost,
        "ratio_cpu_of_rounds": ratios,
        "rounds": rounds,
        "settings": {"overrides": list(_SETTING), "block_size": 32},
    }
    columns = ["requests", "prompt_tokens", "response_tokens", "cached_frac", "wall_s"]
    rows = [[arm, *(of(arm, name) for name in columns), cost[arm]] for arm in (WITH, WITHOUT)]
    heads = ["", "requests", "prompt tokens", "response tokens", "from the cache", "wall s", "engine CPU ms / request"]
    return result, table(heads, rows)
