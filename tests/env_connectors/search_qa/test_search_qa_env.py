"""The environment: contract, oracle, what is shown, what is paid and what is counted."""

import random
from typing import Any

import pytest

from env_connectors import EnvConfigError, make_text_env
from env_connectors.check_env import check_text_env
from env_connectors.errors import EnvContractError

_ID = "arlarena/SearchQA-v0"
_COMPACT = {"observation": "compact", "hops": 2}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        _COMPACT,
        {
            "hops": (2, 4),
            "max_turns": 6,
            "answer_score": "f1",
            "reward": {"answer": 1.0, "format": 0.2, "retrieval": 0.3},
        },
        {"data": "small_world", "hops": 3, "topk": 5, "max_result_chars": 60},
    ],
)
def test_contract_is_kept(settings: dict[str, Any]) -> None:
    check_text_env(_ID, episodes=3, fresh_process="data" not in settings, **settings)


def _play(env: Any, task_id: str, actions: list[str]) -> tuple[str, float, dict[str, Any]]:
    observation, info = env.reset(options={"task_id": task_id})
    total = 0.0
    for action in actions:
        observation, reward, _, _, info = env.step(action)
        total += float(reward)
    return observation, total, info


@pytest.mark.parametrize(
    "settings",
    [{"hops": (1, 2, 3, 4), "max_turns": 5}, {"hops": (1, 2, 3, 4), "max_turns": 5, "observation": "compact"}],
)
def test_the_oracle_wins_every_generated_task(settings: dict[str, Any]) -> None:
    env = make_text_env(_ID, **settings)
    panel = env.tasks()
    for task_id in (*panel.train, *panel.validation, *panel.test):
        actions = env.gold_actions(task_id)
        _, total, info = _play(env, task_id, actions)
        assert (total, info["success"], info["stop_reason"]) == (1.0, True, "success"), task_id
        assert (
            info["episode_metrics"]["support_recall"] == 1.0
            and len(actions) == len(env.task(task_id).content["hops"]) + 1
        )


@pytest.mark.parametrize("settings", [{}, {"observation": "compact"}])
def test_the_oracle_finds_the_way_from_anywhere(settings: dict[str, Any]) -> None:
    env, rng = make_text_env(_ID, max_turns=9, **settings), random.Random(0)
    for task_id in env.tasks().train[:80]:
        _, info = env.reset(options={"task_id": task_id})
        for _ in range(rng.randint(0, 4)):
            choices = [action for action in info["admissible"] if "<search>" in action]
            *_, info = env.step(rng.choice(["nonsense", *choices]))
        for _, action in env.plan():
            *_, info = env.step(action)
        assert info["success"], task_id
        assert env.plan() == [] and info["admissible"] == []


def test_what_was_seen_is_not_searched_again_and_a_hopeless_plan_is_empty() -> None:
    env = make_text_env(_ID, **_COMPACT)
    task_id = env.tasks().train[0]
    first, second, answer = env.gold_actions(task_id)
    _play(env, task_id, [second])
    assert [action for _, action in env.plan()] == [first, answer]
    _play(env, task_id, ["nonsense", "nonsense"])
    assert env.plan() == []  # three turns are wanted, two are left
    _play(env, task_id, [first, second, first])
    assert [action for _, action in env.plan()] == [answer]


def test_a_clumsy_demonstrator_has_other_choices() -> None:
    for settings in ({}, _COMPACT):
        env = make_text_env(_ID, **settings)
        for task_id in env.tasks().train[:50]:
            _, info = env.reset(options={"task_id": task_id})
            while planned := env.plan():
                action, listed = planned[0][1], info["admissible"]
                assert action in listed and 2 <= len(listed) == len(set(listed)) <= 12
                *_, info = env.step(action)
            assert info["success"]


def test_replies_of_the_oracle_have_the_valid_form() -> None:
    for settings in ({}, _COMPACT):
        env = make_text_env(_ID, **settings)
        task_id = env.tasks().train[0]
        for thought, action in zip(env.gold_thoughts(task_id), env.gold_actions(task_id), strict=True):
            parsed = env.reply_form.parse(env.reply_form.render(thought, action))
            assert (parsed.action, parsed.thought, parsed.format_valid) == (action, thought, True)


def test_text_observations_have_the_form_of_search_r1() -> None:
    env = make_text_env(_ID)
    task_id = env.tasks().train[0]
    observation, _, info = _play(env, task_id, [])
    content = env.task(task_id).content
    assert observation == f"Question: {content['question']}" and info["task_type"] == content["kind"]
    observation, _, info = _play(env, task_id, env.gold_actions(task_id)[:1])
    assert observation.startswith("\n\n<information>Doc 1(Title: ") and observation.endswith("</information>\n\n")
    lines = observation.removeprefix("\n\n<information>").removesuffix("</information>\n\n").split("\n")
    assert [line[: len("Doc 1(Title: ")] for line in lines] == [f"Doc {n}(Title: " for n in (1, 2, 3)]
    assert f"(Title: {content['supports'][0]}) " in observation
    assert content["question"][:60] in info["anchor"] and lines[0] in info["anchor"]


@pytest.mark.parametrize("settings", [{}, {"observation": "compact"}])
@pytest.mark.parametrize("most", [20, 61, 300])
def test_results_are_cut_between_whole_tags(settings: dict[str, Any], most: int) -> None:
    env, whole = make_text_env(_ID, max_result_chars=most, **settings), make_text_env(_ID, **settings)
    task_id = env.tasks().train[0]
    action = env.gold_actions(task_id)[0]
    (cut, *_), (full, *_) = _play(env, task_id, [action]), _play(whole, task_id, [action])
    inner, all_of_it = (text.strip()[len("<information>") : -len("</information>")].strip() for text in (cut, full))
    assert cut.strip().startswith("<information>") and cut.strip().endswith("</information>")
    if len(all_of_it) <= most:
        assert inner == all_of_it
    else:
        assert len(inner) <= most and inner.endswith(" ...") and all_of_it.startswith(inner[:-4])


def test_a_search_that_finds_nothing_says_so() -> None:
    for settings in ({}, _COMPACT):
        env = make_text_env(_ID, **settings)
        observation, _, info = _play(env, env.tasks().train[0], ["<search>qqq zzz</search>"])
        assert "nothing found" in observation and info["action_valid"]


def test_invalid_actions_are_corrected_and_take_a_turn() -> None:
    env = make_text_env(_ID)
    task_id = env.tasks().train[0]
    observation, total, info = _play(env, task_id, ["fly", "<search> </search>", "<answer></answer>", "<search>x"])
    assert (total, info["turn"], info["stop_reason"], info["action_valid"]) == (0.0, 4, "max_turns", False)
    assert (
        observation.startswith("\n\nThat was no usable action.") and info["episode_metrics"]["invalid_actions"] == 4.0
    )
    assert info["episode_metrics"]["answered"] == 0.0


def test_rewards_are_the_weighted_parts_at_the_end() -> None:
    env = make_text_env(_ID, hops=3, reward={"answer": 2.0, "format": 0.5, "retrieval": 0.25})
    task_id = env.tasks().train[0]
    *searches, answer = env.gold_actions(task_id)
    _, total, info = _play(env, task_id, [*searches, answer])
    assert total == pytest.approx(2.75)
    assert {k: v for k, v in info["episode_metrics"].items() if k.startswith("reward_")} == {
        "reward_answer": 2.0, "reward_format": 0.5, "reward_retrieval": 0.25,
    }  # fmt: skip
    _, total, info = _play(
        env, task_id, [searches[0]]
    )  # an episode that ends here, its prompt too long, counts in the mean
    assert (total, info["stop_reason"], info["episode_metrics"]["reward_retrieval"]) == (0.0, None, 0.0)
    _, total, info = _play(env, task_id, [searches[0], "<answer>nobody at all</answer>"])
    assert info["stop_reason"] == "failure" and 0.0 < info["episode_metrics"]["support_recall"] < 1.0
    assert total == pytest.approx(0.5 + 0.25 * info["episode_metrics"]["support_recall"])
    _, total, info = _play(env, task_id, [*searches, searches[0]])  # no answer within the turns
    assert (info["stop_reason"], total, info["episode_metrics"]["repeated_searches"]) == ("max_turns", 0.25, 1.0)
    _, total, info = _play(env, task_id, ["fly", *searches[1:], answer])  # no format part after an invalid action
    assert total == pytest.approx(2.0 + 0.25 * info["episode_metrics"]["support_recall"])


def test_f1_can_be_paid_and_success_stays_exact() -> None:
    env = make_text_env(_ID, data="small_world", observation="text", hops=2, answer_score="f1")
    panel = env.tasks()
    task_id = next(i for i in panel.train if " " in env.task(i).content["answers"][0])
    half = env.task(task_id).content["answers"][0].split()[0]
    _, total, info = _play(env, task_id, [f"<answer>The {half}!</answer>"])
    assert (total, info["f1"], info["em"], info["success"]) == (pytest.approx(2 / 3), pytest.approx(2 / 3), 0.0, False)
    _, total, info = _play(env, task_id, [f"<answer>The {env.task(task_id).content['answers'][0].upper()}!</answer>"])
    assert (total, info["success"]) == (1.0, True)


def few_searches(facts: Any) -> float:
    """Return a reward part of a user's own."""
    assert facts["answers"] and facts["titles"] is not None and facts["question"]
    return 1.0 / (1 + facts["searches"])


def test_reward_parts_of_ones_own() -> None:
    env = make_text_env(_ID, hops=2, reward={"answer": 1.0, f"{__name__}:few_searches": 3.0})
    task_id = env.tasks().train[0]
    _, total, info = _play(env, task_id, env.gold_actions(task_id))
    assert total == pytest.approx(2.0) and info["episode_metrics"]["reward_few_searches"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hops": 4}, r"max_turns=4 is too few for hops=4: .* Remedy: max_turns=5"),
        ({"hops": 5}, r"hops=5 is not allowed\. Allowed: 1, 2, 3, 4"),
        ({"hops": []}, "hops="), ({"hops": "2"}, "hops="), ({"hops": True}, "hops="), ({"hops": [2, None]}, "hops="),
        ({"data": "wiki"}, r"data='wiki' is not known\. Allowed: world, small_world, files"),
        ({"observation": "html"}, "observation='html' is not known"), ({"answer_score": "bleu"}, "answer_score='bleu'"),
        ({"topk": 0}, r"topk=0 is not allowed\. Allowed: whole numbers from 1 to 100"), ({"topk": 2.0}, r"topk=2\.0"),
        ({"max_result_chars": 3}, "max_result_chars=3"), ({"questions_per_group": 0}, "questions_per_group=0"),
        ({"reward": {"anser": 1.0}}, "Nearest: 'answer'"), ({"data": "files"}, "needs questions_file"),
        ({"data": "world", "corpus_file": "x"}, "reads no questions_file"),
        ({"retriever_url": "localhost:8000"}, "retriever_url='localhost:8000' is no address"),
        ({"retriever_url": "http://x", "retriever_timeout_s": 0}, "retriever_timeout_s=0"),
        ({"retriever_url": "http://x", "retriever_retries": -1}, "retriever_retries=-1"),
        ({"retriever_url": "http://x:port"}, "retriever_url='http://x:port' is no address"),
        ({"retriever_url": "http://x", "retriever": "dense"}, "retriever='dense' is not read with a retriever_url"),
        ({"retriever_url": ["http://x"]}, r"retriever_url=\['http://x'\] is no address"),
        ({"retriever_timeout_s": 3}, "retriever_timeout_s=3 is not read with no retriever_url"),
        ({"retriever_retries": 0}, "retriever_retries=0 is not read"), ({"data": ""}, "data='' is not known"),
        ({"skip_malformed": "false"}, r"skip_malformed='false' is not allowed\. Allowed: true, false"),
        ({"skip_malformed": True}, "skip_malformed=True is not read with generated data"),
        ({"data": "files", "questions_file": "q", "hops": 2}, "hops=2 is not read with data='files'"),
        ({"data": "files", "questions_file": "q", "seed": 1}, "seed=1 is not read with data='files'"),
        ({"questions_file": 3}, "questions_file=3 is not allowed"), ({"num_groups": [8]}, r"num_groups=\[8\] is not allowed"),
        ({"seed": "x"}, "seed='x' is not allowed"), ({"panel_seed": None}, "panel_seed=None is not allowed"),
        ({"n_train": 0}, r"n_train=0 is not allowed\. Allowed: whole numbers from 1"), ({"n_test": "9"}, "n_test='9'"),
        ({"n_validation": 1.5}, r"n_validation=1\.5"), ({"max_turns": True}, "max_turns=True is not allowed"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(EnvConfigError, match=message):
        make_text_env(_ID, **settings)


def test_before_the_first_question_there_is_no_plan() -> None:
    with pytest.raises(EnvContractError, match="call reset"):
        make_text_env(_ID, **_COMPACT).plan()
