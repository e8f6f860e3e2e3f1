"""Several text environments as one: each task is played by the environment that it comes from.

Observation   that of the task's environment; so are instructions, admissible actions and turn budget.
Action        as there.
Start         the start of the inner task.
Reward/turn   as there, on its own scale.
Ends          as there.
Info          task_type: name of the environment, 'name/type' where it tells types itself; the rest as there.
Tasks         those of all panels, e.g. 'easy:6x6-1/000123'; in turn by weight, see mixture/panel.py.
Needs         what the environments need. Arguments: see MixtureEnv.__init__.
Versions      v0 first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from env_connectors.errors import EnvConfigError, EnvContractError, TaskNotFoundError
from env_connectors.mixture.members import PATH, read_members
from env_connectors.mixture.panel import SEPARATOR, mixed_task, mixture_panel
from env_connectors.mixture.turns import whole_weights
from env_connectors.task_panel import Task, TaskPanel
from env_connectors.text_env import INFO_KEYS, StopReason, TextEnv, TextStep


class MixtureEnv(TextEnv):
    """A mixture of text environments with weights; see the head of this file.

    `instructions`, `reply_form` and `max_turns` are those of the task being played; before the first reset there are no
    instructions, the form is the usual one and the budget the largest.
    """

    def __init__(self, envs: Mapping[str, Mapping[str, Any]] | None = None, *, render_mode: str | None = None) -> None:
        """Make the environments and their common panel.

        Args:
            envs: name -> {env: Gymnasium id, weight: number > 0 (default 1), config: constructor arguments}. A share is
                weight / sum of weights, of the training draws and of the first tasks of a held-out split.
            render_mode: None or 'ansi'.

        Raises:
            EnvConfigError: no environment, or an entry that cannot be used; the message names its key.
            PanelError: an environment is left without a training task.
        """
        members = read_members(envs)
        self._envs = {member.name: member.make() for member in members}
        for name, env in self._envs.items():
            if isinstance(env, MixtureEnv):
                raise EnvConfigError(f"{PATH}.{name} is a mixture itself. Remedy: name its environments here.")
        try:
            weights = whole_weights([member.weight for member in members])
        except EnvConfigError as error:
            raise EnvConfigError(f"{PATH}: {error}") from None
        super().__init__(max_turns=max(env.max_turns for env in self._envs.values()), render_mode=render_mode)
        self._panel = mixture_panel(self._envs, dict(zip(self._envs, weights, strict=True)))
        self._played: TextEnv | None = None
        self._task_type = ""
        self._admissible: list[str] = []

    def tasks(self) -> TaskPanel:
        """Return the common panel, a MixturePanel."""
        return self._panel

    def task(self, task_id: str) -> Task:
        """Return a task by its id '<name>:<id there>'."""
        name, env, inner_id = self._home(task_id)
        try:
            return mixed_task(name, env, env.task(inner_id))
        except TaskNotFoundError as error:
            raise TaskNotFoundError(f"task_id={task_id!r} is not known to the mixture; {name}: {error}") from error

    def begin(self, task: Task) -> TextStep:
        """Start the task in its own environment."""
        name, env, inner_id = self._home(task.task_id)
        self._played = env
        observation, info = env.reset(options={"task_id": inner_id})
        inner_type = info.get("task_type")
        self._task_type = f"{name}/{inner_type}" if inner_type else name
        return self._step(observation, 0.0, None, info)

    def act(self, action: str) -> TextStep:
        """Play one action there."""
        observation, reward, has_ended, _, info = self._current().step(action)
        return self._step(observation, float(reward), StopReason(info["stop_reason"]) if has_ended else None, info)

    def gold(self, task: Task) -> list[str]:
        """Return the gold actions of the task's own environment."""
        _, env, inner_id = self._home(task.task_id)
        return env.gold(env.task(inner_id))

    def explain(self, task: Task, actions: list[str]) -> list[str]:
        """Return the thoughts of the task's own environment."""
        _, env, inner_id = self._home(task.task_id)
        return env.explain(env.task(inner_id), actions)

    def plan(self) -> list[tuple[str, str]]:
        """Return the plan of the environment being played."""
        return self._current().plan()

    def admissible(self) -> list[str]:
        """Return the actions allowed in the environment being played; [] before the first reset."""
        return list(self._admissible)

    def slips(self) -> list[str]:
        """Return the slips of the environment being played."""
        return self._current().slips()

    def draw(self) -> str:
        """Return what the environment being played draws, '' before the first reset."""
        return "" if self._played is None else self._played.draw()

    def close(self) -> None:
        """Close all environments."""
        for env in self._envs.values():
            env.close()
        super().close()

    def _home(self, task_id: str) -> tuple[str, TextEnv, str]:
        """Return name and environment of a task, and its id there."""
        name, _, inner_id = task_id.partition(SEPARATOR) if isinstance(task_id, str) else ("", "", "")
        if name not in self._envs:
            raise TaskNotFoundError(
                f"task_id={task_id!r} is not known to the mixture. Ids are '<name>{SEPARATOR}<id there>' with the names "
                f"{', '.join(self._envs)}."
            )
        return name, self._envs[name], inner_id

    def _current(self) -> TextEnv:
        if self._played is None:
            raise EnvContractError("MixtureEnv plays no task yet. Remedy: call reset() first.")
        return self._played

    def _step(self, observation: str, reward: float, stop: StopReason | None, info: dict[str, Any]) -> TextStep:
        """Return an answer of the environment being played as one of the mixture, and take over what holds there."""
        played = self._current()
        self.instructions, self.max_turns = played.instructions, played.max_turns
        self.reply_form = played.reply_form
        self._admissible = info["admissible"]
        anchor = info["anchor"]
        return TextStep(
            observation=observation,
            reward=reward,
            action_valid=info["action_valid"],
            stop=stop,
            success=info["success"],
            # No name before an empty anchor: that is a fault of the environment, for check_text_env to find.
            anchor=f"{self._task_type}{SEPARATOR}{anchor}" if anchor else "",
            brief=info["brief"],
            progress=info.get("progress"),
            info={key: value for key, value in info.items() if key not in INFO_KEYS} | {"task_type": self._task_type},
        )
