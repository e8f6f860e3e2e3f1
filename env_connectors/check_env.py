"""Checks that an environment keeps the TextEnv contract: check_text_env("namespace/Name-v0").

As a command, `python -m env_connectors.check_env [id ...]`, it checks the named ids, or all registered ones.
"""

from __future__ import annotations

import itertools
import json
import os
import pickle
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import gymnasium.error
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.utils.env_checker import check_env

from env_connectors.errors import EnvCheckError, TaskNotFoundError
from env_connectors.task_panel import SPLITS, content_hash_of
from env_connectors.text_env import StopReason, TextEnv, list_text_envs, make_text_env

INVALID_ACTIONS = ("", "   ", "no such action", "\u4e0a \u2191 \U0001f4e6", "x" * 10_000, "\n\x00<action>")
_INFO_TYPES: dict[str, tuple[type, ...]] = {
    "task_id": (str,),
    "content_hash": (str,),
    "turn": (int,),
    "action_valid": (bool,),
    "success": (bool,),
    "stop_reason": (str, type(None)),
    "anchor": (str,),
    "brief": (str,),
    "admissible": (list,),
}
_RANDOM_ACTIONS = 6
_PROCESS_TIMEOUT_S = 300
_CHILD_FLAG = "--play-scripts"

Script = tuple[str, list[str]]
Transcript = list[list[Any]]


@dataclass(frozen=True)
class _Subject:
    """The environment under check: its spec, and the task ids that are played."""

    spec: EnvSpec
    episodes: int

    def make(self) -> TextEnv:
        """Return a new instance."""
        return make_text_env(self.spec)

    @cached_property
    def task_ids(self) -> list[str]:
        """Ids to play: some of training and one of each held-out split that is not empty."""
        panel = self.make().tasks()
        return [*panel.train[: self.episodes], *panel.validation[:1], *panel.test[:1]]

    @cached_property
    def scripts(self) -> list[Script]:
        """One fixed list of actions a task: something invalid, some random moves, then the gold actions."""
        env, rng = self.make(), random.Random(0)
        scripts = []
        for task_id in self.task_ids:
            env.reset(options={"task_id": task_id})
            choices = env.admissible() or env.gold_actions(task_id)
            moves = [rng.choice(choices) for _ in range(_RANDOM_ACTIONS)]
            scripts.append((task_id, ["no such action", *moves, *env.gold_actions(task_id)]))
        return scripts


def check_text_env(env: TextEnv | str, *, episodes: int = 4, fresh_process: bool = True, **kwargs: Any) -> None:
    """Return nothing if the environment keeps the contract, else raise one error that lists every finding.

    Checked: Gymnasium's own checker without warnings; same seed, same episode; same task, same episode, under any
    seed, in every instance and (with `fresh_process`) in a new process with another hash seed; all info values present
    and typed; gold actions reach success, and the reply form reads back what it renders of them; unknown task ids refused;
    splits without common tasks; invalid actions survived and flagged; the turn budget kept; the global random generators
    left alone.

    Args:
        env: a registered id, or an instance made with gymnasium.make or make_text_env.
        episodes: training tasks to play, >= 1; one validation and one test task are added.
        fresh_process: also replay in a new Python process (about a second).
        kwargs: constructor arguments, only with an id.

    Raises:
        EnvCheckError: with one line for each finding.
    """
    instance = make_text_env(env, **kwargs) if isinstance(env, str) else env.unwrapped
    if not isinstance(instance, TextEnv) or instance.spec is None:
        raise EnvCheckError(f"{env!r} cannot be checked. Allowed: an id, or a TextEnv made by gymnasium.make.")
    subject = _Subject(instance.spec, episodes)
    checks = [check for check in _CHECKS if fresh_process or check is not _check_fresh_process]
    findings = [finding for check in checks for finding in _findings(check, subject)]
    if findings:
        listed = "\n".join(f"  - {finding}" for finding in findings)
        raise EnvCheckError(f"{instance.spec.id} ({type(instance).__name__}) breaks the TextEnv contract:\n{listed}")


def _findings(check: Callable[[_Subject], Iterator[str]], subject: _Subject) -> list[str]:
    """Return what a check found; a crash of the environment is a finding too, and ends this check."""
    name = check.__name__.removeprefix("_check_").replace("_", " ")
    found: list[str] = []
    try:
        for finding in check(subject):
            found.append(f"{name}: {finding}")
    except Exception as error:  # noqa: BLE001 - whatever an environment raises is what the checker has to report
        found.append(f"{name}: raised {type(error).__name__}: {error}")
    return found


def play_script(env: TextEnv, script: Script) -> Transcript:
    """Return [observation, reward, terminated, truncated, info] of reset and of each action until the end."""
    task_id, actions = script
    observation, info = env.reset(options={"task_id": task_id})
    transcript: Transcript = [[observation, 0.0, False, False, info]]
    for action in actions:
        transcript.append(list(env.step(action)))
        if transcript[-1][2] or transcript[-1][3]:
            break
    return transcript


def _check_gymnasium_checker(subject: _Subject) -> Iterator[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(subject.make())
        except AssertionError as error:
            yield f"gymnasium's check_env: {error}"
    for warning in caught:
        yield f"gymnasium's check_env warns: {warning.message}"


def _check_info_values(subject: _Subject) -> Iterator[str]:
    told: set[str] = set()  # each kind of problem once: it is the same in every turn
    for script in subject.scripts:
        for number, (observation, reward, _, _, info) in enumerate(play_script(subject.make(), script)):
            where = f"task {script[0]!r}, turn {number}"
            if not isinstance(observation, str) or not isinstance(reward, float):
                yield f"{where}: observation must be str and reward float"
            for problem in _info_problems(info, number):
                if (kind := problem.partition("=")[0]) not in told:
                    told.add(kind)
                    yield f"{where}: {problem}"


def _info_problems(info: dict[str, Any], turn: int) -> Iterator[str]:
    for key, types in _INFO_TYPES.items():
        if key not in info:
            yield f"info has no {key!r}"
        elif type(info[key]) not in types:
            yield f"info[{key!r}]={info[key]!r} is of type {type(info[key]).__name__}, wanted {types[0].__name__}"
    if info.get("turn") != turn:
        yield f"info['turn']={info.get('turn')!r}, wanted {turn}"
    if info.get("anchor") == "":
        yield "info['anchor'] is empty; it must name the state"
    numbers = info.get("episode_metrics", {})
    if not isinstance(numbers, dict) or not all(type(number) is float for number in numbers.values()):
        yield f"info['episode_metrics']={numbers!r} must hold floats by name (no int, no bool)"
    try:
        json.dumps(info)
    except (TypeError, ValueError) as error:
        yield f"info cannot be written as JSON: {error}"


def _check_ends_agree(subject: _Subject) -> Iterator[str]:
    for script in subject.scripts:
        for number, (_, _, terminated, truncated, info) in enumerate(play_script(subject.make(), script)):
            stop, success = info["stop_reason"], info["success"]
            own = (StopReason.SUCCESS, StopReason.FAILURE)
            is_consistent = (
                not (terminated and truncated)
                and terminated == (stop in own)
                and truncated == (stop == StopReason.MAX_TURNS)
                and (success or stop != StopReason.SUCCESS)
            )
            if not is_consistent:
                yield (
                    f"task {script[0]!r}, turn {number}: terminated={terminated}, truncated={truncated}, "
                    f"stop_reason={stop!r} and success={success} contradict each other"
                )


def _check_same_seed(subject: _Subject) -> Iterator[str]:
    first, second = subject.make(), subject.make()
    for seed in range(subject.episodes):
        answers = [env.reset(seed=seed) for env in (first, second, first)]
        if answers[0] != answers[1] or answers[0] != answers[2]:
            yield f"reset(seed={seed}) gives different episodes"


def _check_same_task(subject: _Subject) -> Iterator[str]:
    used = subject.make()
    for number, script in enumerate(subject.scripts):
        used.reset(seed=number)
        if play_script(used, script) != play_script(subject.make(), script):
            yield f"task {script[0]!r} gives different episodes in two instances or under two seeds"


def _check_fresh_process(subject: _Subject) -> Iterator[str]:
    here = [json.loads(json.dumps(play_script(subject.make(), script))) for script in subject.scripts]
    there = _play_in_fresh_process(subject)
    for script, mine, other in zip(subject.scripts, here, there, strict=True):
        if mine != other:
            turn = next((n for n, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b), len(other))
            yield f"task {script[0]!r} differs in a new process with another PYTHONHASHSEED, first at turn {turn}"


def _play_in_fresh_process(subject: _Subject) -> list[Transcript]:
    entry, kwargs = subject.spec.entry_point, subject.spec.kwargs
    entry_point = entry if isinstance(entry, str) else f"{entry.__module__}:{entry.__qualname__}"  # type: ignore[union-attr]
    hash_seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    finished = subprocess.run(
        [sys.executable, "-m", "env_connectors.check_env", _CHILD_FLAG],
        input=pickle.dumps((entry_point, kwargs, subject.scripts)),
        capture_output=True,
        timeout=_PROCESS_TIMEOUT_S,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    if finished.returncode != 0:
        raise EnvCheckError(f"the new process failed: {finished.stderr.decode(errors='replace').strip()[-1000:]}")
    return json.loads(finished.stdout.decode().splitlines()[-1])


def _check_gold_actions(subject: _Subject) -> Iterator[str]:
    env = subject.make()
    for task_id in subject.task_ids:
        gold, thoughts = env.gold_actions(task_id), env.gold_thoughts(task_id)
        if len(thoughts) != len(gold):
            yield f"task {task_id!r}: {len(gold)} gold actions but {len(thoughts)} thoughts"
        played = play_script(env, (task_id, gold))[1:]
        if not gold or len(played) != len(gold) or not played[-1][2] or not played[-1][4]["success"]:
            yield f"task {task_id!r}: gold actions {gold} do not end in success within max_turns={env.max_turns}"
        if not all(step[4]["action_valid"] for step in played):
            yield f"task {task_id!r}: a gold action is flagged as invalid"


def _check_reply_form(subject: _Subject) -> Iterator[str]:
    env = subject.make()
    form = env.reply_form
    for text in ("", "no such action", *form.stop, "".join(form.tags)):
        try:
            form.parse(text)
        except Exception as error:  # noqa: BLE001 - a policy writes any text, and an episode never raises
            yield f"parse({text!r}) of {form.name!r} raised {type(error).__name__}: {error}"
            return
    for task_id in subject.task_ids:
        for thought, action in zip(env.gold_thoughts(task_id), env.gold_actions(task_id), strict=False):
            reply = form.render(thought, action)
            read = form.parse(reply)
            if read.action != action or not read.format_valid:
                yield (
                    f"task {task_id!r}: {form.name!r} renders {action!r} as {reply!r} and reads back {read.action!r}, "
                    f"format_valid={read.format_valid}"
                )
                return
            if ended := [text for text in form.stop if text in reply[: -len(text)]]:
                yield f"task {task_id!r}: the reply {reply!r} has the stop text {ended[0]!r} before its end"
                return


def _check_unknown_tasks(subject: _Subject) -> Iterator[str]:
    env = subject.make()
    for task_id in ("no such task", "", subject.task_ids[0] + "x", 7):
        try:
            env.reset(options={"task_id": task_id})
        except TaskNotFoundError:
            continue
        yield f"task_id={task_id!r} is accepted by reset; wanted TaskNotFoundError"


def _check_panels(subject: _Subject) -> Iterator[str]:
    env = subject.make()
    panel = env.tasks()
    if not panel.train:
        yield "the train split is empty"
    for name in SPLITS:
        for task in map(env.task, panel.split(name)):
            if task.content_hash != content_hash_of(task.content):
                yield f"task {task.task_id!r}: content_hash is not the hash of its content"
    for one, other in itertools.combinations(SPLITS, 2):
        for what in ("task_id", "content_hash", "split_key"):
            values = [{getattr(env.task(i), what) for i in panel.split(name)} for name in (one, other)]
            if common := values[0] & values[1]:
                yield f"{one} and {other} share {len(common)} {what}s, e.g. {min(common)!r}"


def _check_invalid_actions(subject: _Subject) -> Iterator[str]:
    env = subject.make()
    for action in INVALID_ACTIONS:
        _, info = env.reset(options={"task_id": subject.task_ids[0]})
        is_listed = bool(info["admissible"])
        _, _, _, _, info = env.step(action)
        if is_listed and info["action_valid"]:
            yield f"action {action[:20]!r} is not admissible but gets action_valid=True"
        if info["success"]:
            yield f"action {action[:20]!r} solves the task at once"


def _check_turn_budget(subject: _Subject) -> Iterator[str]:
    env = subject.make()
    transcript = play_script(env, (subject.task_ids[0], ["no such action"] * (env.max_turns + 1)))
    if not (transcript[-1][2] or transcript[-1][3]) or len(transcript) > env.max_turns + 1:
        yield f"the episode is not over after max_turns={env.max_turns} actions"
        return
    try:
        env.step("no such action")
    except gymnasium.error.ResetNeeded:
        return
    yield "step after the end is accepted; wanted EpisodeOverError"


def _check_global_random_state(subject: _Subject) -> Iterator[str]:
    before = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]
    play_script(subject.make(), subject.scripts[0])
    if before != (random.getstate(), np.random.get_state()[1].tolist()):  # type: ignore[index]
        yield "an episode draws from the global generators of random or numpy.random; use the task's content only"


_CHECKS: tuple[Callable[[_Subject], Iterator[str]], ...] = (
    _check_gymnasium_checker,
    _check_info_values,
    _check_ends_agree,
    _check_same_seed,
    _check_same_task,
    _check_fresh_process,
    _check_gold_actions,
    _check_reply_form,
    _check_unknown_tasks,
    _check_panels,
    _check_invalid_actions,
    _check_turn_budget,
    _check_global_random_state,
)


def _play_scripts_from_stdin() -> None:
    entry_point, kwargs, scripts = pickle.load(sys.stdin.buffer)
    creator = cast(Callable[..., TextEnv], load_env_creator(entry_point))
    print(json.dumps([play_script(creator(**kwargs), script) for script in scripts]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the named ids (default: all registered ones) and return 1 if any has a finding."""
    names = list(sys.argv[1:] if arguments is None else arguments)
    if names == [_CHILD_FLAG]:
        _play_scripts_from_stdin()
        return 0
    has_findings = False
    for name in names or list_text_envs():
        try:
            check_text_env(name)
            print(f"{name}: ok")
        except EnvCheckError as error:
            has_findings = True
            print(error)
    return int(has_findings)


if __name__ == "__main__":
    sys.exit(main())
