"""Input that means harm: nothing crashes or hangs, each is a turn of its own with action_valid as it deserves."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from env_connectors import make_text_env
from env_connectors.webshop.official import OfficialFiles

_ID = "arlarena/WebShop-v0"
_BIG = 100_000
_INVALID = (
    "[" * _BIG, "search[" + "[" * _BIG, "click[" * (_BIG // 6), "]" * _BIG, "search[]", "click[]", "click[" + "x" * _BIG + "]",
    "click[b0unknown]", "click[buy now]", "click[search]", "click[../../etc/passwd]", "search", "\x00", "click[\x00]",
    "CLICK[<script>alert(1)</script>]", "click[' OR 1=1 --]", "search[a\nb]", "\ud800", "click[\ud800]",
)  # fmt: skip
_VALID = (
    "search[" + "x" * _BIG + "]", "search[" + "shoe " * (_BIG // 5) + "]", "search[" + "[" * _BIG + "]",
    "search[" + "." * _BIG + "]",
    "search[" + "a_" * (_BIG // 2) + "]", "search[\u200d\u0301" + "\u2764\u200d" * 1000 + "]", "search[\x00\x1b[31m]",
    "search[<r>]", "search[<a> x]", "search[ ]", "search[\ud800]", "search['; DROP TABLE products; --]", "search[a]]]]]",
)  # fmt: skip


@pytest.fixture(scope="module", params=["text", "text_rich", "url"])
def env(request: pytest.FixtureRequest) -> Iterator[Any]:
    yield make_text_env(_ID, num_products=100, observation=request.param)


@pytest.mark.parametrize(("actions", "valid"), [(_INVALID, False), (_VALID, True)])
def test_hostile_actions_are_turns(env: Any, actions: tuple[str, ...], valid: bool) -> None:
    task_id = env.tasks().train[0]
    for action in actions:
        _, before = env.reset(options={"task_id": task_id})
        began = time.process_time()
        observation, reward, terminated, truncated, info = env.step(action)
        assert time.process_time() - began < 2.0, action[:40]
        assert (info["turn"], info["action_valid"], reward, terminated, truncated) == (1, valid, 0.0, False, False), (
            action[:40]
        )
        assert valid or info["anchor"] == before["anchor"]
        assert len(observation) < 20_000 and json.dumps(info)


def test_hostile_actions_on_every_page_change_nothing(env: Any) -> None:
    task_id = env.tasks().train[0]
    gold = env.gold_actions(task_id)
    for taken in range(len(gold)):
        for action in (word for word in _INVALID if word != "click[buy now]"):
            env.reset(options={"task_id": task_id})
            for step in gold[:taken]:
                *_, before = env.step(step)
            *_, info = env.step(action)
            assert not info["action_valid"] and (not taken or info["anchor"] == before["anchor"])


def test_markup_and_brackets_in_product_texts_are_harmless(small_files: OfficialFiles) -> None:
    items = json.loads(small_files.products.read_text())
    evil = '<img src=x onerror="alert(1)"> [SEP] ]] {{7*7}} \x1b[2J'
    for item in items:
        item |= {"name": f"cup {evil}", "full_description": evil, "small_description": [evil]}
        item["customization_options"] = {evil: [{"value": "8 [oz]"}, {"value": "]["}, {"value": ""}, {"value": evil}]}
    small_files.products.write_text(json.dumps(items))
    env = make_text_env(
        _ID, products_file=small_files.products, attributes_file=small_files.attributes, goals="machine", n_validation=0,
        n_test=0, render_mode="html",
    )  # fmt: skip
    for task_id in env.tasks().train:
        env.reset(options={"task_id": task_id})
        for action in env.gold_actions(task_id):
            *_, info = env.step(action)
            assert "<img" not in env.render()
        assert info["stop_reason"] in ("success", "failure")
