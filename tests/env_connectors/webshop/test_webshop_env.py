"""The environment: keeps the contract, the oracle fulfils every goal, rewards and info are as documented."""

from typing import Any

import pytest

from env_connectors import make_text_env
from env_connectors.check_env import check_text_env
from env_connectors.errors import EnvContractError
from env_connectors.webshop.env import ANY_SEARCH
from env_connectors.webshop.goals import goals_of
from env_connectors.webshop.nouns import telling_words
from env_connectors.webshop.oracle import plan, queries
from env_connectors.webshop.products import MemoryCatalogue, price_of
from env_connectors.webshop.reward import score_purchase
from env_connectors.webshop.session import Session
from env_connectors.webshop.synthetic import synthetic_products

_ID = "arlarena/WebShop-v0"
BUTTON_WORDS = ("back to search", "next >", "< prev", "description", "features", "reviews", "buy now")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"observation": "text_rich", "goals": "machine", "num_products": 200, "show_attributes": True},
        {"observation": "url", "reward": "score", "num_products": 100, "split_by": "product"},
        {"observation": "compact", "goals": "machine", "num_products": 60},
    ],
)
def test_contract_is_kept(settings: dict[str, Any]) -> None:
    check_text_env(_ID, episodes=2, **settings)


def test_contract_is_kept_within_a_mixture() -> None:
    envs = {
        "shop": {"env": _ID, "config": {"num_products": 50, "n_validation": 2, "n_test": 2}},
        "guess": {"env": "arlarena/Guess-v0"},
    }
    check_text_env("arlarena/Mixture-v0", episodes=2, fresh_process=False, envs=envs)


def _play(env: Any, task_id: str, actions: list[str]) -> tuple[float, dict[str, Any]]:
    _, info = env.reset(options={"task_id": task_id})
    total = 0.0
    for action in actions:
        _, reward, _, _, info = env.step(action)
        total += float(reward)
    return total, info


def test_the_oracle_fulfils_every_goal_of_the_shipped_catalogue() -> None:
    env = make_text_env(_ID)
    panel = env.tasks()
    for task_id in (*panel.train, *panel.validation, *panel.test):
        total, info = _play(env, task_id, env.gold_actions(task_id))
        assert (total, info["score"], info["success"]) == (10.0, 1.0, True), task_id


def test_the_oracle_finds_the_way_from_anywhere() -> None:
    env = make_text_env(_ID, num_products=300, max_turns=40)
    panel = env.tasks()
    for number, task_id in enumerate(panel.train[:60]):
        _, info = env.reset(options={"task_id": task_id})
        for step in range(6):
            choices = [action for action in info["admissible"] if action != "click[buy now]"]
            action = "search[shoes]" if choices == [ANY_SEARCH] else choices[(number * 7 + step * 3) % len(choices)]
            *_, info = env.step(action)
        for _, action in env.plan():
            *_, info = env.step(action)
        assert info["success"], task_id
        assert env.plan() == []


def test_queries_vary_and_say_nothing_that_the_request_does_not() -> None:
    first_words = set()
    for product in synthetic_products(200):
        goal = next(goals_of(product, human=True, seed=0))
        assert goal.title.split()[0].lower() not in " ".join(queries(goal))
        first_words.add(queries(goal)[0].startswith(goal.query))
    assert first_words == {True, False}


def test_a_product_that_is_not_there_has_no_plan() -> None:
    products = synthetic_products(20)
    goal = next(goals_of(products[0], human=True, seed=0))
    assert plan(Session(MemoryCatalogue(products[1:], "rest"), goal.instruction), goal) == []


def test_neighbours_of_a_product_do_not_fulfil_its_goal() -> None:
    """What makes a goal hard: of its family's five members, the others mostly lack something."""
    products = synthetic_products(500)
    fulfilling = 0
    for product in products[::5]:
        goal = next(goals_of(product, human=True, seed=0))
        for other in products[products.index(product) + 1 :][:4]:
            chosen = tuple(
                value for values in other.options.values() for value in values if value in goal.option_values
            )
            score = score_purchase(other, goal, price_of(other, 0), chosen, nouns=telling_words)
            fulfilling += score.score == 1.0
    assert fulfilling / 400 < 0.35


@pytest.mark.parametrize(("reward", "expected"), [("success", 0.0), ("score", 0.8)])
def test_a_purchase_that_misses_something_fails(reward: str, expected: float) -> None:
    env = make_text_env(_ID, num_products=300, reward=reward)
    task_id = next(i for i in env.tasks().train if len(env.task(i).content["options"]) == 2)
    actions = env.gold_actions(task_id)
    total, info = _play(env, task_id, [*actions[:-2], actions[-1]])
    assert (total, info["success"], info["stop_reason"]) == (pytest.approx(expected), False, "failure")
    assert (info["score"], info["r_option"], info["r_type"]) == (pytest.approx(0.8), 0.5, 1.0)
    assert info["episode_metrics"]["premature_purchase"] == 1.0 and info["episode_metrics"]["score"] == info["score"]


def test_before_the_purchase_there_is_no_score() -> None:
    env = make_text_env(_ID, num_products=100)
    _, info = env.reset(seed=0)
    assert info["score"] == 0.0 and "r_type" not in info and info["admissible"] == [ANY_SEARCH]
    assert info["episode_metrics"]["searches"] == 0.0 and "premature_purchase" not in info["episode_metrics"]


def test_episodes_are_cut_after_fifteen_turns() -> None:
    env = make_text_env(_ID, num_products=100)
    env.reset(seed=0)
    flags = [env.step("search[shoes]")[2:4] for _ in range(15)]
    assert flags == [(False, False)] * 14 + [(False, True)]


def test_equal_states_have_equal_anchors() -> None:
    env = make_text_env(_ID, num_products=100)
    task_id = env.tasks().train[0]
    ways = (
        ["search[shoes]"],
        ["search[lamps]", "search[shoes]"],
        ["fly", "search[shoes]", "click[next >]", "click[< prev]"],
    )
    anchors = {_play(env, task_id, way)[1]["anchor"] for way in ways}
    assert len(anchors) == 1 and _play(env, task_id, ["search[boots]"])[1]["anchor"] not in anchors


def test_pages_are_drawn_for_a_person() -> None:
    env = make_text_env(_ID, num_products=100, render_mode="ansi")
    assert env.render() == ""
    env.reset(seed=0)
    assert env.render().endswith("[button] Search [button_]\n")
    page = make_text_env(_ID, num_products=100, render_mode="html")
    page.reset(seed=0)
    assert page.render().startswith("<!DOCTYPE html>") and '<button class="btn">Search</button>' in page.render()
    with pytest.raises(EnvContractError, match=r"on no page\. Remedy: call reset"):
        make_text_env(_ID, num_products=100).plan()


def test_compact_pages_say_what_was_opened_and_chosen_and_no_more_than_the_page() -> None:
    env = make_text_env(_ID, observation="compact", num_products=60)
    task_id = next(i for i in env.tasks().train if len(env.task(i).content["options"]) == 2)
    goal, actions = env.task(task_id).content, env.gold_actions(task_id)
    seen, info = env.reset(options={"task_id": task_id})
    assert seen.startswith("want ") and seen.endswith(" at search") and info["brief"] == "at search"
    assert "," not in seen and f" lower than {goal['price_limit']:.0f} dollars " in seen
    shown = {}
    for action in actions[:-1]:
        seen, *_, info = env.step(action)
        shown[action] = info["brief"]
        assert seen.endswith(info["brief"])
    found, opened, *chosen = shown.values()
    asin = goal["asin"].lower()
    assert found.startswith("page 1 of ") and f" {asin} " in found and "$" not in found and "seen" not in found
    assert opened.startswith(f"at {asin} ") and opened.endswith(" chosen nothing")
    assert chosen[1].endswith(" ".join(["chosen", *(a.removeprefix("click[").rstrip("]") for a in actions[-3:-1])]))
    _, *_, info = env.step("click[features]")
    assert info["brief"].startswith(f"at {asin} features ") and goal["attributes"][0] in info["brief"]
    _, *_, info = env.step("click[< prev]")
    *_, info = env.step("click[< prev]")
    assert f"seen {asin}" in info["brief"]


def test_a_clumsy_shopper_slips_into_searches_that_mean_something() -> None:
    env = make_text_env(_ID, num_products=100)
    assert env.slips() == []
    task_id = env.tasks().train[0]
    env.reset(options={"task_id": task_id})
    slips = env.slips()
    assert len(slips) > 1 and ANY_SEARCH not in slips
    for slip in slips:
        env.reset(options={"task_id": task_id})
        *_, info = env.step(slip)
        assert info["action_valid"] and set(env.slips()) <= set(info["admissible"])
    env.reset(options={"task_id": task_id})
    *_, info = env.step(env.gold_actions(task_id)[0])
    links = [a for a in info["admissible"] if a.startswith("click[s")]
    assert [a for a in env.slips() if a in links] == links[:1]
    env.step(links[0])
    product = next(p for p in synthetic_products(100) if p.asin.lower() in links[0])
    taken = [a for a in env.slips() if a not in {f"click[{b}]" for b in BUTTON_WORDS}]
    assert taken == [f"click[{values[0]}]" for values in product.options.values()]
