"""The contract of a multi-turn text environment: TextEnv, what its hooks return, and the registry of ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, SupportsFloat, cast

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from env_connectors.arguments import check_whole
from env_connectors.errors import (
    ActionTypeError,
    EnvConfigError,
    EnvContractError,
    EpisodeOverError,
)
from env_connectors.reply_form import THINK_ACTION, ReplyForm
from env_connectors.task_panel import Task, TaskPanel, TaskSet

MAX_TEXT_CHARS = 2**20
_PRINTABLE = "".join(map(chr, range(32, 127)))
_SAMPLE_CHARS = 32
_OPTIONS = frozenset({"task_id"})
INFO_KEYS = frozenset(
    (
        "task_id", "content_hash", "turn", "action_valid", "success", "stop_reason", "anchor", "brief", "admissible",
        "progress",
    )
)  # fmt: skip
"""Info that TextEnv sets itself; `progress` only where the environment knows it."""
_text_env_ids: list[str] = []


class StopReason(StrEnum):
    """Why an episode ended, as far as an environment can know."""

    SUCCESS = "success"
    FAILURE = "failure"
    MAX_TURNS = "max_turns"


class FreeText(gymnasium.spaces.Text):
    """The space of all strings up to MAX_TEXT_CHARS characters; samples are short and printable ASCII."""

    def __init__(self, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(MAX_TEXT_CHARS, min_length=0, charset=_PRINTABLE, seed=seed)

    def contains(self, x: Any) -> bool:
        """Return True for every string that is not too long, whatever its characters."""
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a random text of 1 to 32 printable ASCII characters; masks are not supported."""
        if mask is not None or probability is not None:
            raise EnvConfigError("FreeText.sample takes neither mask nor probability.")
        length = int(self.np_random.integers(1, _SAMPLE_CHARS + 1))
        return "".join(self.np_random.choice(list(_PRINTABLE), size=length))

    def __repr__(self) -> str:
        """Return a short name instead of the whole character set."""
        return "FreeText()"


@dataclass
class TextStep:
    """What an environment answers to one action, or (from `begin`) shows at the start.

    Attributes:
        observation: the text that the agent reads next.
        reward: reward of this step.
        action_valid: the action was one that the environment understands and admits.
        stop: SUCCESS or FAILURE when the task is over, else None. The turn budget is not the environment's business.
        success: the task is solved.
        anchor: state key: equal anchors within a task mean equal states.
        brief: short form of the observation for the history window; None = the observation itself.
        progress: share of the task done in [0, 1], where the environment can tell.
        info: further values for logs; keys must not be those that TextEnv sets.
    """

    observation: str
    reward: float = 0.0
    action_valid: bool = True
    stop: StopReason | None = None
    success: bool = False
    anchor: str = ""
    brief: str | None = None
    progress: float | None = None
    info: dict[str, Any] = field(default_factory=dict)


class TextEnv(gymnasium.Env[str, str]):
    """Base of multi-turn text environments: an author writes `begin`, `act`, `gold` and `admissible`.

    Observation and action are plain strings. `terminated` is the task's own end, `truncated` the turn budget's.
    The info of reset and step always holds: task_id, content_hash, turn (actions taken so far), action_valid, success,
    stop_reason (str or None), anchor, brief, admissible (list of strings); also progress when the environment knows it.
    Of an environment's own info, `task_type` (str) and `episode_metrics` (name -> float, of the episode so far) are
    reported as metrics.
    A task decides its episode fully: same task id, same texts, in every process and under every seed.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 (gymnasium's own form)
    instructions: str = ""
    reply_form: ReplyForm = THINK_ACTION
    """How a policy writes its action; `act` gets what the form's `parse` calls the action."""
    data: str = ""
    """Where the tasks come from, for environments with several sources, e.g. 'generated'; a tag of every run."""

    def __init__(self, task_set: TaskSet | None = None, *, max_turns: int, render_mode: str | None = None) -> None:
        """Set the turn budget and, for environments with a finite task list, the tasks.

        Args:
            task_set: tasks and panel behind the default `tasks` and `task`; None if a subclass overrides both.
            max_turns: actions after which an episode is truncated, >= 1.
            render_mode: None or 'ansi' (render returns a string).

        Raises:
            EnvConfigError: max_turns below 1, or an unknown render_mode.
        """
        check_whole("max_turns", max_turns, 1)
        if render_mode not in (None, *self.metadata["render_modes"]):
            allowed = ", ".join(self.metadata["render_modes"])
            raise EnvConfigError(f"render_mode={render_mode!r} is not allowed. Allowed: None, {allowed}.")
        self.observation_space = FreeText()
        self.action_space = FreeText()
        self.max_turns = max_turns
        self.render_mode = render_mode
        self.turn = 0
        self._task_set = task_set
        self._task: Task | None = None
        self._is_over = True
        self._last_observation = ""

    # Hooks of an environment author -------------------------------------------------------------------------------

    def begin(self, task: Task) -> TextStep:
        """Start an episode of `task` and return its first observation; only the task may decide it."""
        raise NotImplementedError

    def act(self, action: str) -> TextStep:
        """Play one action. An action that means nothing here is answered with action_valid=False, never an error."""
        raise NotImplementedError

    def gold(self, task: Task) -> list[str]:
        """Return actions that reach success on `task` from its start."""
        raise NotImplementedError

    def admissible(self) -> list[str]:
        """Return the actions allowed in the current state; [] when they cannot be listed."""
        raise NotImplementedError

    def slips(self) -> list[str]:
        """Return what a clumsy player could do here instead of what it wants; the default is `admissible`.

        Override it where `admissible` lists a form to be filled in, or cannot list anything.
        """
        return self.admissible()

    def explain(self, task: Task, actions: list[str]) -> list[str]:
        """Return one short thought for each gold action; the default just names the action."""
        return [f"next {action}" for action in actions]

    def tasks(self) -> TaskPanel:
        """Return the panel of this environment."""
        return self._require_task_set().panel

    def task(self, task_id: str) -> Task:
        """Return a task by id.

        Raises:
            TaskNotFoundError: no such task.
        """
        return self._require_task_set()[task_id]

    # The public face ----------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode and return (observation, info).

        Args:
            seed: seeds the choice of a task when none is named; never changes a named task.
            options: {"task_id": id} plays that task; without it a task of the train split is picked.

        Raises:
            TaskNotFoundError: no such task.
            EnvConfigError: an unknown option.
        """
        super().reset(seed=seed)
        unknown = (options or {}).keys() - _OPTIONS
        if unknown:
            raise EnvConfigError(f"options {sorted(unknown)} of reset are not known. Allowed: task_id.")
        task_id = (options or {}).get("task_id")
        self._task = self.task(self._pick_task_id() if task_id is None else task_id)
        self.turn, self._is_over = 0, False
        step = self.begin(self._task)
        return step.observation, self._report(step, stop=None)

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        """Play one action and return (observation, reward, terminated, truncated, info).

        Raises:
            EpisodeOverError: before reset, or after the episode ended.
            ActionTypeError: the action is not a string.
        """
        if not isinstance(action, str):
            raise ActionTypeError(f"action={action!r} is of type {type(action).__name__}; an action is a str.")
        if self._is_over:
            state = "was never reset" if self._task is None else f"ended its episode of {self._task.task_id!r}"
            raise EpisodeOverError(f"{type(self).__name__} {state}; call reset before step.")
        self.turn += 1
        step = self.act(action)
        if step.stop is StopReason.MAX_TURNS:
            raise EnvContractError(
                f"{type(self).__name__}.act stops with MAX_TURNS; the turn budget is TextEnv's to keep."
            )
        has_ended = step.stop is not None
        is_cut = not has_ended and self.turn >= self.max_turns
        stop = StopReason.MAX_TURNS if is_cut else step.stop
        self._is_over = has_ended or is_cut
        return step.observation, float(step.reward), has_ended, is_cut, self._report(step, stop)

    def gold_actions(self, task_id: str) -> list[str]:
        """Return actions that solve a task from its start (for cloning, checking and upper bounds)."""
        return self.gold(self.task(task_id))

    def gold_thoughts(self, task_id: str) -> list[str]:
        """Return one short thought for each action of `gold_actions`, in the same order."""
        task = self.task(task_id)
        return self.explain(task, self.gold(task))

    def plan(self) -> list[tuple[str, str]]:
        """Return (thought, action) pairs that lead from the current state to success; [] when nothing does.

        The default knows the way from the start only; override it to answer in any state (for demonstrators that
        slip and recover, and for labels on the agent's own states).

        Raises:
            EnvContractError: called after the first action and not overridden.
        """
        if self.turn or self._task is None:
            raise EnvContractError(
                f"{type(self).__name__} can plan from the start of an episode only. Remedy: override plan()."
            )
        actions = self.gold(self._task)
        return list(zip(self.explain(self._task, actions), actions, strict=True))

    def render(self) -> str | None:  # type: ignore[override]
        """Return the current state as text with render_mode='ansi', else None."""
        return self.draw() if self.render_mode == "ansi" else None

    def draw(self) -> str:
        """Return the text that `render` shows; the default is the last observation."""
        return self._last_observation

    # Inner helpers ------------------------------------------------------------------------------------------------

    def _require_task_set(self) -> TaskSet:
        if self._task_set is None:
            raise EnvContractError(
                f"{type(self).__name__} has no tasks. Remedy: pass task_set to TextEnv.__init__ or override tasks and task."
            )
        return self._task_set

    def _pick_task_id(self) -> str:
        train = self.tasks().train
        if not train:
            raise EnvConfigError(
                f"{type(self).__name__} has no training task to draw. Remedy: options={{'task_id': ...}}."
            )
        return train[int(self.np_random.integers(len(train)))]

    def _report(self, step: TextStep, stop: StopReason | None) -> dict[str, Any]:
        task = cast(Task, self._task)
        clash = step.info.keys() & INFO_KEYS
        if clash:
            raise EnvContractError(f"{type(self).__name__} sets info {sorted(clash)}, which TextEnv sets itself.")
        self._last_observation = step.observation
        info: dict[str, Any] = {
            **step.info,
            "task_id": task.task_id,
            "content_hash": task.content_hash,
            "turn": self.turn,
            "action_valid": step.action_valid,
            "success": step.success,
            "stop_reason": None if stop is None else stop.value,
            "anchor": step.anchor,
            "brief": step.observation if step.brief is None else step.brief,
            "admissible": self.admissible(),
        }
        return info if step.progress is None else {**info, "progress": step.progress}


def own_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an environment's info says of a turn beyond what every one has: its numbers, flags and texts."""
    return {
        name: value
        for name, value in info.items()
        if isinstance(value, (bool, int, float, str)) and (name == "progress" or name not in {*INFO_KEYS, "task_type"})
    }


def register_text_env(env_id: str, entry_point: str, **kwargs: Any) -> None:
    """Register a text environment with Gymnasium; doing it twice with the same arguments is allowed.

    Args:
        env_id: Gymnasium id, 'namespace/Name-v0'.
        entry_point: 'module:Class', imported only when an environment is made.
        kwargs: default constructor arguments.

    Raises:
        EnvConfigError: the id already belongs to something else, or entry_point has no ':'.
    """
    if ":" not in entry_point:
        raise EnvConfigError(f"entry_point={entry_point!r} of {env_id!r} must have the form 'module:Class'.")
    known = gymnasium.registry.get(env_id)
    if known is not None and (known.entry_point, known.kwargs) != (entry_point, kwargs):
        raise EnvConfigError(
            f"env_id={env_id!r} is already registered for {known.entry_point!r}. Remedy: raise the version in the id."
        )
    if known is None:
        gymnasium.register(id=env_id, entry_point=entry_point, kwargs=kwargs)
    if env_id not in _text_env_ids:
        _text_env_ids.append(env_id)


def list_text_envs() -> list[str]:
    """Return the ids registered with register_text_env, sorted."""
    return sorted(_text_env_ids)


def make_text_env(env_id: str | EnvSpec, **kwargs: Any) -> TextEnv:
    """Return the bare TextEnv of a Gymnasium id ('module:id' imports the module first), without wrappers.

    Raises:
        EnvConfigError: the id belongs to an environment that is not a TextEnv.
        gymnasium.error.Error: the id is not registered (the message names the nearest one).
    """
    env = gymnasium.make(env_id, disable_env_checker=True, **kwargs).unwrapped
    if not isinstance(env, TextEnv):
        raise EnvConfigError(f"env_id={env_id!r} makes a {type(env).__name__}, which is not a TextEnv.")
    return env
