"""Rollout: response tokens per CPU second of real episodes, against the bare engine on the same prompts and lengths."""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import mean, median
from typing import Any

from arlarena_rllib.config import ARLArenaConfig
from arlarena_rllib.errors import ServingError
from arlarena_rllib.rollout.codec import TextCodec
from arlarena_rllib.serving import EngineSpec
from benchmarks.bare_engine import BareEngine
from benchmarks.processes import CpuWindow
from benchmarks.report import bars, figure, table
from benchmarks.served_rollout import Played, ServedRollout
from benchmarks.setting import BRIEF_CLONING, cloned_start, own_cluster, quickstart_run

TARGET = 0.60
ENGINE_CORE, FRONT_END = "engine core", "front end"
MAIN_ROLES = ("engine core", "replica", "runner", "driver")


def run(*, rounds: int, small: bool = False) -> tuple[dict[str, Any], str]:
    """Return the result and its table; ``small`` is for a look, not for a measurement."""
    sizes = ["env_runners.groups_per_iteration=2", "env_runners.group_size=4"] if small else []
    settings = quickstart_run([*BRIEF_CLONING, *sizes])
    with tempfile.TemporaryDirectory(prefix="arlarena-bench-") as folder:
        start = cloned_start(settings, Path(folder))
        with own_cluster(settings.run.num_cpus):
            return measure(settings.algorithm(start.path), rounds=rounds, log=Path(folder) / "bare_engine.log")


def measure(config: ARLArenaConfig, *, rounds: int, log: Path) -> tuple[dict[str, Any], str]:
    """Alternate rollout and bare engine ``rounds`` times after a warm-up of both; a Ray cluster must be there."""
    groups = config.groups_per_iteration
    found = []
    with (
        BareEngine(engine_spec(config), config.temperature, log) as bare,
        ServedRollout(config, excluded_pid=bare.pid) as served,
    ):
        for number in range(rounds + 1):
            served.publish()
            with CpuWindow(served.processes) as rollout:
                played = served.play(number * groups, groups)
            bare.reset()
            with CpuWindow(bare.processes) as limit:
                tokens = bare.decode(played.generations)
            if tokens != played.num_tokens:
                raise ServingError(f"the bare engine made {tokens} tokens instead of {played.num_tokens}")
            if number > 0:
                found.append(_round(played, rollout, limit))
    return _result(found, config)


def engine_spec(config: ARLArenaConfig) -> EngineSpec:
    """Return the engine that ``config`` serves."""
    return EngineSpec(
        engine=config.engine,
        model_path=str(config.model_path),
        dtype=config.engine_dtype,
        max_model_len=config.max_model_len,
        max_num_seqs=config.max_num_seqs,
        seed=int(config.seed or 0),
        engine_kwargs=dict(config.engine_kwargs),
        eos_token_ids=TextCodec(config.model_path).stop_ids,
    )


def _round(played: Played, rollout: CpuWindow, limit: CpuWindow) -> dict[str, Any]:
    """Return one round: work, seconds, and CPU seconds by what they went into."""
    by_role = {role: rollout.by_role.get(role, 0.0) for role in MAIN_ROLES}
    by_role["Ray's own processes"] = rollout.cpu_s - sum(by_role.values())
    turns = [turn for trajectory in played.trajectories for turn in trajectory.turns]
    return {
        "tokens": played.num_tokens,
        "requests": len(played.generations),
        "prompt_tokens": sum(len(g.prompt_ids) for g in played.generations),
        "work_sha256": played.digest(),
        "rollout": {"wall_s": rollout.wall_s, "cpu_s": rollout.cpu_s, "cpu_s_by_role": by_role},
        "bare": {
            "wall_s": limit.wall_s,
            "cpu_s": limit.cpu_s,
            "cpu_s_by_role": {
                ENGINE_CORE: limit.by_role.get(ENGINE_CORE, 0.0),
                FRONT_END: limit.cpu_s - limit.by_role.get(ENGINE_CORE, 0.0),
            },
        },
        "wait_s_mean": {"generate": mean(t.generate_s for t in turns), "env": mean(t.env_s for t in turns)},
    }


def _result(rounds: list[dict[str, Any]], config: ARLArenaConfig) -> tuple[dict[str, Any], str]:
    speed = {
        side: {unit: median(r["tokens"] / r[side][unit] for r in rounds) for unit in ("cpu_s", "wall_s")}
        for side in ("rollout", "bare")
    }
    cost = {side: _cost_by_role(rounds, side) for side in ("rollout", "bare")}
    ratio = speed["rollout"]["cpu_s"] / speed["bare"]["cpu_s"]
    result = {
        "benchmark": "rollout",
        "figure": figure("tokens per CPU second, rollout : bare engine", ratio, target=TARGET, at_least=True),
        "ratio_cpu": ratio,
        "ratio_wall": speed["rollout"]["wall_s"] / speed["bare"]["wall_s"],
        "ratio_cpu_of_rounds": [r["bare"]["cpu_s"] / r["rollout"]["cpu_s"] for r in rounds],
        "tokens_per_cpu_s": {side: values["cpu_s"] for side, values in speed.items()},
        "tokens_per_wall_s": {side: values["wall_s"] for side, values in speed.items()},
        "cpu_ms_per_1000_tokens": cost,
        "rounds": rounds,
        "settings": {
            "env": config.env,
            "episodes": config.groups_per_iteration * config.group_size,
            "num_env_runners": config.num_env_runners,
            "num_replicas": config.num_replicas,
            "max_num_seqs": config.max_num_seqs,
            "max_response_tokens": config.max_response_tokens,
        },
    }
    return result, _text(result)


def _cost_by_role(rounds: list[dict[str, Any]], side: str) -> dict[str, float]:
    """Return CPU milliseconds per 1000 response tokens of each role, medians over the rounds."""
    return {
        role: median(1e6 * r[side]["cpu_s_by_role"][role] / r["tokens"] for r in rounds)
        for role in rounds[0][side]["cpu_s_by_role"]
    }


def _text(result: dict[str, Any]) -> str:
    first, cost = result["rounds"][0], result["cpu_ms_per_1000_tokens"]
    per_cpu, per_wall = result["tokens_per_cpu_s"], result["tokens_per_wall_s"]
    lines = [
        f"  a round: {result['settings']['episodes']} episodes at once, about {first['requests']} requests, "
        f"{first['prompt_tokens']} prompt and {first['tokens']} response tokens; "
        f"medians of {len(result['rounds'])} rounds",
        table(
            ["response tokens", "per CPU s", "per wall s"],
            [
                ["bare engine", per_cpu["bare"], per_wall["bare"]],
                ["rollout", per_cpu["rollout"], per_wall["rollout"]],
                ["rollout : bare engine", result["ratio_cpu"], result["ratio_wall"]],
            ],
        ),
        "  CPU of the bare engine, ms per 1000 response tokens:",
        bars(cost["bare"], unit="ms"),
        "  CPU of the rollout, ms per 1000 response tokens:",
        bars(cost["rollout"], unit="ms"),
    ]
    return "\n".join(lines)
