"""The environment: keeps the contract, the oracle solves every task, turns end and pay as documented."""

from collections.abc import Callable
from typing import Any

import pytest

from env_connectors import TextEnv, make_text_env
from env_connectors.check_env import check_text_env
from env_connectors.errors import EnvConfigError, EnvContractError
from env_connectors.gold import play_gold
from env_connectors.tir_math.problems import problem_of

_ID = "arlarena/TIRMath-v0"
_SMALL = {"n_train": 32, "n_validation": 16, "n_test": 16}
Make = Callable[..., TextEnv]


def half_turns(facts: Any) -> float:
    """A part of the reward of one's own."""
    return facts["turns"] / 2


@pytest.mark.parametrize(
    "settings",
    [{}, {"style": "tags"}, {"observation": "compact", "style": "tags"}, {"observation": "compact", "packages": []}],
)
def test_contract_is_kept(make_tir: Make, settings: dict[str, Any]) -> None:
    make_tir(**settings).reset()  # the environments of the check share its sandbox
    check_text_env(_ID, episodes=2, **_SMALL, **settings)


def test_contract_is_kept_within_a_mixture(make_tir: Make) -> None:
    make_tir().reset()
    envs = {"math": {"env": _ID, "config": _SMALL}, "guess": {"env": "arlarena/Guess-v0"}}
    check_text_env("arlarena/Mixture-v0", episodes=2, fresh_process=False, envs=envs)


@pytest.mark.parametrize("settings", [{}, {"style": "tags"}, {"observation": "compact"}])
def test_the_oracle_solves_every_task_with_the_tool(make_tir: Make, settings: dict[str, Any]) -> None:
    env = make_tir(**settings)
    panel = env.tasks()
    played = list(play_gold(env, (*panel.train, *panel.validation, *panel.test)))
    assert len(played) == 64 and [episode for episode in played if episode.problem] == []
    assert {episode.turns for episode in played} == {2}


def _start(env: TextEnv, number: int = 0) -> tuple[str, dict[str, Any]]:
    return env.reset(options={"task_id": env.tasks().train[number]})


def _answer(env: TextEnv) -> str:
    return problem_of(env.task(env._task.task_id).content).answer  # type: ignore[union-attr]


@pytest.mark.parametrize("style", ["fence", "tags"])
def test_the_oracle_finds_the_way_after_any_slip(make_tir: Make, style: str) -> None:
    env = make_tir(style=style, max_turns=8, limits={"timeout_s": 2.0})
    kinds = set()
    for number in range(16):
        _, info = _start(env, number)
        slips = [
            a for a in info["admissible"] if a not in env.gold_actions(info["task_id"]) and ("print" in a or "sum" in a)
        ]
        assert slips, info["admissible"]
        for slip in slips[:2]:
            observation, _, terminated, _, info = env.step(slip)
            kinds.add(info["tool_status"])
            assert not terminated and info["action_valid"], observation
        for _, action in env.plan():
            *_, info = env.step(action)
        assert info["success"] and env.plan() == [] and env.admissible() == []
    assert kinds >= {"ok", "error"}


def test_what_is_known_is_not_computed_again_and_the_last_turn_answers(make_tir: Make) -> None:
    env = make_tir(max_turns=3)
    _start(env)
    (_, program), (_, answer) = env.plan()
    env.step(program)
    assert [action for _, action in env.plan()] == [answer]
    env.step("```py\nprint(0)\n```")
    assert [action for _, action in env.plan()] == [answer]


def test_right_answers_are_not_admissible_before_anything_was_computed(make_tir: Make) -> None:
    env = make_tir(style="tags")
    _, info = _start(env)
    right = f"<answer>{_answer(env)}</answer>"
    assert right not in info["admissible"]
    *_, info = env.step(info["admissible"][0])
    assert right in info["admissible"]


@pytest.mark.parametrize(
    ("style", "action"),
    [("fence", "I do not know."), ("tags", "\\boxed{1}"), ("fence", "```py\nnever closed"), ("tags", "<code>")],
)
def test_a_void_turn_ends_the_episode(make_tir: Make, style: str, action: str) -> None:
    env = make_tir(style=style)
    _start(env)
    _, reward, terminated, _, info = env.step(action)
    assert (reward, terminated, info["action_valid"], info["stop_reason"]) == (0.0, True, False, "failure")
    assert info["episode_metrics"]["void_turns"] == 1.0


def test_an_empty_program_is_told_and_goes_on(make_tir: Make) -> None:
    for style, action in (("fence", "now\n```\n"), ("tags", "<code>\n</code>")):
        env = make_tir(style=style)
        _start(env)
        observation, _, terminated, _, info = env.step(action)
        assert "There is no program." in observation and not terminated and not info["action_valid"]
        assert (info["episode_metrics"]["empty_calls"], info["episode_metrics"]["tool_calls"]) == (1.0, 0.0)


def test_an_answer_that_the_tool_prints_ends_the_episode_in_the_fence_style_only(make_tir: Make) -> None:
    for style, call, ends in (("fence", "```py\n{0}\n```", True), ("tags", "<code>{0}</code>", False)):
        env = make_tir(style=style)
        _start(env)
        code = f"print('\\\\boxed{{' + '{_answer(env)}' + '}}')"
        *_, terminated, _, info = env.step(call.format(code))
        assert (terminated, info["success"]) == (ends, ends)
    env = make_tir()
    _start(env)
    *_, info = env.step(f"```py\nfinal_answer('{_answer(env)}')\n```")
    assert info["success"] and info["episode_metrics"]["tool_calls"] == 1.0


def test_each_program_is_a_script_of_its_own_with_the_episodes_files(make_tir: Make) -> None:
    env = make_tir(style="tags", max_turns=8)
    _start(env)
    env.step("<code>x = 1\nopen('/tmp/note', 'w').write('kept')</code>")
    assert "kept" in env.step("<code>print(open('/tmp/note').read())</code>")[0]
    assert "NameError: name 'x' is not defined" in env.step("<code>print(x)</code>")[0]
    _start(env)
    assert "No such file" in env.step("<code>print(open('/tmp/note').read())</code>")[0]


def test_case_of_programs_and_answers_is_kept(make_tir: Make) -> None:
    env = make_tir(style="tags")
    _start(env)
    assert "aB" in env.step("<code>Name = 'aB'\nprint(Name)</code>")[0]


def test_observations_are_short_and_say_when_the_last_turn_comes(make_tir: Make) -> None:
    env = make_tir(max_result_chars=20, max_turns=2)
    _start(env)
    observation, *_ = env.step("```py\nprint('x' * 10**7)\n```")
    assert (
        observation == f"\nCode execution result: {'x' * 16} ...\nThere is one turn left: give the final answer now.\n"
    )
    *_, truncated, info = env.step("```py\nprint(1)\n```")
    assert truncated and info["stop_reason"] == "max_turns"


@pytest.mark.parametrize(
    "text",
    [
        "\u6570\u5b66\U0001f600",
        "\\boxed{\\frac{1}{",
        "\\boxed{" * 15_000,
        "```py\n" + "x=1\n" * 25_000 + "```",
        "\x00\ud800",
        "\\boxed{\ud800}",
        "\\boxed{" + "9" * 100_000 + "}",
    ],
)
def test_hostile_replies_are_answered(make_tir: Make, text: str) -> None:
    env = make_tir()
    _start(env)
    observation, _, _, _, info = env.step(env.reply_form.parse(text).action)
    assert observation and not info["success"]
    _start(env)
    assert env.step(text)[0]


def test_an_endless_loop_is_stopped_and_the_episode_goes_on(make_tir: Make) -> None:
    env = make_tir(limits={"timeout_s": 1.0})
    _start(env)
    observation, _, terminated, _, info = env.step("```py\nwhile True: pass\n```")
    assert "TimeoutError: the program was stopped after 1 s." in observation and not terminated
    assert info["tool_status"] == "timeout" and info["episode_metrics"]["tool_errors"] == 1.0
    for _, action in env.plan():
        *_, info = env.step(action)
    assert info["success"]


def test_reward_is_the_weighted_sum_of_its_parts(make_tir: Make) -> None:
    parts = {"answer": 2.0, "format": 0.5, "tool_use": 0.25, f"{__name__}:half_turns": 0.0}
    env = make_tir(reward=parts)
    _, info = _start(env)
    rewards = [env.step(action)[1] for action in env.gold_actions(info["task_id"])]
    assert rewards == [0.0, 2.75]
    _start(env)
    _, reward, _, _, info = env.step(f"\\boxed{{{_answer(env)}}}")
    assert reward == 2.5, "no tool, nothing for its use"
    told = {name: value for name, value in info["episode_metrics"].items() if name.startswith("reward_")}
    assert told == {"reward_answer": 2.0, "reward_format": 0.5, "reward_tool_use": 0.0, "reward_half_turns": 0.5}
    _start(env)
    assert env.step("\\boxed{-17/23}")[1] == 0.5


def test_repeating_the_problem_is_no_answer(make_tir: Make) -> None:
    env = make_tir(kinds=["arithmetic"], levels=[1])
    repeated = 0
    for number in range(16):
        text, _ = _start(env, number)
        if text.startswith("Compute "):
            *_, info = env.step(f"\\boxed{{{text.removeprefix('Compute ').removesuffix('.')}}}")
            assert not info["success"], text
            repeated += 1
    assert repeated > 3


def test_success_is_reported_by_level_and_kind(make_tir: Make) -> None:
    env = make_tir()
    seen = {_start(env, number)[1]["task_type"] for number in range(16)}
    assert len(seen) == 16 and "level 2/number_theory" in seen


def test_anchors_name_what_was_seen(make_tir: Make) -> None:
    env = make_tir(style="tags", max_turns=8)
    anchors = []
    for code in ("print(1)", "print(2 - 1)", "print(2)"):
        _, info = _start(env)
        anchors.append([info["anchor"], env.step(f"<code>{code}</code>")[4]["anchor"]])
    assert anchors[0] == anchors[1] != anchors[2] and anchors[0][0] == anchors[2][0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"style": "xml"}, r"style='xml' is not known. Allowed: fence, tags"),
        ({"observation": "html"}, r"observation='html' is not known. Allowed: text, compact"),
        ({"kinds": ["algebraic"]}, r"kinds=\['algebraic'\]: 'algebraic' is not known. Nearest: 'algebra'"),
        ({"kinds": "algebra"}, r"kinds='algebra' is not allowed. Allowed: a list of arithmetic"),
        ({"levels": [0]}, r"levels=\[0\]: 0 is not known"),
        ({"levels": []}, r"levels=\[\] is not allowed"),
        ({"levels": [True]}, r"levels=\[True\] is not allowed"),
        ({"observation": "compact", "kinds": ["algebra"]}, r"observation='compact' has generated problems of kinds="),
        ({"max_result_chars": 3}, r"max_result_chars=3 is not allowed. Allowed: whole numbers from 16"),
        ({"n_train": 0}, r"n_train=0 is not allowed. Allowed: whole numbers from 1"),
        ({"n_test": -1}, r"n_test=-1 is not allowed. Allowed: whole numbers from 0"),
        ({"seed": "a"}, r"seed='a' is not allowed"),
        ({"reward": {"anser": 1}}, r"reward.anser=1: 'anser' is no part of the reward. Nearest: 'answer'"),
        ({"limits": {"timeout": 3}}, r"limits.timeout is not known. Nearest: 'timeout_s'"),
        ({"limits": {"timeout_s": 0}}, r"timeout_s=0 must be a number above 0"),
        ({"packages": "numpy"}, r"packages='numpy' is not allowed"),
        ({"data": "/no/such.jsonl"}, r"data file '/no/such.jsonl' does not exist"),
        ({"data": []}, r"data=\[\] is not allowed"),
        ({"data": ["generated", "a.jsonl"]}, r"mixes generated problems with files"),
        ({"test_data": "a.jsonl"}, r"validation_data and test_data are read with files as `data` only"),
        ({"check_timeout_s": 0}, r"check_timeout_s=0 is not allowed"),
        ({"max_turns": 0}, r"max_turns=0 is not allowed"),
        ({"style": ["tags"]}, r"style=\['tags'\] is not known"),
        ({"data": 5}, r"data=5 is not allowed"),
        ({"data": {"a.jsonl": 1}}, r"data=\{'a.jsonl': 1\} is not allowed"),
        ({"validation_data": True}, r"validation_data=True is not allowed. Allowed: a file or a list of files"),
        ({"limits": "timeout_s"}, r"limits='timeout_s' is not allowed. Allowed: values for timeout_s, memory_mb"),
        ({"packages": None}, r"packages=None is not allowed"),
        ({"unsafe_no_isolation": "false"}, r"unsafe_no_isolation='false' is not allowed. Allowed: true, false"),
        ({"n_train": 10**9}, r"n_train=1000000000 is not allowed. Allowed: whole numbers from 1 to 1000000"),
        ({"check_timeout_s": 10**5000}, r"check_timeout_s=a int too long to be shown is not allowed"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(EnvConfigError, match=message):
        make_text_env(_ID, **arguments)


def test_plan_and_act_before_reset_are_refused() -> None:
    env = make_text_env(_ID, **_SMALL)
    assert env.admissible() == []
    with pytest.raises(EnvContractError, match=r"call reset\(\) first"):
        env.plan()


def test_hasty_student_says_the_answer_only_while_nothing_was_computed(make_tir: Make) -> None:
    env = make_tir(observation="compact", style="tags", packages=[])
    task_id = env.tasks().train[0]
    program, answer = env.gold_actions(task_id)
    env.reset(options={"task_id": task_id})
    assert env.slips() == [answer]
    env.step(program)
    assert env.slips() == []
    env.reset(options={"task_id": task_id})
    assert env.step(answer)[4]["success"] and env.slips() == []
