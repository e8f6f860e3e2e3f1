"""Problems from files: all forms, training and evaluation kept apart, files that cannot be used named with file and line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from env_connectors import make_text_env
from env_connectors.errors import EnvConfigError, PanelError
from env_connectors.task_panel import SPLITS
from env_connectors.tir_math.data_files import read_problems
from env_connectors.tir_math.panels import GENERATED, Spec, Tasks, tasks_of
from env_connectors.tir_math.problems import Problem, normalised, problem_of


def _write(path: Path, rows: list[Any]) -> str:
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8"
    )
    return str(path)


def _sums(first: int, last: int) -> list[dict[str, str]]:
    return [{"question": f"What is ${n} + {n}$?", "answer": str(2 * n)} for n in range(first, last)]


def _texts(tasks: Tasks, split: str) -> list[str]:
    return [problem_of(tasks.task_set[i].content).text for i in tasks.task_set.panel.split(split)]


@pytest.mark.parametrize(
    ("row", "answer", "level"),
    [
        ({"question": "q", "answer": "1/2"}, "1/2", 0),
        ({"question": "q", "answer": 7}, "7", 0),
        ({"problem": "q", "answer": "204", "id": 60, "solution": "s", "url": "u"}, "204", 0),
        ({"question": "q", "answer": "1 + 1 = <<1+1=2>>2\n#### 1,002"}, "1002", 0),
        ({"problem": "q", "answer": "so \\boxed{3}", "level": "Level 4"}, "3", 4),
        (
            {
                "prompt": [{"role": "user", "content": "q"}],
                "reward_model": {"ground_truth": "5"},
                "extra_info": {"level": 3},
            },
            "5",
            3,
        ),
    ],
)
def test_forms_are_told_apart_by_their_content(tmp_path: Path, row: dict[str, Any], answer: str, level: int) -> None:
    file = _write(tmp_path / "some.jsonl", [row])
    assert read_problems(file).problems == [Problem("q", answer, "some", level)]


def test_parquet_is_read_and_problems_without_an_answer_are_counted(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    prompts = [[{"content": f"q{n}", "role": "user"}] for n in range(3)]
    columns = {
        "prompt": prompts,
        "gt_answer": ["1", "", "3"],
        "subject": ["Algebra"] * 3,
        "extra_info": [{"level": 5}] * 3,
    }
    file = tmp_path / "train.parquet"
    parquet.write_table(pyarrow.table(columns), file)
    read = read_problems(file)
    assert read.problems == [Problem("q0", "1", "Algebra", 5), Problem("q2", "3", "Algebra", 5)]
    assert read.without_answer == 1
    assert read.problems[0].task_type == "level 5/algebra"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(EnvConfigError, match=r"train.parquet' cannot be read as parquet; is it cut short"):
        read_problems(file)
    parquet.write_table(pyarrow.table({"text": ["q"], "gt_answer": ["1"]}), file)
    with pytest.raises(EnvConfigError, match=r"lacks columns: it has text, gt_answer. Allowed: .*a column prompt"):
        read_problems(file)
    _write(file, [{"question": "q", "answer": "1"}])
    with pytest.raises(EnvConfigError, match="is no parquet file: it does not begin with PAR1"):
        read_problems(file)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"question": "q", "answer": "1"}, '{"question": "q", "ans'], r"bad.jsonl', line 2: no JSON: "),
        ([{"question": "q", "answer": "1"}, [1, 2]], r"line 2: a list, wanted an object"),
        ([{"question": "q"}], r"line 1: no answer; it has question. Allowed: JSON lines with question or problem"),
        ([{"answer": "1"}], r"line 1: no question; it has answer"),
        ([{"question": " ", "answer": "1"}], r"line 1: no question"),
        ([{"question": "q", "answer": ["1"]}], r"line 1: no answer"),
        ([{"question": "q", "answer": "5 ####"}], r"line 1: nothing follows '####'"),
        ([{"question": "q", "answer": " "}], r"holds no problem with an answer"),
        ([], r"holds no problem with an answer"),
        (["x" * 1_100_000], r"line 1: longer than 1 MB"),
        (['{"question": "q \\ud800", "answer": "1"}'], r"line 1: half of a surrogate pair"),
        (['{"question": "q", "answer": "\\udfff"}'], r"line 1: half of a surrogate pair"),
        (['{"question": "q", "answer": ' + "9" * 5000 + "}"], r"line 1: no JSON: Exceeds the limit"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_line(tmp_path: Path, rows: list[Any], message: str) -> None:
    with pytest.raises(EnvConfigError, match=message):
        read_problems(_write(tmp_path / "bad.jsonl", rows))


@pytest.mark.parametrize("answer", ["\\boxed{\\frac{1}{", "}{", "1" * 2001, "\\frac{1}{2"])
def test_a_problem_whose_answer_nobody_can_give_is_left_out_and_counted(tmp_path: Path, answer: str) -> None:
    good = {"question": "q", "answer": "\\frac{1}{2}"}
    read = read_problems(_write(tmp_path / "a.jsonl", [good, {"question": "q2", "answer": answer}]))
    assert (len(read.problems), read.without_answer) == (1, 1)


def test_more_held_out_problems_than_there_are_is_refused(tmp_path: Path) -> None:
    train = _write(tmp_path / "train.jsonl", [{"question": f"q{i}", "answer": "1"} for i in range(20)])
    test = _write(tmp_path / "test.jsonl", [{"question": "r", "answer": "1"}])
    with pytest.raises(EnvConfigError, match=r"n_test=2 is more than there are: 1 problems that can be held out"):
        make_text_env("arlarena/TIRMath-v0", data=str(train), test_data=str(test), n_test=2)


def test_files_that_the_system_refuses_are_named() -> None:
    for path in ("x" * 5000, "/proc/self/mem", "~no_such_account/x"):
        with pytest.raises(EnvConfigError, match=r"data file '.* cannot be read: [^.]+\.$"):
            read_problems(path)


def test_files_that_are_missing_cut_short_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(EnvConfigError, match=r"none.jsonl' does not exist"):
        read_problems(tmp_path / "none.jsonl")
    with pytest.raises(EnvConfigError, match="is a folder, not a file"):
        read_problems(tmp_path)
    file = tmp_path / "cut.jsonl"
    file.write_text('{"question": "q", "answer": "1"}\n{"question": "q2", "answ')
    with pytest.raises(EnvConfigError, match=r"line 2: no JSON.* cut short: its last line has no end"):
        read_problems(file)
    file.write_bytes(b"\x93NUMPY\x00\xff\xfe\n")
    with pytest.raises(EnvConfigError, match=r"line 1: no JSON"):
        read_problems(file)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("What is $1 + 1$?", "what is 1+1", True),
        ("$\\dfrac{1}{2}$ of \\left( x \\right)", "$\\frac12$ of (x)", True),
        ("Find 1.5 x", "Find 15 x", False),
        ("x + 1", "x - 1", False),
        ("f(x) = 2", "f(x) = 3", False),
    ],
)
def test_problems_are_the_same_by_their_normalised_text(one: str, other: str, same: bool) -> None:
    assert (normalised(one) == normalised(other)) is same


def test_what_is_in_an_evaluation_file_is_not_trained_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train = _write(tmp_path / "train.jsonl", [*_sums(0, 40), {"question": "what is 7+7", "answer": "14"}])
    test = _write(
        tmp_path / "test.jsonl", [{"question": f"  what is {n}+{n} ", "answer": str(2 * n)} for n in range(30, 50)]
    )
    tasks = tasks_of(Spec(data=(train,), test_data=(test,), n_validation=5))
    sizes = {split: len(tasks.task_set.panel.split(split)) for split in SPLITS}
    assert sizes == {"train": 25, "validation": 5, "test": 20}
    assert (tasks.repeated, tasks.in_evaluation) == (1, 10)
    assert "1 that are there twice, 10 that are in an evaluation split" in caplog.text
    seen = [normalised(text) for split in SPLITS for text in _texts(tasks, split)]
    assert len(seen) == len(set(seen))


def test_held_out_shares_of_one_file_depend_on_the_seed_only(tmp_path: Path) -> None:
    file = _write(tmp_path / "all.jsonl", _sums(0, 200))
    tasks = tasks_of(Spec(data=(file,)))
    assert [len(tasks.task_set.panel.split(split)) for split in SPLITS] == [170, 10, 20]
    assert tasks_of(Spec(data=(file,), n_train=50)).task_set.panel.test == tasks.task_set.panel.test
    assert tasks_of(Spec(data=(file,), seed=1)).task_set.panel.test != tasks.task_set.panel.test


def test_nothing_left_to_train_on_is_refused(tmp_path: Path) -> None:
    file = _write(tmp_path / "all.jsonl", _sums(0, 10))
    with pytest.raises(PanelError, match="no problem is left to train on"):
        tasks_of(Spec(data=(file,), test_data=(file,)))
    with pytest.raises(EnvConfigError, match=r"has no problem of kinds=\('algebra',\), levels=None. It has kinds all"):
        tasks_of(Spec(data=(file,), kinds=("algebra",)))


@pytest.mark.parametrize("is_compact", [False, True])
def test_generated_splits_have_no_problem_in_common(is_compact: bool) -> None:
    tasks = tasks_of(Spec(data=(GENERATED,), is_compact=is_compact, kinds=("arithmetic",) if is_compact else None))
    sizes = [len(tasks.task_set.panel.split(split)) for split in SPLITS]
    assert sizes == [4000, 200, 400]
    seen = [normalised(text) for split in SPLITS for text in _texts(tasks, split)]
    assert len(seen) == len(set(seen))
    fewer = tasks_of(
        Spec(data=(GENERATED,), n_train=100, is_compact=is_compact, kinds=("arithmetic",) if is_compact else None)
    )
    assert fewer.task_set.panel.test == tasks.task_set.panel.test, (
        "the held-out tasks do not depend on the training list"
    )


def test_real_files_keep_apart_what_is_in_two_of_them(math_file: Callable[[str], Path]) -> None:
    names = ("math_l3_5_train.parquet", "math500.jsonl", "gsm8k.jsonl", "aime24.jsonl")
    train, *others = (str(math_file(name)) for name in names)
    tasks = tasks_of(Spec(data=(train,), test_data=tuple(others)))
    assert len(tasks.task_set.panel.test) == 500 + 1319 + 30
    assert tasks.without_answer == 2
    keys = {split: {tasks.task_set[i].split_key for i in tasks.task_set.panel.split(split)} for split in SPLITS}
    assert not keys["train"] & keys["test"] and not keys["train"] & keys["validation"]
    assert {problem_of(tasks.task_set[i].content).level for i in tasks.task_set.panel.train} == {3, 4, 5}
