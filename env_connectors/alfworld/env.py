"""ALFWorld in text: find things in a house, clean, heat or cool them, and put them where they belong.

Observation   text: the engine's words, byte for byte | compact: task, places, what is seen and carried, in few words.
Action        one of the admissible commands, e.g. 'go to fridge 1', 'take apple 1 from fridge 1'. Anything else:
              'Nothing happens.', action_valid False, the turn counts.
Start         a game of the data folder or a generated one; the same game for the same task id everywhere.
Reward/turn   10 on success, else 0.
Ends          SUCCESS, or truncated after max_turns (50).
Info          task_type, goal_conditions (met, all), data ('official' or 'generated'), episode_metrics (shares of actions
              by kind, goal_condition_rate).
Tasks         train / valid_seen / valid_unseen as train / validation / test, e.g.
              'valid_seen/pick_and_place_simple-Pencil-None-Dresser-330/trial_T20190909_071128_012892'.
Needs         extra [alfworld] (g++ and make to build it). Data: argument `data`, else $ALFWORLD_DATA, else generated
              games. Arguments: see AlfworldTextEnv.__init__.
Versions      v0 first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from env_connectors.alfworld.behaviour import Behaviour
from env_connectors.alfworld.compact import compact_brief, compact_text
from env_connectors.alfworld.explorer import Explorer
from env_connectors.alfworld.games import Game, GameSet, collect_games, find_root
from env_connectors.alfworld.generated import GeneratedSpec, generate_games
from env_connectors.alfworld.goals import TASK_TYPES
from env_connectors.alfworld.host import RemoteEpisode, require_engine
from env_connectors.alfworld.house import View
from env_connectors.alfworld.oracle import Step, plan
from env_connectors.alfworld.panels import build_alfworld_panel
from env_connectors.errors import EnvConfigError, EnvContractError
from env_connectors.task_panel import SPLITS, Task, TaskSet, short_hash
from env_connectors.text_env import StopReason, TextEnv, TextStep

OBSERVATIONS = ("text", "compact")
EXPERTS = ("oracle", "explorer")
REWARD = 10.0
_LONGEST_STEP_S = 86_400.0
_HIDDEN = frozenset({"help"})  # admissible in the engine, left out of the list as in the ARLArena study
_RULES = (
    "You are in a house and do a household task by text commands. Go to a piece of furniture to see what is in or on it; "
    "closed ones must be opened first. You can carry one thing. Things are cleaned at a sinkbasin, heated with a microwave "
    "and cooled with a fridge while you carry them. To look at a thing under a lamp, carry it to the lamp and use the lamp."
)


class AlfworldTextEnv(TextEnv):
    """One ALFWorld game played a command a turn; see the head of this file."""

    def __init__(
        self,
        data: str | None = None,
        *,
        observation: str = "text",
        expert: str = "oracle",
        max_turns: int = 50,
        task_types: Sequence[str] = TASK_TYPES,
        n_train: int | None = None,
        n_validation: int | None = None,
        n_test: int | None = None,
        panel_seed: int = 0,
        generated: Mapping[str, Any] | None = None,
        step_timeout_s: float = 50.0,
        render_mode: str | None = None,
    ) -> None:
        """Find the games and build the panel (both once per process).

        Args:
            data: folder in the official layout (json_2.1.1 or the one above), or 'generated'; None: $ALFWORLD_DATA, and
                generated games where that is not set.
            observation: 'text' or 'compact'.
            expert: whose next steps `plan` gives, 'oracle' (knows where everything is) or 'explorer' (searches).
            max_turns: turn budget of an episode.
            task_types: those to play.
            n_train: training games; None: all.
            n_validation: games of the validation panel (valid_seen); None: all.
            n_test: games of the test panel (valid_unseen); None: all.
            panel_seed: decides the order of the panels, and so what fewer games than all are.
            generated: how generated games are made, see GeneratedSpec; only without a data folder.
            step_timeout_s: an engine that does not answer for so long is killed.
            render_mode: None or 'ansi'.

        Raises:
            EnvConfigError: a package is missing, no games are found, or an argument is not allowed.
        """
        require_engine()
        if observation not in OBSERVATIONS:
            raise EnvConfigError(f"observation={observation!r} is not known. Allowed: {', '.join(OBSERVATIONS)}.")
        if expert not in EXPERTS:
            raise EnvConfigError(f"expert={expert!r} is not known. Allowed: {', '.join(EXPERTS)}.")
        is_list = isinstance(task_types, (list, tuple)) and all(isinstance(name, str) for name in task_types)
        if not is_list or not task_types or set(task_types) - set(TASK_TYPES):
            raise EnvConfigError(
                f"task_types={task_types!r} is not allowed. Allowed: a list of {', '.join(TASK_TYPES)}."
            )
        for name, value in (("n_train", n_train), ("n_validation", n_validation), ("n_test", n_test)):
            if value is not None and (type(value) is not int or value < 0):
                raise EnvConfigError(f"{name}={value!r} is not allowed. Allowed: None or whole numbers from 0.")
        if type(panel_seed) is not int:
            raise EnvConfigError(f"panel_seed={panel_seed!r} is not allowed. Allowed: whole numbers.")
        if type(step_timeout_s) not in (int, float) or not 0 < step_timeout_s < _LONGEST_STEP_S:
            raise EnvConfigError(
                f"step_timeout_s={step_timeout_s!r} is not allowed. Allowed: seconds above 0, below {_LONGEST_STEP_S:g}."
            )
        sizes = (n_train, n_validation, n_test)
        root = find_root(data)
        if root is not None and generated:
            raise EnvConfigError(f"generated={dict(generated)!r} is read by nobody: the games of {root} are played.")
        made = _game_set(root, GeneratedSpec.read(generated), tuple(task_types))
        self.data, self.skipped = made.label, dict(made.broken)
        self._games, task_set = _panel(root, GeneratedSpec.read(generated), tuple(task_types), sizes, panel_seed)
        super().__init__(task_set, max_turns=max_turns, render_mode=render_mode)
        self.instructions = _RULES
        self.observation = observation
        self.expert = expert
        self._timeout_s = step_timeout_s
        self._episode: RemoteEpisode | None = None
        self._behaviour = Behaviour()
        self._explorer: Explorer | None = None

    def begin(self, task: Task) -> TextStep:
        """Start the task's game in the engine."""
        game = self._games[task.task_id]
        self.instructions = f"{_RULES}\nYour task is to: {task.content['sentence']}"
        self._behaviour = Behaviour()
        self._episode = RemoteEpisode(task.content_hash, game.read, timeout_s=self._timeout_s)
        self._explorer = Explorer(game.goal) if self.expert == "explorer" else None
        return self._step(self._episode.view, action_valid=True)

    def act(self, action: str) -> TextStep:
        """Play one command."""
        episode = self._playing()
        command = action.strip()
        is_valid = command in self.admissible()
        view = episode.step(command)
        self._behaviour.note(command, view.text)
        return self._step(view, is_valid)

    def gold(self, task: Task) -> list[str]:
        """Return the oracle's commands."""
        return [command for _, command in self._gold(task)]

    def explain(self, task: Task, actions: list[str]) -> list[str]:
        """Return the oracle's thoughts, e.g. 'get the apple 1 from the fridge 1'."""
        return [thought for thought, _ in self._gold(task)]

    def plan(self) -> list[tuple[str, str]]:
        """Return the oracle's way from the current state to success, or the explorer's next step alone."""
        house = self._playing().house()
        return plan(house, self._game().goal) if self._explorer is None else self._explorer.next_step(house)

    def admissible(self) -> list[str]:
        """Return the engine's admissible commands, sorted, without 'help'."""
        return [] if self._episode is None else [c for c in self._episode.view.commands if c not in _HIDDEN]

    def _words(self, view: View) -> tuple[str, str | None]:
        """Return the observation and its short form, and let the explorer see what it shows."""
        if self.observation == "text" and self._explorer is None:
            return view.text, None
        house = self._playing().house()
        if self._explorer is not None:
            self._explorer.see(house)
        if self.observation == "text" or self._task is None:
            return view.text, None
        text = compact_text(self._task.content["sentence"], house, self._behaviour.visited, view.text)
        return text, compact_brief(house, view.text)

    def _playing(self) -> RemoteEpisode:
        if self._episode is None:
            raise EnvContractError("AlfworldTextEnv plays no game. Remedy: call reset() first.")
        return self._episode

    def _game(self) -> Game:
        return self._games[self._task.task_id if self._task else ""]

    def _gold(self, task: Task) -> list[Step]:
        game = self._games[task.task_id]
        episode = RemoteEpisode(task.content_hash, game.read, timeout_s=self._timeout_s)
        return plan(episode.house(), game.goal)

    def _step(self, view: View, action_valid: bool) -> TextStep:
        task_type = self._game().task_type
        rate = view.met / view.conditions
        observation, brief = self._words(view)
        return TextStep(
            observation=observation,
            reward=REWARD if view.won else 0.0,
            action_valid=action_valid,
            stop=StopReason.SUCCESS if view.won else None,
            success=view.won,
            anchor=short_hash(f"{view.text}\n{view.state_key}"),
            brief=brief,
            progress=rate,
            info={
                "task_type": task_type,
                "data": self.data,
                "goal_conditions": [view.met, view.conditions],
                "episode_metrics": {"goal_condition_rate": rate, **self._behaviour.shares()},
            },
        )


def _game_set(root: Path | None, spec: GeneratedSpec, task_types: tuple[str, ...]) -> GameSet:
    """Return all games of a folder, or those generated for these types."""
    return generate_games(spec, task_types) if root is None else collect_games(root)


@lru_cache(maxsize=16)
def _panel(
    root: Path | None,
    spec: GeneratedSpec,
    task_types: tuple[str, ...],
    sizes: tuple[int | None, ...],
    panel_seed: int,
) -> tuple[Mapping[str, Game], TaskSet]:
    """Return the games of the panel by task id, and their tasks with the panel; shared by all instances."""
    by_split = dict(zip(SPLITS, sizes, strict=True))
    by_id, panel = build_alfworld_panel(_game_set(root, spec, task_types), task_types, by_split, panel_seed)
    return by_id, TaskSet([game.task for game in by_id.values()], panel)
