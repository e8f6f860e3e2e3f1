"""Task panels: splits that never mix, orders that never change, and walks that can be resumed."""

import pickle
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from env_connectors import PanelError, Task, TaskNotFoundError, TaskSet, build_panel
from env_connectors.task_panel import SPLITS, TaskPanel, content_hash_of


def _tasks(count: int, group: int = 1) -> list[Task]:
    return [Task(f"t{n}", {"n": n}, split_key=f"group {n // group}") for n in range(count)]


@pytest.fixture
def panel() -> TaskPanel:
    return build_panel(_tasks(30), seed=0, n_validation=5, n_test=6)


def test_content_hash_ignores_key_order_and_is_pinned() -> None:
    assert content_hash_of({"b": 1, "a": "ü"}) == content_hash_of({"a": "ü", "b": 1})
    assert content_hash_of({"n": 0}) == "f3013f933b9fb80ab6d995e7ad9da36f683837ba1d81e950c943d40111eac2f0"


def test_build_panel_gives_asked_sizes_without_common_ids(panel: TaskPanel) -> None:
    assert [len(panel.split(name)) for name in SPLITS] == [19, 5, 6]
    assert len({*panel.train, *panel.validation, *panel.test}) == 30


def test_build_panel_is_pinned(panel: TaskPanel) -> None:
    assert panel.validation == ("t1", "t18", "t10", "t4", "t3")
    assert panel.panel_hash == "996d31600fd5d532"


def test_build_panel_does_not_depend_on_task_order(panel: TaskPanel) -> None:
    assert build_panel(_tasks(30)[::-1], seed=0, n_validation=5, n_test=6) == panel


def test_build_panel_with_another_seed_splits_otherwise(panel: TaskPanel) -> None:
    other = build_panel(_tasks(30), seed=1, n_validation=5, n_test=6)
    assert other.panel_hash != panel.panel_hash
    assert set(other.test) != set(panel.test)


def test_panel_hash_changes_with_any_content() -> None:
    tasks = _tasks(30)
    before = build_panel(tasks, seed=0, n_validation=5, n_test=6)
    tasks[3] = Task("t3", {"n": -3}, split_key=tasks[3].split_key)
    after = build_panel(tasks, seed=0, n_validation=5, n_test=6)
    assert after.panel_hash != before.panel_hash
    assert sum(after.hashes[name] != before.hashes[name] for name in SPLITS) == 1


def test_build_panel_with_equal_contents_keeps_the_first() -> None:
    tasks = [*_tasks(10), Task("copy of t4", {"n": 4}, split_key="another key")]
    panel = build_panel(tasks, seed=0, n_validation=2, n_test=2)
    ids = [task_id for name in SPLITS for task_id in panel.split(name)]
    assert len(ids) == 10
    assert "copy of t4" not in ids


@settings(deadline=None, max_examples=50)
@given(st.integers(12, 60), st.integers(1, 4), st.integers(0, 5), st.integers(0, 3), st.integers(0, 3))
def test_build_panel_never_parts_a_split_key(count: int, group: int, seed: int, n_val: int, n_test: int) -> None:
    tasks = {task.task_id: task for task in _tasks(count, group)}
    panel = build_panel(list(tasks.values()), seed=seed, n_validation=n_val, n_test=n_test)
    keys = [{tasks[task_id].split_key for task_id in panel.split(name)} for name in SPLITS]
    assert sum(map(len, keys)) == len(set.union(*keys))
    assert (len(panel.validation), len(panel.test)) == (n_val, n_test)


def test_build_panel_with_few_held_out_per_key_takes_more_keys_and_drops_the_rest() -> None:
    tasks = {task.task_id: task for task in _tasks(40, group=4)}
    panel = build_panel(list(tasks.values()), seed=0, n_validation=4, n_test=3, held_out_per_key=2)
    held_out = [tasks[task_id].split_key for task_id in panel.validation + panel.test]
    assert len(set(held_out)) == 4
    assert (len(panel.validation), len(panel.test), len(panel.train)) == (4, 3, 24)


@pytest.mark.parametrize(("n_validation", "n_test"), [(20, 10), (31, 0), (0, 30), (-1, 2)])
def test_build_panel_with_impossible_sizes_names_them(n_validation: int, n_test: int) -> None:
    with pytest.raises(PanelError, match=f"n_validation={n_validation} and n_test={n_test}"):
        build_panel(_tasks(30), seed=0, n_validation=n_validation, n_test=n_test)


@pytest.mark.parametrize("seed", ["1", 1.0, True, None])
def test_build_panel_with_a_seed_of_another_type_names_it(seed: Any) -> None:
    with pytest.raises(PanelError, match=f"seed {seed!r} is not a whole number"):
        build_panel(_tasks(30), seed=seed, n_validation=1, n_test=1)


def test_build_panel_with_a_repeated_id_names_it() -> None:
    with pytest.raises(PanelError, match="'t1'"):
        build_panel([*_tasks(5), Task("t1", {"n": 99})], seed=0, n_validation=1, n_test=1)


def test_draw_over_whole_passes_visits_each_id_once_a_pass(panel: TaskPanel) -> None:
    drawn, cursor = panel.draw("train", 0, 3 * 19, seed=7)
    assert cursor == 57
    assert Counter(drawn) == {task_id: 3 for task_id in panel.train}
    assert all(len(set(drawn[start : start + 19])) == 19 for start in (0, 19, 38))
    assert drawn[:19] != drawn[19:38]


def test_draw_from_a_restored_cursor_continues_the_walk(panel: TaskPanel) -> None:
    whole, _ = panel.draw("train", 0, 50, seed=7)
    first, cursor = panel.draw("train", 0, 23, seed=7)
    rest, end = pickle.loads(pickle.dumps(panel)).draw("train", cursor, 27, seed=7)
    assert (first + rest, end) == (whole, 50)


def test_draw_is_pinned_and_depends_on_the_seed(panel: TaskPanel) -> None:
    assert panel.draw("train", 0, 5, seed=7)[0] == ["t16", "t27", "t24", "t14", "t2"]
    assert panel.draw("train", 0, 19, seed=8)[0] != panel.draw("train", 0, 19, seed=7)[0]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(("dev", 0, 1), "split='dev'"), (("train", -1, 1), "cursor=-1"), (("train", 0, -1), "count=-1")],
)
def test_draw_with_bad_argument_names_it(panel: TaskPanel, arguments: tuple[str, int, int], named: str) -> None:
    with pytest.raises(PanelError, match=named):
        panel.draw(*arguments, seed=0)


def test_draw_from_an_empty_split_is_refused() -> None:
    with pytest.raises(PanelError, match="'test' is empty"):
        build_panel(_tasks(3), seed=0, n_validation=1, n_test=0).draw("test", 0, 1, seed=0)


@pytest.mark.parametrize("task_id", ["t99", "", None, 3, ["t1"]])
def test_task_set_with_unknown_id_shows_a_known_one(task_id: object) -> None:
    task_set = TaskSet.split(_tasks(5), seed=0, n_validation=1, n_test=1)
    with pytest.raises(TaskNotFoundError) as caught:
        task_set[task_id]  # type: ignore[index]
    assert str(caught.value).startswith(f"task_id={task_id!r} is not known. There are 5 tasks with ids like 't0'")
    assert len(task_set) == 5


def test_errors_survive_pickling() -> None:
    from env_connectors import errors

    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    assert len(classes) == 10
    for error_class in classes:
        copy = pickle.loads(pickle.dumps(error_class("key=1 is wrong")))
        assert (type(copy), str(copy)) == (error_class, "key=1 is wrong")
