"""The environment: contract, texts, flags, rewards, anchors, prompts."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from env_connectors import EnvConfigError, PastTurn, PromptConfig, TextEnv, make_text_env, render_prompt
from env_connectors.alfworld.goals import TASK_TYPES
from env_connectors.check_env import check_text_env

ENV_ID = "arlarena/ALFWorld-v0"


def _first(env: TextEnv, task_type: str) -> str:
    return next(task_id for task_id in env.tasks().train if task_type in task_id)


def test_contract_holds_with_the_oracle_as_gold(small: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_text_env(ENV_ID, episodes=1, **small)


def test_an_episode_is_played_to_its_reward(env: TextEnv) -> None:
    task_id = _first(env, "pick_heat_then_place_in_recep")
    observation, info = env.reset(options={"task_id": task_id})
    assert observation.startswith("-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room.")
    assert info["task_type"] == "pick_heat_then_place_in_recep" and info["data"] == "generated" == env.data
    assert info["goal_conditions"] == [0, 3] and "help" not in info["admissible"]
    rewards, rates = [], []
    for action in env.gold_actions(task_id):
        observation, reward, terminated, truncated, info = env.step(action)
        rewards.append(reward)
        rates.append(info["episode_metrics"]["goal_condition_rate"])
    assert rewards == [0.0] * (len(rewards) - 1) + [10.0]
    assert terminated and not truncated and info["stop_reason"] == "success" and info["progress"] == 1.0
    assert rates == sorted(rates) and rates[-1] == 1.0 and 0.0 < info["episode_metrics"]["interaction_frac"] < 1.0


def test_anything_else_happens_not(env: TextEnv) -> None:
    env.reset(options={"task_id": env.tasks().train[0]})
    for action in ("fly to the moon", "", "GO TO FRIDGE 1", "help"):
        observation, reward, _, _, info = env.step(action)
        assert (reward, info["action_valid"]) == (0.0, False)
    assert info["episode_metrics"]["nothing_happens_frac"] == 3 / 4  # the engine knows help; it is only not listed
    assert observation != "Nothing happens."


def test_cap_of_turns_truncates(small: dict[str, Any]) -> None:
    env = make_text_env(ENV_ID, max_turns=2, **small)
    env.reset(options={"task_id": env.tasks().train[0]})
    env.step("look")
    _, _, terminated, truncated, info = env.step("look")
    assert (terminated, truncated, info["stop_reason"]) == (False, True, "max_turns")


def test_anchor_tells_states_with_equal_texts_apart(env: TextEnv) -> None:
    task_id = _first(env, "pick_and_place_simple")
    start = env.reset(options={"task_id": task_id})[1]["anchor"]
    place = next(action for action in env.admissible() if action.startswith("go to"))
    anchors = [env.step(action)[4]["anchor"] for action in ("inventory", place, "inventory", "inventory")]
    assert len({start, *anchors}) == 4 and anchors[2] == anchors[3]  # same words elsewhere, another state
    assert env.reset(options={"task_id": task_id})[1]["anchor"] == start


def test_chat_prompt_has_task_history_observation_and_actions(env: TextEnv) -> None:
    observation, info = env.reset(options={"task_id": env.tasks().train[0]})
    sentence = env.task(env.tasks().train[0]).content["sentence"]
    action = info["admissible"][0]
    observation, *_, now = env.step(action)
    prompt = render_prompt(
        instructions=env.instructions,
        observation=observation,
        history=[PastTurn(info["brief"], action)],
        admissible=now["admissible"],
        config=PromptConfig(style="chat", instructions=True),
    )[0].text
    assert f"Your task is to: {sentence}" in prompt and f"Turn 1, action: {action}" in prompt
    assert f"Your current observation is:\n{observation}" in prompt and f'"{now["admissible"][-1]}"' in prompt


def test_compact_observation_tells_what_is_seen_and_nothing_hidden(small: dict[str, Any]) -> None:
    env = make_text_env(ENV_ID, observation="compact", **small)
    task_id = _first(env, "pick_cool_then_place_in_recep")
    observation, _ = env.reset(options={"task_id": task_id})
    assert observation.startswith("task ") and " hold nothing at start been nowhere room " in observation
    observation, *_ = env.step("go to fridge 1")
    assert " at fridge 1 closed been nowhere room " in observation
    observation, *_ = env.step("open fridge 1")
    assert "closed" not in observation and " at fridge 1 " in observation
    observation, *_ = env.step("fly")
    assert " nothing happens hold nothing " in observation


@pytest.mark.parametrize("expert", ["oracle", "explorer"])
def test_experts_win_every_task_type(small: dict[str, Any], expert: str) -> None:
    env = make_text_env(ENV_ID, expert=expert, **small)
    for task_type in TASK_TYPES:
        env.reset(options={"task_id": _first(env, task_type)})
        info: dict[str, Any] = {"success": False}
        while not info["success"] and env.turn < env.max_turns:
            steps = env.plan()
            assert expert == "oracle" or len(steps) == 1
            info = env.step(steps[0][1])[4]
            assert info["action_valid"], steps[0]
        assert info["success"], task_type


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"observation": "picture"}, r"observation='picture' is not known\. Allowed: text, compact\."),
        ({"expert": "nobody"}, r"expert='nobody' is not known\. Allowed: oracle, explorer\."),
        ({"task_types": ["cook"]}, r"task_types=\['cook'\] is not allowed\. Allowed: a list of pick_and_place_simple"),
        ({"task_types": "look"}, r"task_types='look' is not allowed"),
        ({"task_types": None}, r"task_types=None is not allowed"),
        ({"n_validation": -1}, r"n_validation=-1 is not allowed\. Allowed: None or whole numbers from 0"),
        ({"n_train": "3"}, r"n_train='3' is not allowed"),
        ({"n_train": 0, "n_validation": 0, "n_test": 0}, r"there is no game of the types"),
        ({"panel_seed": "x"}, r"panel_seed='x' is not allowed\. Allowed: whole numbers"),
        ({"step_timeout_s": 0}, r"step_timeout_s=0 is not allowed\. Allowed: seconds above 0"),
        ({"step_timeout_s": float("nan")}, r"step_timeout_s=nan is not allowed"),
        ({"step_timeout_s": "a"}, r"step_timeout_s='a' is not allowed"),
        ({"generated": {"seed": 0.5}}, r"generated\.seed=0\.5 is not allowed\. Allowed: whole numbers"),
        ({"generated": {"room_kinds": "Kitchen"}}, r"generated\.room_kinds='Kitchen' is not allowed\. Allowed: a list"),
        ({"generated": {"room": 3}}, r"generated\.room is not known\. Allowed: seed, n_train"),
        ({"generated": {"rooms": 0}}, r"generated\.rooms=0 is not allowed\. Allowed: whole numbers from 1\."),
        ({"generated": {"rooms": 28, "unseen_rooms": 3}}, r"rooms=28 and unseen_rooms=3 exceed the 30"),
        ({"n_test": 7}, r"n_test=7 is more than there is: valid_unseen holds 6 games"),
    ],
)
def test_bad_arguments_are_named(small: dict[str, Any], arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(EnvConfigError, match=message):
        make_text_env(ENV_ID, **{**small, **arguments})


def test_games_without_training_games_can_be_played_by_id(small: dict[str, Any]) -> None:
    env = make_text_env(ENV_ID, n_train=0, **small)
    with pytest.raises(EnvConfigError, match=r"has no training task to draw"):
        env.reset(seed=0)
    env.reset(options={"task_id": env.tasks().validation[0]})
