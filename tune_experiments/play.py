"""A person plays one episode of a text environment: an action per line, and all that a policy would be told of it."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from typing import Any, TextIO

from arlarena_rllib.config import check_environment
from arlarena_rllib.errors import ConfigError
from arlarena_rllib.rollout.envs import bare_text_env, env_faults
from env_connectors import TaskNotFoundError, TextEnv
from env_connectors.errors import EnvContractError
from env_connectors.text_env import own_info
from tune_experiments.run_config import build_run_config, read_overrides

HELP, HINT = "?", "!"
_SHOWN_ACTIONS = 60


def play(
    env_id: str,
    overrides: Sequence[str] = (),
    *,
    task_id: str | None = None,
    split: str = "train",
    oracle: bool = False,
    lines: TextIO | None = None,
    out: TextIO | None = None,
) -> bool:
    """Play one episode and return whether it came to its end; False when the lines ended before.

    Args:
        env_id: Gymnasium id, ``module:id`` for one's own.
        overrides: ``environment.env_config={...}``.
        task_id: Task to play; None draws one of ``split``.
        split: "train", "validation" or "test".
        oracle: Whether a line ``!`` is answered with the gold action.
        lines: Actions, one per line; None = what is typed or piped in.
        out: Where the episode is shown; None = the terminal.

    Raises:
        ConfigError: there is no such environment or task, or the overrides cannot be used.
        RolloutError: the environment raised something.
    """
    env = bare_text_env(env_id, env_config(env_id, overrides))
    with closing(env):
        task_id = task_id if task_id is not None else _drawn(env, split)
        return _Episode(env, env_id, task_id, oracle, lines or sys.stdin, out or sys.stdout).play()


def env_config(env_id: str, overrides: Sequence[str]) -> Mapping[str, Any]:
    """Return the arguments of an environment that ``environment.env_config={...}`` gives; raises as :func:`play`."""
    check_environment(env_id)
    sections, places = read_overrides(overrides)
    for (section, key), place in places.items():
        if (section, key) != ("environment", "env_config"):
            raise ConfigError(f"{section}.{key} ({place}) is not read here, only environment.env_config.")
    run = build_run_config({"environment": {"env": env_id, **sections.get("environment", {})}}, places, "command line")
    return run.algorithm("").env_config


def _drawn(env: TextEnv, split: str) -> str:
    tasks = getattr(env.tasks(), split)
    if not tasks:
        raise ConfigError(f"--split={split}: the environment has no such tasks.")
    return tasks[random.randrange(len(tasks))]


class _Episode:
    """One episode in a terminal, or with a file of actions."""

    def __init__(self, env: TextEnv, env_id: str, task_id: str, oracle: bool, lines: TextIO, out: TextIO) -> None:
        self._env, self._env_id, self._task_id, self._oracle = env, env_id, task_id, oracle
        self._lines, self._out = lines, out
        self._played: list[str] = []
        self._total = 0.0

    def play(self) -> bool:
        try:
            with self._faults():
                observation, info = self._env.reset(options={"task_id": self._task_id})
        except TaskNotFoundError as error:
            raise ConfigError(f"--task={self._task_id!r}: {error}") from error
        hint = f", {HINT} for the oracle's next action" if self._oracle else ""
        self._show(
            f"task {self._task_id}, at most {self._env.max_turns} turns. {HELP} for help{hint}, Ctrl-D to leave."
        )
        self._show(self._env.instructions)
        self._show_state(observation, info)
        for line in self._read():
            if line == HELP:
                self._show(self._help())
            elif line == HINT:
                self._show(self._hint())
            elif line and self._is_over_after(line):
                return True
        self._show(f"\nleft after {len(self._played)} turns, return {self._total:g}")
        return False

    def _is_over_after(self, line: str) -> bool:
        """Play a line; return whether the episode ended."""
        form = self._env.reply_form
        line = line.replace("\\n", "\n") if form.continues else line
        whole, action = form.parse(line), form.parse(form.render("", line))
        reply = action if action.format_valid and not whole.format_valid else whole
        with self._faults():
            observation, reward, terminated, truncated, info = self._env.step(reply.action)
        self._played.append(reply.action)
        self._total += float(reward)
        flags = {"format_valid": reply.format_valid, "action_valid": reply.format_valid and bool(info["action_valid"])}
        told = "  ".join(f"{name} {'yes' if flag else 'no'}" for name, flag in flags.items())
        self._show(f"  = {reply.action}\n  reward {float(reward):g}  return {self._total:g}  {told}{_info_text(info)}")
        if terminated or truncated:
            self._show(f"\n{observation}\n\nended with {info['stop_reason']} after {len(self._played)} turns, "
                       f"return {self._total:g}")  # fmt: skip
            return True
        self._show_state(observation, info)
        return False

    def _show_state(self, observation: str, info: Mapping[str, Any]) -> None:
        self._show(f"\n--- turn {len(self._played) + 1} of {self._env.max_turns}\n{observation}")
        if actions := info["admissible"]:
            more = f", and {len(actions) - _SHOWN_ACTIONS} more" if len(actions) > _SHOWN_ACTIONS else ""
            self._show(f"actions: {', '.join(map(self._as_typed, actions[:_SHOWN_ACTIONS]))}{more}")

    def _as_typed(self, action: str) -> str:
        """Return an action as a line that plays it."""
        return action.replace("\n", "\\n") if self._env.reply_form.continues else action

    def _help(self) -> str:
        breaks = "\\n in a line is a line break.\n" if self._env.reply_form.continues else ""
        return (
            "An action per line, as text. A line in a policy's form is read as its whole reply: "
            f"{self._env.reply_form.render('why', 'what')}\n{breaks}"
            f"{HELP} shows this, {HINT} the oracle's next action (with --oracle), Ctrl-D or Ctrl-C leave."
        )

    def _hint(self) -> str:
        if not self._oracle:
            return "the oracle is asked with --oracle only"
        with self._faults():
            try:
                planned = self._env.plan()
            except EnvContractError:
                gold, played = self._env.gold_actions(self._task_id), len(self._played)
                if gold[:played] != self._played:
                    return "the oracle of this environment knows its own way from the start only, and you left it"
                planned = list(zip(self._env.gold_thoughts(self._task_id), gold, strict=True))[played:]
        if not planned:
            return "the oracle knows no way to success from here"
        thought, action = planned[0]
        return f"oracle: {self._as_typed(action)}   ({thought})"

    def _faults(self) -> AbstractContextManager[None]:
        return env_faults(self._env_id, self._task_id)

    def _read(self) -> Iterator[str]:
        is_terminal = self._lines.isatty()
        if is_terminal:
            with suppress(ImportError):
                import readline  # noqa: F401  (arrow keys in `input`)
        while True:
            try:
                line = input("> ") if is_terminal else self._lines.readline()
            except EOFError:
                return
            if not is_terminal:
                if not line:
                    return
                self._show(f"> {line.rstrip()}")
            yield line.strip()

    def _show(self, text: str) -> None:
        print(_printable(text), file=self._out, flush=True)


def _info_text(info: Mapping[str, Any]) -> str:
    """Return what the environment itself tells of the turn."""
    parts = {**own_info(info), **info.get("episode_metrics", {})}
    told = "  ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in parts.items()
    )
    return f"\n  {told}" if told else ""


def _printable(text: str) -> str:
    """Return the text without what a terminal would obey."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "\N{REPLACEMENT CHARACTER}" for sign in text)
