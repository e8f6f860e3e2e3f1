"""Plays the gold actions of whole panels: whether an environment's oracle wins every task that it hands out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from env_connectors.text_env import TextEnv


@dataclass(frozen=True)
class GoldEpisode:
    """How the gold actions of a task did.

    Attributes:
        task_id: of the task.
        turns: actions that were played.
        problem: why it was not won; "" when it was.
    """

    task_id: str
    turns: int
    problem: str


def play_gold(env: TextEnv, task_ids: Iterable[str]) -> Iterator[GoldEpisode]:
    """Play the gold actions of each task; a task that cannot be loaded or raises is a problem, not the end."""
    for task_id in task_ids:
        turns = 0
        try:
            env.reset(options={"task_id": task_id})
            info, ended = {"success": False, "stop_reason": None}, False
            for action in env.gold_actions(task_id):
                _, _, terminated, truncated, info = env.step(action)
                turns, ended = turns + 1, terminated or truncated
                if ended:
                    break
        except Exception as error:  # noqa: BLE001 - one broken task of thousands
            yield GoldEpisode(task_id, turns, f"{type(error).__name__}: {error}")
            continue
        problem = (
            "" if info["success"] else f"not won: {info['stop_reason'] if ended else 'the actions end before the task'}"
        )
        yield GoldEpisode(task_id, turns, problem)
