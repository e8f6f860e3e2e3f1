"""The start of a mixture knows all of its environments: tokenizer, demonstrated tasks, and the prompts of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from arlarena_rllib import ARLArenaConfig
from arlarena_rllib.rollout.codec import TextCodec
from arlarena_rllib.warmstart import demonstrations
from env_connectors import make_text_env
from tune_experiments.prepare import _corpus, start_tasks
from tune_experiments.run_config import load_run_config, shipped_config


def _counts(ids: Iterable[str]) -> dict[str, int]:
    return Counter(task_id.partition(":")[0] for task_id in ids)


def test_tokenizer_and_demonstrations_take_tasks_of_all_environments_by_weight() -> None:
    run = load_run_config(shipped_config("mixture"), ["model.corpus_tasks=10"])
    run.checked()
    assert _counts(start_tasks(run)) == {"easy": 90, "hard": 30, "guess": 30}
    env = make_text_env("arlarena/Mixture-v0", **run.sections["environment"]["env_config"])
    corpus, tags = _corpus(run)
    sample, texts = env.tasks().train[:10], set(corpus)
    assert tags == ["<think>", "</think>", "<action>", "</action>"]
    assert _counts(sample) == {"easy": 6, "hard": 2, "guess": 2}
    assert {f"now {env.reset(options={'task_id': task_id})[0]}" for task_id in sample} <= texts


def test_every_demonstration_is_prompted_with_the_rules_of_its_own_environment(tiny_model_dir: Path) -> None:
    envs = {"easy": {"env": "arlarena/Sokoban-6x6-1-v0"}, "guess": {"env": "arlarena/Guess-v0"}}
    config = (
        ARLArenaConfig()
        .environment("arlarena/Mixture-v0", env_config={"envs": envs})
        .env_runners(prompt_style="chat")
        .serving(max_model_len=4096)
    )
    tasks, _ = make_text_env("arlarena/Mixture-v0", envs=envs).tasks().draw("train", 0, 6, 0)
    codec = TextCodec(str(tiny_model_dir))
    groups = demonstrations(config, tasks, codec)
    assert [group.task_id for group in groups] == tasks
    for group in groups:
        (trajectory,) = group.trajectories
        rules = {"easy": "Sokoban puzzle", "guess": "Find the secret number"}
        own = rules.pop(trajectory.task_type)
        (other,) = rules.values()
        assert trajectory.success and group.task_id.startswith(f"{trajectory.task_type}:")
        for turn in trajectory.turns:
            prompt = codec.decode(turn.context_ids)
            assert (own in prompt, other in prompt) == (True, False)
