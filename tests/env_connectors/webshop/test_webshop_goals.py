"""Goals and panels: equal in every process, disjoint by request and by product with options, limits above the price."""

import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from env_connectors import EnvConfigError, PanelError, make_text_env
from env_connectors.task_panel import SPLITS
from env_connectors.webshop.goals import NO_LIMIT, goal_content, goal_of, goals_of, price_limit
from env_connectors.webshop.official import OfficialFiles, read_products
from env_connectors.webshop.products import price_of
from env_connectors.webshop.shop import split_keys
from env_connectors.webshop.synthetic import synthetic_products

_ID = "arlarena/WebShop-v0"
_PINNED = ([4379, 414, 207], "611b38911f1ae3c6")
_PANEL = """
import json, sys
from env_connectors import make_text_env
env = make_text_env("arlarena/WebShop-v0", num_products=400)
panel = env.tasks()
tasks = [env.task(i).content for name in ("train", "validation", "test") for i in panel.split(name)]
print(json.dumps([panel.panel_hash, tasks]))
"""


def _contents(env: Any, split: str) -> list[dict[str, Any]]:
    return [dict(env.task(task_id).content) for task_id in env.tasks().split(split)]


def test_every_process_has_the_same_goals_prices_and_panel() -> None:
    runs = []
    for hash_seed in ("0", "1", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        run = subprocess.run(
            [sys.executable, "-c", _PANEL], capture_output=True, text=True, env=environment, check=True
        )
        runs.append(json.loads(run.stdout))
    assert runs[0] == runs[1] == runs[2]
    here = make_text_env(_ID, num_products=400)
    assert runs[0] == [here.tasks().panel_hash, [c for name in SPLITS for c in _contents(here, name)]]


@pytest.mark.parametrize(
    "settings", [{}, {"goals": "machine", "num_products": 200}, {"num_products": 200, "split_by": "product"}]
)
def test_splits_share_no_request_and_no_product_with_its_options(settings: dict[str, Any]) -> None:
    env = make_text_env(_ID, **settings)
    seen = {name: _contents(env, name) for name in SPLITS}
    assert all(seen.values())
    for one, other in itertools.combinations(SPLITS, 2):
        for mark in (_request, _product_option, *([_product] if "split_by" in settings else [])):
            assert not set(map(mark, seen[one])) & set(map(mark, seen[other]))


def _request(content: dict[str, Any]) -> str:
    return content["instruction"]


def _product(content: dict[str, Any]) -> str:
    return content["asin"]


def _product_option(content: dict[str, Any]) -> str:
    options = content["options"]
    return json.dumps([content["asin"], sorted(options.values() if isinstance(options, dict) else options)])


def test_shipped_panel_is_pinned() -> None:
    panel = make_text_env(_ID).tasks()
    assert ([len(panel.split(name)) for name in SPLITS], panel.panel_hash) == _PINNED


def test_sizes_are_those_of_the_original_or_in_its_proportion() -> None:
    env = make_text_env(_ID, num_products=6500)
    assert [len(env.tasks().split(name)) for name in ("validation", "test")] == [1000, 500]
    env = make_text_env(_ID, num_products=605, max_goals=1209)
    assert [len(env.tasks().split(name)) for name in SPLITS] == [1059, 100, 50]
    env = make_text_env(_ID, num_products=100, n_validation=7, n_test=5)
    assert [len(env.tasks().split(name)) for name in ("validation", "test")] == [7, 5]


def test_seeds_change_what_they_name() -> None:
    first = make_text_env(_ID, num_products=100)
    panel = first.tasks()
    other = make_text_env(_ID, num_products=100, panel_seed=1).tasks()
    assert set(other.train) != set(panel.train)
    assert set(other.train + other.validation + other.test) == set(panel.train + panel.validation + panel.test)
    priced = make_text_env(_ID, num_products=100, price_seed=1)
    changed = [first.task(i).content["price_limit"] != priced.task(i).content["price_limit"] for i in panel.train]
    assert 0.3 < sum(changed) / len(changed) < 0.95
    assert make_text_env(_ID, num_products=100, catalogue_seed=1).tasks().panel_hash != panel.panel_hash


def test_price_limits_are_the_larger_of_two_of_the_next_four_round_sums() -> None:
    found = {price_limit(12.5, key) for key in range(200)}
    assert found == {(x, f", and price lower than {x:.2f} dollars") for x in (30.0, 40.0, 50.0)}
    assert price_limit(979.0, 1) == (990.0, ", and price lower than 990.00 dollars")
    assert price_limit(980.0, 1) == (NO_LIMIT, "")
    assert {price_limit(10.0, key)[0] for key in range(200)} == {30.0, 40.0, 50.0}


def test_prices_between_two_bounds_are_drawn_by_seed_and_product() -> None:
    product = replace(synthetic_products(10)[0], prices=(5.0, 9.0))
    drawn = {price_of(product, seed) for seed in range(20)}
    assert len(drawn) == 20 and all(5.0 <= price <= 9.0 for price in drawn)
    assert price_of(product, 3) == price_of(product, 3) != price_of(replace(product, asin="other"), 3)
    assert price_of(replace(product, prices=(5.0,)), 3) == 5.0 and price_of(replace(product, prices=()), 3) == 100.0


def test_machine_goals_are_all_combinations_of_options() -> None:
    product = replace(synthetic_products(10)[0], options={"size": ("s", "m"), "color": ("red", "tan", "navy")})
    goals = list(goals_of(product, human=False, seed=0))
    assert [goal.option_values for goal in goals] == list(itertools.product(("red", "tan", "navy"), ("s", "m")))
    assert product.request is not None
    assert goals[1].instruction.startswith(
        f"{product.request.text} with color: red, and size: m, and price lower than "
    )
    drawn = list(goals_of(product, human=False, seed=0, most=4))
    assert len({goal.option_values for goal in drawn}) == 4
    assert all(goal_of(json.loads(json.dumps(goal_content(goal)))) == goal for goal in goals)


def test_goals_are_bound_together_through_others() -> None:
    goal = next(goals_of(synthetic_products(10)[0], human=True, seed=0))
    goals = [
        replace(goal, asin="A", instruction="one", options=("x",)), replace(goal, asin="A", instruction="two", options=("x",)),
        replace(goal, asin="B", instruction="two", options=()), replace(goal, asin="A", instruction="three", options=("y",)),
    ]  # fmt: skip
    keys = split_keys(goals, "option")
    assert keys[0] == keys[1] == keys[2] != keys[3]
    assert len(set(split_keys(goals, "product"))) == 1


def test_the_thousand_products_give_the_goals_of_the_original(thousand_products: tuple[OfficialFiles, Any]) -> None:
    assert sum(1 for p in read_products(thousand_products[0]) for _ in goals_of(p, human=False, seed=0)) == 6910


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"goals": "mine"}, r"goals='mine' is not known\. Allowed: human, machine"),
        ({"split_by": "x"}, "split_by='x' is not known"),
        ({"num_products": 5}, "num_products=5 of the synthetic catalogue is not allowed. Allowed: 10 to 90000"),
        ({"num_products": 10**6}, "num_products=1000000 of the synthetic"),
        ({"max_goals": 0}, "max_goals=0 is not allowed"),
        ({"price_seed": "x"}, "price_seed='x' is not allowed. Allowed: whole numbers"),
        ({"observation": "html"}, r"observation='html' is not known\. Allowed: text, text_rich, url"),
        ({"reward": "all"}, r"reward='all' is not known\. Allowed: success, score"),
        ({"human_file": "x.json"}, "human_file='x.json' is read with products_file only"),
        ({"products_file": "x.json"}, "products_file='x.json' needs attributes_file"),
        ({"products_file": 5}, "products_file=5 is not allowed. Allowed: None or a path"),
        ({"products_file": "p", "attributes_file": ""}, "attributes_file='' is not allowed. Allowed: None or a path"),
        ({"products_file": "p" * 5000, "attributes_file": "a"}, "products_file='p.* is not there. Wanted: a list"),
        ({"cache_dir": "a\0b"}, r"cache_dir='a\\x00b' is not allowed"),
        ({"parity": "no"}, "parity='no' is not allowed. Allowed: true, false"),
        ({"only_reachable": []}, r"only_reachable=\[\] is not allowed. Allowed: true, false"),
        ({"show_attributes": "false"}, "show_attributes='false' is not allowed. Allowed: true, false"),
        ({"n_test": "x"}, "n_test='x' is not allowed. Allowed: None or whole numbers from 0"),
        ({"n_validation": []}, r"n_validation=\[\] is not allowed. Allowed: None or whole numbers from 0"),
        ({"max_turns": True}, "max_turns=True is not allowed. Allowed: whole numbers from 1"),
    ],
)
def test_what_no_shop_can_be_made_of_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(EnvConfigError, match=message):
        make_text_env(_ID, **settings)


def test_panels_that_do_not_fit_are_refused() -> None:
    with pytest.raises(PanelError, match="n_validation=90 and n_test=5000 do not fit"):
        make_text_env(_ID, num_products=100, n_validation=90, n_test=5000)
