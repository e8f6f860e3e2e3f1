"""A mixture plays each task as its own environment does, draws by weight, and trains on nothing that is held out."""

import json
import os
import pickle
import subprocess
import sys
from typing import Any

import pytest

from env_connectors import EnvConfigError, PanelError, Task, TaskNotFoundError, TaskSet, TextEnv, make_text_env
from env_connectors.check_env import check_text_env, play_script
from env_connectors.mixture.panel import MixturePanel
from env_connectors.task_panel import SPLITS
from env_connectors.text_env import register_text_env
from env_connectors.toy.env import GuessEnv

MIXTURE = "arlarena/Mixture-v0"
SOKOBAN, GUESS = "arlarena/Sokoban-6x6-1-v0", "arlarena/Guess-v0"
TWO = {"easy": {"env": SOKOBAN, "weight": 3, "config": {"max_turns": 12}}, "guess": {"env": GUESS}}
THREE = {
    "easy": {"env": SOKOBAN, "weight": 3, "config": {"observation": "coords", "panel_seed": 1}},
    "hard": {"env": "arlarena/Sokoban-6x6-2-v0", "weight": 1},
    "guess": {"env": GUESS},
}


class TypedGuess(GuessEnv):
    """Tells a type of task, has rules of its own, and another budget for each task."""

    def begin(self, task: Task) -> Any:
        step = super().begin(task)
        self.max_turns = 2 + task.content["low"]
        self.instructions = f"Numbers from {task.content['low']}."
        step.info["task_type"] = "low numbers" if task.content["low"] < 4 else "high"
        return step


class Countries(TextEnv):
    """Has one task of the same content as GuessEnv's, in training."""

    def __init__(self, **kwargs: Any) -> None:
        held_out = make_text_env(GUESS)
        contents = [held_out.task(held_out.tasks().test[0]).content, {"country": 1}]
        tasks = [Task(f"c{n}", content) for n, content in enumerate(contents)]
        super().__init__(TaskSet.split(tasks, seed=0, n_validation=0, n_test=0), max_turns=1, **kwargs)


register_text_env("test/TypedGuess-v0", f"{__name__}:TypedGuess")
register_text_env("test/Countries-v0", f"{__name__}:Countries")


def _mixture(envs: Any = TWO) -> TextEnv:
    return make_text_env(MIXTURE, envs=envs)


def _names(ids: Any) -> list[str]:
    return [task_id.partition(":")[0] for task_id in ids]


@pytest.mark.parametrize("envs", [THREE, TWO, {"only": {"env": GUESS, "weight": 0.5}}], ids=["three", "two", "one"])
def test_mixture_keeps_the_contract(envs: Any) -> None:
    check_text_env(MIXTURE, envs=envs, episodes=5)


def test_task_is_played_as_its_own_environment_plays_it() -> None:
    mixture = _mixture()
    for name, env in (("easy", make_text_env(SOKOBAN, max_turns=12)), ("guess", make_text_env(GUESS))):
        task_id = env.tasks().train[0]
        script = ["no such action", "left", "3", *env.gold_actions(task_id)]
        alone, mixed = play_script(env, (task_id, script)), play_script(mixture, (f"{name}:{task_id}", script))
        assert len(alone) == len(mixed)
        for (*expected, info), (*found, mixed_info) in zip(alone, mixed, strict=True):
            own = {"task_id": f"{name}:{task_id}", "anchor": f"{name}:{info['anchor']}", "task_type": name}
            assert (found, mixed_info) == (expected, info | own)
        assert mixture.gold_thoughts(f"{name}:{task_id}") == env.gold_thoughts(task_id)


def test_instructions_budget_plan_and_picture_follow_the_task_of_a_reused_env() -> None:
    mixture, guess = _mixture(), make_text_env(GUESS)
    sokoban = make_text_env(SOKOBAN)
    assert (mixture.max_turns, mixture.instructions, mixture.admissible()) == (12, "", [])
    for name, env, budget in (("easy", sokoban, 12), ("guess", guess, 4), ("easy", sokoban, 12)):
        task_id = env.tasks().validation[0]
        mixture.reset(options={"task_id": f"{name}:{task_id}"})
        env.reset(options={"task_id": task_id})
        assert (mixture.instructions, mixture.max_turns) == (env.instructions, budget)
        assert (mixture.plan(), mixture.slips(), mixture.draw()) == (env.plan(), env.slips(), env.draw())
        assert mixture.admissible() == env.admissible()


def test_types_and_budgets_of_an_environment_with_types_of_its_own() -> None:
    mixture = _mixture({"guess": {"env": GUESS}, "typed": {"env": "test/TypedGuess-v0"}})
    _, info = mixture.reset(options={"task_id": "typed:guess/3-10/5"})
    assert (info["task_type"], mixture.max_turns, mixture.instructions) == (
        "typed/low numbers", 5, "Numbers from 3.",
    )  # fmt: skip
    assert [mixture.step("x")[3] for _ in range(5)] == [False] * 4 + [True]
    _, info = mixture.reset(options={"task_id": "typed:guess/4-11/5"})
    assert (info["task_type"], mixture.max_turns) == ("typed/high", 6)


@pytest.mark.parametrize("task_id", ["guess/3-10/5", "gues:guess/3-10/5", "guess:", "guess:guess/3-10/55", ":", 7])
def test_unknown_task_ids_are_refused(task_id: Any) -> None:
    with pytest.raises(TaskNotFoundError, match=r"is not known to the mixture.*(names easy, guess|; guess: task_id=)"):
        _mixture().reset(options={"task_id": task_id})


def test_training_draws_follow_the_weights_and_each_environment_walks_as_it_does_alone() -> None:
    panel = _mixture().tasks()
    drawn, cursor = panel.draw("train", 0, 240, seed=5)
    assert cursor == 240
    assert _names(drawn[:8]) == ["easy", "easy", "guess", "easy"] * 2
    for start in range(200):
        for length in (1, 2, 5, 11, 40):
            assert abs(_names(drawn[start : start + length]).count("guess") - length / 4) <= 1
    guess, easy = make_text_env(GUESS).tasks(), make_text_env(SOKOBAN).tasks()
    # 60 of guess's 48 training tasks: one whole pass and a quarter of the next.
    assert [i for i in drawn if i[0] == "g"] == [f"guess:{i}" for i in guess.draw("train", 0, 60, 5)[0]]
    assert [i for i in drawn if i[0] == "e"] == [f"easy:{i}" for i in easy.draw("train", 0, 180, 5)[0]]


def test_draws_of_three_environments_hold_every_share_in_any_window() -> None:
    drawn = _names(_mixture(THREE).tasks().draw("train", 0, 60, seed=0)[0])
    assert drawn[:5] == ["easy", "guess", "easy", "hard", "easy"]
    for name, share in (("easy", 0.6), ("guess", 0.2), ("hard", 0.2)):
        for start in range(30):
            assert all(abs(drawn[start : start + n].count(name) - n * share) <= 0.8 + 1e-9 for n in range(1, 31))


@pytest.mark.parametrize("cursor", [0, 1, 2, 3, 4, 197])
def test_draws_go_on_exactly_from_the_cursor(cursor: int) -> None:
    panel = _mixture().tasks()
    whole, _ = panel.draw("train", 0, 220, seed=3)
    assert panel.draw("train", cursor, 20, seed=3) == (whole[cursor : cursor + 20], cursor + 20)
    assert panel.draw("train", cursor, 20, seed=4)[0] != whole[cursor : cursor + 20]


def test_draw_refuses_what_the_panel_of_one_environment_refuses() -> None:
    with pytest.raises(PanelError, match="split='dev' is not known"):
        _mixture().tasks().draw("dev", 0, 1, 0)
    for cursor, count in ((-1, 1), (0, -1)):
        with pytest.raises(PanelError, match=f"cursor={cursor} and count={count} must not be negative"):
            _mixture().tasks().draw("train", cursor, count, 0)
    without = {"guess": {"env": GUESS, "config": {"n_test": 0}}}
    with pytest.raises(PanelError, match="split='test' is empty"):
        _mixture(without).tasks().draw("test", 0, 1, 0)


def test_environment_without_held_out_tasks_is_left_out_of_that_split_only() -> None:
    panel = _mixture({**TWO, "more": {"env": GUESS, "config": {"n_test": 0, "n_validation": 8}}}).tasks()
    assert set(_names(panel.test)) == {"easy", "guess"}
    assert _names(panel.draw("test", 0, 4, 0)[0]) == ["easy", "easy", "guess", "easy"]
    assert set(_names(panel.train[:5])) == {"easy", "guess", "more"}


def test_held_out_prefixes_hold_every_environment_in_proportion() -> None:
    panel = _mixture(THREE).tasks()
    assert _names(panel.test[:5]) == ["easy", "guess", "easy", "hard", "easy"]
    # guess has 8 held-out tasks a split: until they are used up the proportion is 3 : 1 : 1, then 3 : 1 of the others.
    for n in range(1, 41):
        assert abs(_names(panel.test[:n]).count("easy") - 0.6 * n) < 1
        assert abs(_names(panel.test[:n]).count("guess") - 0.2 * n) < 1
    later = _names(panel.test[40:140])
    assert (later.count("guess"), later.count("hard")) == (0, 25)
    for split in SPLITS:
        inner = {name: make_text_env(e["env"], **e.get("config", {})).tasks().split(split) for name, e in THREE.items()}
        for name, ids in inner.items():
            assert tuple(i for i in panel.split(split) if _names([i]) == [name]) == tuple(f"{name}:{i}" for i in ids)


def test_what_one_environment_holds_out_no_other_one_trains_on() -> None:
    envs = {
        "a": {"env": GUESS, "config": {"panel_seed": 0}},
        "b": {"env": GUESS, "config": {"panel_seed": 1, "max_turns": 5}},
        "c": {"env": "test/Countries-v0"},
    }
    mixture = _mixture(envs)
    panel = mixture.tasks()
    contents = [{mixture.task(i).content_hash for i in panel.split(split)} for split in SPLITS]
    assert [len(one & other) for one, other in zip(contents, contents[1:] + contents[:1], strict=True)] == [0, 0, 0]
    assert {*_names(panel.train)} == {"a", "b", "c"}
    assert len(panel.test) == 16
    # Task c0 has a content that `a` tests on, though c is of another class.
    assert [i for i in panel.train if i[0] == "c"] == ["c:c1"]
    drawn = set(panel.draw("train", 0, 300, 0)[0])
    assert drawn == set(panel.train)


def test_environment_left_without_training_tasks_is_an_error() -> None:
    envs = {
        "a": {"env": GUESS, "config": {"n_validation": 62, "n_test": 1}},
        "b": {"env": GUESS, "config": {"n_validation": 1, "n_test": 62, "panel_seed": 1}},
    }
    with pytest.raises(
        PanelError, match=r"env_config\.envs\.[ab]: none of its 1 training tasks is left; .* panel_seed"
    ):
        _mixture(envs)


def test_panel_is_named_by_tasks_and_weights_not_by_the_order_of_keys() -> None:
    panel = _mixture().tasks()
    assert panel == _mixture(dict(reversed(TWO.items()))).tasks()
    assert panel == _mixture({**TWO, "easy": {**TWO["easy"], "weight": 3.0}}).tasks()
    assert pickle.loads(pickle.dumps(panel)) == panel
    assert isinstance(panel, MixturePanel)
    hashes = {panel.panel_hash}
    for changed in ({"weight": 2}, {"config": {"panel_seed": 9}}):
        hashes.add(_mixture({**TWO, "easy": {**TWO["easy"], **changed}}).tasks().panel_hash)
    hashes.add(_mixture({"simple": TWO["easy"], "guess": TWO["guess"]}).tasks().panel_hash)
    assert len(hashes) == 4


def test_weights_alone_change_the_panel_hash() -> None:
    """With one held-out task each and equal contents, the ids of all splits may be in the same order."""
    sizes = {"n_validation": 0, "n_test": 0}
    one, other = (
        _mixture({"a": {"env": "test/Countries-v0", "weight": w}, "b": {"env": GUESS, "config": sizes}}).tasks()
        for w in (20, 30)
    )
    assert one.hashes == other.hashes
    assert one.panel_hash != other.panel_hash


def test_panel_and_draws_are_the_same_in_a_process_with_another_hash_seed() -> None:
    code = (
        "import json, sys; from env_connectors import make_text_env;"
        "p = make_text_env('arlarena/Mixture-v0', envs=json.load(sys.stdin)).tasks();"
        "print(json.dumps([p.panel_hash, p.train[:50], p.validation, p.test, p.draw('train', 77, 100, 3)]))"
    )
    panel = _mixture(THREE).tasks()
    here = [panel.panel_hash, panel.train[:50], panel.validation, panel.test, panel.draw("train", 77, 100, 3)]
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            input=json.dumps(THREE),
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(done.stdout) == json.loads(json.dumps(here))


@pytest.mark.parametrize(
    ("envs", "message"),
    [
        (None, r"env_config\.envs=None names no environment\. Allowed: one or more of name: \{env: id"),
        ({}, r"env_config\.envs=\{\} names no environment"),
        ([GUESS], r"env_config\.envs=\[.*\] names no environment"),
        ({"a:b": {"env": GUESS}}, r"env_config\.envs: the name 'a:b' is not allowed\. Allowed: letters"),
        ({3: {"env": GUESS}}, r"env_config\.envs: the name 3 is not allowed"),
        ({"a": GUESS}, r"env_config\.envs\.a='arlarena/Guess-v0' is not a mapping"),
        ({"a": {"env": GUESS, "wieght": 1}}, r"env_config\.envs\.a\.wieght is not known\. Nearest: 'weight'\. Allowed: env"),
        ({"a": {"weight": 1}}, r"env_config\.envs\.a\.env=None is not an id"),
        ({"hard": {"env": GUESS, "weight": 0}}, r"env_config\.envs\.hard\.weight=0 is not allowed\. Allowed: numbers > 0"),
        ({"a": {"env": GUESS, "weight": -1.5}}, r"env_config\.envs\.a\.weight=-1\.5 is not allowed"),
        ({"a": {"env": GUESS, "weight": float("nan")}}, r"env_config\.envs\.a\.weight=nan is not allowed"),
        ({"a": {"env": GUESS, "weight": "3"}}, r"env_config\.envs\.a\.weight='3' is not allowed"),
        ({"a": {"env": GUESS, "weight": True}}, r"env_config\.envs\.a\.weight=True is not allowed"),
        ({"a": {"env": GUESS, "config": [1]}}, r"env_config\.envs\.a\.config=\[1\] is not a mapping"),
        (
            {"a": {"env": "arlarena/Sokobn-6x6-1-v0"}},
            r"env_config\.envs\.a\.env='arlarena/Sokobn-6x6-1-v0' cannot be made: .* Nearest: 'arlarena/Sokoban-6x6-1-v0'",
        ),
        ({"a": {"env": ":id"}}, r"env_config\.envs\.a\.env=':id' is not an id\. Allowed: 'id', or 'module:id' for your own"),
        ({"a": {"env": "module:"}}, r"env_config\.envs\.a\.env='module:' is not an id"),
        ({"a": {"env": "no_such_module:x/Y-v0"}}, r"env_config\.envs\.a\.env=.* cannot be made: No module named"),
        ({"a": {"env": "CartPole-v1"}}, r"env_config\.envs\.a\.config=\{\}: .* which is not a TextEnv"),
        (
            {"a": {"env": GUESS, "config": {"max_turn": 3}}},
            r"env_config\.envs\.a\.config\.max_turn=3 is not an argument of GuessEnv\. Nearest: 'max_turns'\. Allowed: max_t",
        ),
        (
            {"a": {"env": SOKOBAN, "config": {"observation": "rgb"}}},
            r"env_config\.envs\.a\.config=\{'observation': 'rgb'\}: observation='rgb' is not known",
        ),
        ({"a": {"env": GUESS, "config": {"n_test": 64}}}, r"env_config\.envs\.a\.config=\{'n_test': 64\}: .*do not fit"),
        ({"a": {"env": MIXTURE, "config": {"envs": TWO}}}, r"env_config\.envs\.a is a mixture itself"),
        ({**TWO, "a": {"env": GUESS, "weight": 1e-6}}, r"env_config\.envs: the weights .* Remedy: rounder weights"),
    ],
)  # fmt: skip
def test_mistake_in_a_mixture_is_named_with_its_key(envs: Any, message: str) -> None:
    with pytest.raises(EnvConfigError, match=message):
        _mixture(envs)
