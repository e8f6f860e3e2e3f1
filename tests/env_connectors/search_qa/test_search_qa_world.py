"""The generated worlds: every hop can be found, nothing answers a question at once, and nothing is in two splits."""

import itertools
import os
import re
import subprocess
import sys
from collections import Counter
from functools import lru_cache
from typing import Any

import pytest

from env_connectors import EnvConfigError, make_text_env
from env_connectors.search_qa.answer_score import normalise
from env_connectors.search_qa.facts import World
from env_connectors.search_qa.retriever import Bm25Retriever
from env_connectors.search_qa.small_world import small_world
from env_connectors.search_qa.source import WORLDS
from env_connectors.search_qa.world import world
from env_connectors.task_panel import SPLITS

_ID = "arlarena/SearchQA-v0"
_SETTINGS: tuple[dict[str, Any], ...] = (
    {"data": "world", "hops": (1, 2, 3, 4), "max_turns": 5, "questions_per_group": 60},
    {"data": "small_world", "observation": "compact", "hops": (1, 2, 3, 4), "max_turns": 5, "questions_per_group": 60},
)


@lru_cache(maxsize=4)
def _tasks(number: int) -> tuple[Any, ...]:
    env = make_text_env(_ID, **_SETTINGS[number])
    panel = env.tasks()
    return tuple(env.task(i) for i in (*panel.train, *panel.validation, *panel.test))


@lru_cache(maxsize=2)
def _retriever(name: str) -> Bm25Retriever:
    return Bm25Retriever(WORLDS[name]().documents)


@pytest.mark.parametrize("number", [0, 1])
def test_every_hop_of_the_oracle_finds_its_support_among_the_first_three(number: int) -> None:
    retriever = _retriever(_SETTINGS[number]["data"])
    tasks = _tasks(number)
    assert len(tasks) > 1500
    for task in tasks:
        for hop in task.content["hops"]:
            assert hop["support"] in [hit.document.title for hit in retriever.search(hop["query"], 3)], task.task_id


@pytest.mark.parametrize("number", [0, 1])
def test_one_search_for_the_question_itself_rarely_shows_the_answer(number: int) -> None:
    retriever = _retriever(_SETTINGS[number]["data"])
    shown: dict[str, list[bool]] = {}
    for task in _tasks(number):
        found = " ".join(hit.document.search_text for hit in retriever.search(task.content["question"], 3))
        is_shown = f" {normalise(task.content['answers'][0])} " in f" {normalise(found)} "
        shown.setdefault(task.content["kind"], []).append(is_shown)
    assert set(shown) == {"1_hop", "2_hop", "3_hop", "4_hop"}
    assert all(sum(flags) / len(flags) < 0.05 for kind, flags in shown.items() if kind != "1_hop"), shown.keys()
    assert sum(shown["1_hop"]) / len(shown["1_hop"]) > 0.9


@pytest.mark.parametrize("number", [0, 1])
def test_guessing_the_commonest_answer_gains_little(number: int) -> None:
    counts = Counter(task.content["answers"][0] for task in _tasks(number))
    assert max(counts.values()) / sum(counts.values()) < 0.03


@pytest.mark.parametrize("settings", _SETTINGS)
def test_no_question_chain_fact_or_entity_is_in_two_splits(settings: dict[str, Any]) -> None:
    env = make_text_env(_ID, **settings, n_validation=100, n_test=150)
    panel = env.tasks()
    assert (len(panel.validation), len(panel.test)) == (100, 150)
    seen: list[list[set[Any]]] = []
    for split in ("train", "validation", "test"):
        contents = [env.task(i).content for i in panel.split(split)]
        questions = {c["question"] for c in contents}
        chains = {(*((h["of"], h["seeks"]) for h in c["hops"]), c["answers"][0]) for c in contents}
        facts = {(h["of"], h["seeks"]) for c in contents for h in c["hops"]}
        assert len(questions) == len(chains) == len(contents)
        seen.append([questions, chains, facts, {h["of"] for c in contents for h in c["hops"]}])
    for one, other in itertools.combinations(seen, 2):
        assert not any(ours & theirs for ours, theirs in zip(one, other, strict=True))


def _told(made: World, entity: str, relation: str) -> str:
    return next(group[entity][relation].value for group in made.groups if entity in group)


@pytest.mark.parametrize(("number", "made"), [(0, world()), (1, small_world())])
def test_answers_follow_from_the_documents_alone(number: int, made: World) -> None:
    """Each hop's document holds the next hop's entity, the last one's the answer; names are of one entity only."""
    texts = {document.title: document.text for document in made.documents}
    assert len(texts) == len(made.documents)
    for task in _tasks(number):
        hops = task.content["hops"]
        assert hops[0]["of"] in task.content["question"]
        for hop, value in zip(hops, [*(h["of"] for h in hops[1:]), task.content["answers"][0]], strict=True):
            assert value in texts[hop["support"]] and _told(made, hop["of"], hop["seeks"]) == value
    names = [name for group in made.groups for name in group]
    assert len(names) == len(set(names))


def test_pages_say_what_the_facts_say() -> None:
    made = world(10)
    texts = {document.title: document.text for document in made.documents}
    for group in made.groups:
        for entity, facts in group.items():
            for fact in facts.values():
                assert re.search(rf"\b{re.escape(fact.value)}\b", texts[entity]), (entity, fact)
    assert len(made.documents) > sum(map(len, made.groups)) * 1.2  # bystanders


def test_the_small_world_has_few_words_and_short_texts() -> None:
    made = small_world()
    words = {word for document in made.documents for word in document.text.split()}
    assert len(words) < 220
    assert max(len(document.text.split()) for document in made.documents) <= 12
    env = make_text_env(_ID, observation="compact", hops=2)
    for task_id in env.tasks().train[:200]:
        content = env.task(task_id).content
        assert len(content["question"].split()) <= 10 and set(content["question"].split()) <= words | {"?"}
        assert all(2 <= len(hop["query"].split()) <= 4 for hop in content["hops"])
        assert len(content["answers"][0].split()) <= 2
    asked = {
        split: {w for i in env.tasks().split(split) for w in env.task(i).content["question"].split()}
        for split in SPLITS
    }
    assert asked["test"] | asked["validation"] <= asked["train"]


def test_hops_decide_the_questions_and_seeds_the_world() -> None:
    hashes = set()
    for settings in (
        {},
        {"hops": 2},
        {"hops": [3]},
        {"seed": 1},
        {"panel_seed": 1},
        {"num_groups": 30},
        {"n_train": 50},
    ):
        env = make_text_env(_ID, **settings)
        hashes.add(env.tasks().panel_hash)
        hops: Any = settings.get("hops", (2, 3))
        wanted = {f"{count}_hop" for count in ([hops] if isinstance(hops, int) else hops)}
        assert {env.task(i).content["kind"] for i in env.tasks().train} == wanted
    assert len(hashes) == 7
    assert make_text_env(_ID, topk=5).tasks().panel_hash == make_text_env(_ID).tasks().panel_hash


def test_worlds_are_equal_in_every_process() -> None:
    code = (
        "from env_connectors import make_text_env\n"
        "for o in ('text', 'compact'): print(make_text_env('arlarena/SearchQA-v0', observation=o).tasks().panel_hash)"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    here = "".join(f"{make_text_env(_ID, observation=o).tasks().panel_hash}\n" for o in ("text", "compact"))
    assert told == {here}


@pytest.mark.parametrize("make", [world, small_world])
@pytest.mark.parametrize("num_groups", [2, 10_000, True, 3.5])
def test_a_size_that_cannot_be_made_is_refused(make: Any, num_groups: Any) -> None:
    with pytest.raises(EnvConfigError, match=r"num_groups=.* of the (small )?world is not allowed\. Allowed: 3 to "):
        make(num_groups)
