"""PlannedTextEnv: an environment whose oracle gives its thoughts together with its actions."""

from __future__ import annotations

from env_connectors.task_panel import Task
from env_connectors.text_env import TextEnv


class PlannedTextEnv(TextEnv):
    """`gold` and `explain` are the two halves of one plan; an author writes `gold_plan`."""

    def gold_plan(self, task: Task) -> list[tuple[str, str]]:
        """Return (thought, action) pairs that reach success on `task` from its start."""
        raise NotImplementedError

    def gold(self, task: Task) -> list[str]:
        """Return the actions of the plan."""
        return [action for _, action in self.gold_plan(task)]

    def explain(self, task: Task, actions: list[str]) -> list[str]:
        """Return the thoughts of the plan; of other actions, what `TextEnv` says of them."""
        planned = self.gold_plan(task)
        return [t for t, _ in planned] if [a for _, a in planned] == actions else super().explain(task, actions)
