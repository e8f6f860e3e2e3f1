"""The checker: passes every registered environment and names what is wrong with each broken one."""

import dataclasses
import itertools
import random
import re
import subprocess
import sys
from typing import Any

import gymnasium
import pytest

from env_connectors import (
    THINK_ACTION,
    EnvCheckError,
    StopReason,
    Task,
    TaskPanel,
    TaskSet,
    TextStep,
    list_text_envs,
    make_text_env,
)
from env_connectors.check_env import check_text_env, main
from env_connectors.task_panel import build_panel
from env_connectors.toy.env import GuessEnv

_counter = itertools.count()


class RandomStart(GuessEnv):
    def begin(self, task: Task) -> TextStep:
        step = super().begin(task)
        step.observation += f" ({next(_counter)})"
        return step


class SeedDecides(GuessEnv):
    def begin(self, task: Task) -> TextStep:
        step = super().begin(task)
        step.observation += f" ({self.np_random.integers(10**6)})"
        return step


class HashDecides(GuessEnv):
    def admissible(self) -> list[str]:
        return list({f"number {number}" for number in self._numbers()})


class GlobalRandom(GuessEnv):
    def act(self, action: str) -> TextStep:
        random.random()
        return super().act(action)


class WrongGold(GuessEnv):
    def gold(self, task: Task) -> list[str]:
        return [str(task.content["low"])] * 3


class UnreadableForm(GuessEnv):
    reply_form = dataclasses.replace(THINK_ACTION, render=lambda thought, action: f"<do>{action}</do>")


class ParserRaises(GuessEnv):
    reply_form = dataclasses.replace(THINK_ACTION, parse=lambda text: THINK_ACTION.parse(text[text.index("<") :]))


class StopsEarly(GuessEnv):
    reply_form = dataclasses.replace(THINK_ACTION, stop=("</think>",))


class FewThoughts(GuessEnv):
    def explain(self, task: Task, actions: list[str]) -> list[str]:
        return ["hm"] * (len(actions) - 1)


class InvalidGold(GuessEnv):
    def act(self, action: str) -> TextStep:
        step = super().act(action)
        step.action_valid = False
        return step


class SlowGold(GuessEnv):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_turns=2, **kwargs)


class AnyTask(GuessEnv):
    def task(self, task_id: str) -> Task:
        panel = self.tasks()
        return super().task(task_id if task_id in panel.train + panel.validation + panel.test else panel.train[0])


class CrashOnText(GuessEnv):
    def act(self, action: str) -> TextStep:
        int(action)
        return super().act(action)


class AllValid(GuessEnv):
    def act(self, action: str) -> TextStep:
        step = super().act(action)
        step.action_valid = True
        return step


class FreeSuccess(GuessEnv):
    def act(self, action: str) -> TextStep:
        return self._step("correct", stop=StopReason.SUCCESS)


class SuccessWithoutFlag(GuessEnv):
    def act(self, action: str) -> TextStep:
        step = super().act(action)
        step.success = False
        return step


class NumberFlag(GuessEnv):
    def act(self, action: str) -> TextStep:
        step = super().act(action)
        step.success = int(step.success)  # type: ignore[assignment]
        return step


class NoAnchor(GuessEnv):
    def begin(self, task: Task) -> TextStep:
        step = super().begin(task)
        step.anchor = ""
        return step


class SetInInfo(GuessEnv):
    def begin(self, task: Task) -> TextStep:
        step = super().begin(task)
        step.info["numbers"] = {1, 2}
        return step


class MissingInfo(GuessEnv):
    def reset(self, **kwargs: Any) -> tuple[str, dict[str, Any]]:  # type: ignore[override]
        observation, info = super().reset(**kwargs)
        del info["brief"]
        return observation, info


class EndlessEpisode(GuessEnv):
    def step(self, action: str) -> Any:
        self._is_over, self.turn = False, min(self.turn, 2)
        return super().step(action)


class NoError(GuessEnv):
    def step(self, action: str) -> Any:
        self._is_over = False
        return super().step(action)


class OverlappingPanel(GuessEnv):
    def tasks(self) -> TaskPanel:
        panel = super().tasks()
        return TaskPanel(panel.train + panel.test[:1], panel.validation, panel.test, panel.hashes, panel.panel_hash)


class EmptyTraining(GuessEnv):
    def tasks(self) -> TaskPanel:
        panel = super().tasks()
        return TaskPanel((), panel.validation, panel.test, panel.hashes, panel.panel_hash)


class WrongContentHash(GuessEnv):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        content = {"low": 0, "high": 7, "secret": 3}
        tasks = [Task(f"t{n}", content, content_hash=f"{n}") for n in range(20)]
        self._task_set = TaskSet(tasks, build_panel(tasks, seed=0, n_validation=4, n_test=4))


class WrongNumbers(GuessEnv):
    def act(self, action: str) -> TextStep:
        step = super().act(action)
        step.info["episode_metrics"] = {"guesses": 1}
        return step


class BadSpace(GuessEnv):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.observation_space = gymnasium.spaces.Text(5)  # type: ignore[assignment]


class Warns(GuessEnv):
    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012


_FINDINGS: list[tuple[type[GuessEnv], str]] = [
    (RandomStart, r"same seed: reset\(seed=0\) gives different"),
    (RandomStart, r"same task: task '.*' gives different episodes"),
    (SeedDecides, r"same task: task '.*' gives different episodes"),
    (GlobalRandom, r"global random state: an episode draws from"),
    (WrongGold, r"gold actions: task '.*': gold actions .* do not end in success"),
    (UnreadableForm, r"reply form: task '.*': 'think_action' renders '\d+' as '<do>\d+</do>' and reads back '<do>"),
    (ParserRaises, r"reply form: parse\(''\) of 'think_action' raised ValueError"),
    (StopsEarly, r"reply form: task '.*': the reply '.*' has the stop text '</think>' before its end"),
    (FewThoughts, r"gold actions: task '.*': \d gold actions but \d thoughts"),
    (InvalidGold, r"gold actions: task '.*': a gold action is flagged as invalid"),
    (SlowGold, r"do not end in success within max_turns=2"),
    (AnyTask, r"unknown tasks: task_id='no such task' is accepted"),
    (CrashOnText, r"invalid actions: raised ValueError: invalid literal"),
    (AllValid, r"invalid actions: action 'no such action' is not admissible but"),
    (FreeSuccess, r"invalid actions: action '' solves the task"),
    (SuccessWithoutFlag, r"ends agree: .* stop_reason='success' and success=False contradict"),
    (NumberFlag, r"info values: .* info\['success'\]=0 is of type int, wanted bool"),
    (NoAnchor, r"info values: task '.*', turn 0: info\['anchor'\] is empty"),
    (SetInInfo, r"info values: .* info cannot be written as JSON"),
    (WrongNumbers, r"info values: .* info\['episode_metrics'\]={'guesses': 1} must hold floats by name"),
    (MissingInfo, r"info values: .* info has no 'brief'"),
    (EndlessEpisode, r"turn budget: the episode is not over after max_turns=4"),
    (NoError, r"turn budget: step after the end is accepted"),
    (OverlappingPanel, r"panels: train and test share 1 task_ids"),
    (EmptyTraining, r"panels: the train split is empty"),
    (WrongContentHash, r"panels: task '.*': content_hash is not the hash"),
    (BadSpace, r"gymnasium checker: gymnasium's check_env: .*observation"),
    (Warns, r"gymnasium checker: gymnasium's check_env warns: .*render fps"),
]


def _registered(env_class: type[GuessEnv]) -> str:
    env_id = f"broken/{env_class.__name__}-v0"
    if env_id not in gymnasium.registry:
        gymnasium.register(env_id, entry_point=f"{__name__}:{env_class.__name__}")
    return env_id


@pytest.mark.parametrize(("env_class", "finding"), _FINDINGS, ids=lambda v: getattr(v, "__name__", ""))
def test_check_of_broken_env_names_the_fault(env_class: type[GuessEnv], finding: str) -> None:
    with pytest.raises(EnvCheckError) as caught:
        check_text_env(_registered(env_class), fresh_process=False)
    message = str(caught.value)
    assert message.startswith(
        f"broken/{env_class.__name__}-v0 ({env_class.__name__}) breaks the TextEnv contract:\n  - "
    )
    assert re.search(finding, message), message


def test_what_is_wrong_in_every_turn_is_told_once() -> None:
    with pytest.raises(EnvCheckError) as caught:
        check_text_env(_registered(NoAnchor), fresh_process=False)
    assert str(caught.value).count("info['anchor'] is empty") == 1


def test_check_in_a_fresh_process_finds_dependence_on_the_hash_seed() -> None:
    with pytest.raises(EnvCheckError, match=r"fresh process: task '.*' differs in a new process .* first at turn 0"):
        check_text_env(_registered(HashDecides), episodes=2)


def test_check_of_env_that_no_new_process_can_import_says_so() -> None:
    class Local(GuessEnv):
        pass

    gymnasium.register("broken/Local-v0", entry_point=Local)  # type: ignore[arg-type]
    with pytest.raises(EnvCheckError, match="fresh process: raised EnvCheckError: the new process failed"):
        check_text_env("broken/Local-v0", episodes=1)


@pytest.mark.parametrize("env_id", [name for name in list_text_envs() if name.startswith("arlarena/")])
def test_check_of_registered_env_finds_nothing(env_id: str) -> None:
    check_text_env(env_id)


@pytest.mark.parametrize("observation", ["grid", "grid_coords"])
def test_check_of_other_sokoban_observations_finds_nothing(observation: str) -> None:
    check_text_env("arlarena/Sokoban-6x6-2-v0", fresh_process=False, observation=observation)


def test_check_takes_a_wrapped_instance_with_its_arguments() -> None:
    env = gymnasium.make("env_connectors:arlarena/Guess-v0", max_turns=5)
    check_text_env(env, fresh_process=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("env", [GuessEnv(), gymnasium.make("CartPole-v1")], ids=["no spec", "no TextEnv"])
def test_check_of_something_else_says_what_is_allowed(env: Any) -> None:
    with pytest.raises(EnvCheckError, match=r"cannot be checked\. Allowed: an id"):
        check_text_env(env)


def test_check_command_prints_findings_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([_registered(WrongGold), "arlarena/Guess-v0"]) == 1
    printed = capsys.readouterr().out
    assert "broken/WrongGold-v0 (WrongGold) breaks" in printed
    assert "arlarena/Guess-v0: ok\n" in printed


def test_check_command_in_a_shell_is_silent_but_for_its_answer() -> None:
    command = [sys.executable, "-m", "env_connectors.check_env", "arlarena/Guess-v0"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "arlarena/Guess-v0: ok\n", "")


def test_make_text_env_gives_fresh_instances() -> None:
    assert make_text_env("arlarena/Guess-v0") is not make_text_env("arlarena/Guess-v0")
