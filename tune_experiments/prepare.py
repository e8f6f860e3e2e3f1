"""What comes before the training: the model is built or found, then cloned to a start that RL can work with."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from arlarena_rllib.errors import RolloutError
from arlarena_rllib.models import build_policy, load_causal_lm
from arlarena_rllib.models.export import save_policy
from arlarena_rllib.models.load import check_model_dir
from arlarena_rllib.rollout.codec import TextCodec
from arlarena_rllib.rollout.envs import bare_text_env, env_faults
from arlarena_rllib.rollout.session import PlaySession
from arlarena_rllib.trajectory import APPEND, TokenBatch, TrajectoryGroup, build_token_batch
from arlarena_rllib.warmstart import behaviour_cloning, demonstrations, keep_successes
from arlarena_rllib.warmstart.cloning import CloningConfig, CloningReport
from env_connectors.prompting import PastTurn, PromptConfig, render_followup, render_prompt
from tune_experiments.run_config import RunConfig

if TYPE_CHECKING:
    from env_connectors import TextEnv

Progress = Callable[[int, float, float], None]
WARM_START_FACTS = "warm_start.json"
"""Written last beside the cloned model: what it was cloned from."""


@dataclass(frozen=True)
class Start:
    """The policy that RL starts from and what it was cloned from."""

    path: Path
    demonstrations: TokenBatch | None
    cloning: CloningReport | None


def base_model(run: RunConfig, folder: Path) -> Path:
    """Return the directory of the model before any training; build it below ``folder`` when no path is given."""
    if run.model.path is not None:
        return check_model_dir(run.model.path)
    texts, tags = _corpus(run)
    return build_policy(
        folder / "base",
        texts,
        model_config=run.model.config,
        vocab_size=run.model.vocab_size,
        tags=tags,
        seed=run.seed,
    )


def warm_start(run: RunConfig, base: Path, folder: Path, progress: Progress | None = None) -> Start:
    """Clone the demonstrations that the run asks for; write the start to ``folder/start`` and return it."""
    if run.warm_start.source == "none":
        return Start(base, None, None)
    groups = demonstration_groups(run, base)
    codec = TextCodec(str(base))
    batch = build_token_batch(groups, pad_id=codec.pad_id)
    config = _seeded(run.warm_start.cloning, run.seed)
    model, report = clone(run, base, batch, config, progress)
    path = folder / "start"
    save_policy(model, base, path)
    facts = {
        "demonstrations": len(groups),
        "tasks": [g.task_id for g in groups],
        "cloning": asdict(config),
        "final_loss": report.losses[-1] if report.losses else None,
        "cpu_seconds": report.cpu_seconds,
    }
    (path / WARM_START_FACTS).write_text(json.dumps(facts, indent=1))
    return Start(path, batch, report)


def clone(
    run: RunConfig, base: Path, batch: TokenBatch, config: CloningConfig, progress: Progress | None = None
) -> tuple[Any, CloningReport]:
    """Return the model of ``base`` fitted to ``batch``, and the report; nothing else runs, so all cores of the run do."""
    model = load_causal_lm(base)
    threads = torch.get_num_threads()
    torch.set_num_threads(min(run.run.num_cpus, os.cpu_count() or 1))
    try:
        return model, behaviour_cloning(model, batch, config, progress=progress)
    finally:
        torch.set_num_threads(threads)


def _seeded(config: CloningConfig, seed: int) -> CloningConfig:
    return CloningConfig(**{**asdict(config), "seed": seed})


def demonstration_groups(run: RunConfig, base: Path) -> list[TrajectoryGroup]:
    """Return the demonstrations that the run asks for; the same ones every time for gold and clumsy play."""
    config = run.algorithm(base)
    tasks = start_tasks(run)
    if run.warm_start.source != "rft":
        slip = run.warm_start.slip if run.warm_start.source == "clumsy" else 0.0
        return demonstrations(config, tasks, TextCodec(str(base)), slip=slip, seed=run.seed)
    with PlaySession(config) as session:
        groups = keep_successes(session.play(session.sampled_episodes(tasks, draws=run.warm_start.draws)))
    if not groups:
        raise RolloutError(
            f"warm_start.source='rft': none of {len(tasks)} x {run.warm_start.draws} episodes of the model at "
            f"{str(base)!r} succeeded, so there is nothing to clone. Start from a better model or use source: gold."
        )
    return groups


def start_tasks(run: RunConfig) -> list[str]:
    """Return the training tasks that are demonstrated.

    They come from another walk through the training panel than RL's, so that RL does not begin with the very tasks
    that the clone knows by heart.
    """
    panel = _env(run).tasks()
    seed = int(np.random.SeedSequence([run.seed, 0x64656D]).generate_state(1)[0])
    tasks, _ = panel.draw("train", 0, min(run.warm_start.num_tasks, len(panel.train)), seed)
    return tasks


def _corpus(run: RunConfig) -> tuple[list[str], list[str]]:
    """Return prompts and gold replies of some training tasks, in the form that the policy will see, and the reply's tags."""
    env = _env(run)
    settings = run.algorithm("").rollout_settings()
    prompt = PromptConfig(
        window=settings.memory_window, instructions=settings.prompt_style == "chat", style=settings.prompt_style
    )
    texts: list[str] = []
    tags: dict[str, None] = {}
    for task in env.tasks().train[: run.model.corpus_tasks]:
        with env_faults(run.env, task):
            texts += _gold_texts(env, task, settings.memory_window, prompt, settings.mode)
        tags.update(dict.fromkeys(env.reply_form.tags))
    return texts, list(tags)


def _gold_texts(env: TextEnv, task: str, window: int, prompt: PromptConfig, mode: str) -> list[str]:
    """Return the messages and replies of one gold episode."""
    texts: list[str] = []
    observation, info = env.reset(options={"task_id": task})
    history: list[PastTurn] = []
    for thought, action in zip(env.gold_thoughts(task), env.gold_actions(task), strict=True):
        if mode == APPEND and history:
            texts.append(observation if env.reply_form.continues else render_followup(observation, config=prompt).text)
        else:
            messages = render_prompt(
                instructions=env.instructions,
                observation=observation,
                history=history[-window:] if window else [],
                admissible=info["admissible"],
                config=prompt,
                form=env.reply_form,
            )
            texts += [message.text for message in messages]
        texts.append(env.reply_form.render(thought, action))
        history.append(PastTurn(info["brief"], action))
        observation, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:  # max_turns may be less than the gold actions of a long task
            break
    return texts


def _env(run: RunConfig) -> TextEnv:
    return bare_text_env(run.env, run.sections.get("environment", {}).get("env_config", {}))
