"""Data of the user by path: read in all its forms; what is missing, cut short, swapped or malformed is named."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from env_connectors import EnvConfigError, make_text_env
from env_connectors.check_env import check_text_env
from env_connectors.search_qa.documents import Document
from env_connectors.search_qa.files import contents_of, document_of_contents, read_corpus, read_questions

_ID = "arlarena/SearchQA-v0"
_SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "search"
_CORPUS = [{"title": f"Town {n}", "text": f"Town {n} has the mayor Person {n}."} for n in range(12)]
_QUESTIONS = [
    {"question": f"Who is the mayor of Town {n}?", "answer": [f"Person {n}", f"P. {n}"], "type": "bridge"}
    for n in range(12)
]


def _write(path: Path, entries: Any, form: str) -> Path:
    text = json.dumps(entries, indent=1) if form == "list" else "\n".join(map(json.dumps, entries)) + "\n\n"
    raw = text.encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return {
        "questions_file": _write(tmp_path / "q.jsonl", _QUESTIONS, "lines"),
        "corpus_file": _write(tmp_path / "c.json.gz", _CORPUS, "list"),
    }


@pytest.mark.parametrize("form", ["list", "lines"])
@pytest.mark.parametrize("name", ["c.json", "c.jsonl.gz"])
def test_corpora_are_read_in_all_forms(tmp_path: Path, form: str, name: str) -> None:
    plain = read_corpus(_write(tmp_path / name, _CORPUS, form))
    search_r1 = [{"id": n, "contents": f'"{entry["title"]}"\n{entry["text"]}'} for n, entry in enumerate(_CORPUS)]
    other = read_corpus(_write(tmp_path / name, search_r1, form))
    assert plain.entries == other.entries and plain.entries[3] == Document("Town 3", "Town 3 has the mayor Person 3.")
    assert plain.mark != other.mark and plain.skipped == 0


def test_contents_go_both_ways() -> None:
    for document in (Document("A", "b c"), Document('Say "hi"', "x\ny"), Document("", ""), Document('"', "t")):
        assert document_of_contents(contents_of(document)) == document


@pytest.mark.parametrize(
    ("entry", "answers", "supports"),
    [
        ({"answer": "x"}, ("x",), ()),
        ({"golden_answers": [" x ", "y", "x"]}, ("x", "y"), ()),
        ({"answers": ["x"], "supports": ["T", "U", "T"]}, ("x",), ("T", "U")),
        ({"answer": "x", "supporting_facts": [["T", 0], ["T", 1], ["U", 0]]}, ("x",), ("T", "U")),
        ({"answer": "x", "supporting_facts": {"title": ["T"], "sent_id": [0]}}, ("x",), ("T",)),
    ],
)
def test_questions_are_read_in_all_forms(
    tmp_path: Path, entry: dict[str, Any], answers: tuple[str, ...], supports: tuple[str, ...]
) -> None:
    (read,) = read_questions(_write(tmp_path / "q.json", [{"question": " Who? ", **entry}], "list")).entries
    assert (read.text, read.answers, read.supports, read.number) == ("Who?", answers, supports, 1)


def test_an_environment_of_files_keeps_the_contract(files: dict[str, Path]) -> None:
    check_text_env(_ID, episodes=2, n_validation=2, n_test=2, **{k: str(v) for k, v in files.items()})
    env = make_text_env(_ID, n_validation=2, n_test=2, **files)
    assert (env.data, env.skipped) == ("files", {"questions_file": 0, "corpus_file": 0})
    env.reset(options={"task_id": "000005"})
    observation, *_, info = env.step("<search>mayor of Town 4</search>")
    assert "Doc 1(Title: Town 4) Town 4 has the mayor Person 4." in observation and info["task_type"] == "bridge"
    *_, info = env.step("<answer>p 4</answer>")
    assert info["success"] and "support_recall" not in info["episode_metrics"]


def test_supports_of_files_are_counted_and_bind_questions_together(files: dict[str, Path], tmp_path: Path) -> None:
    asked = [{**q, "supports": [f"Town {n // 2}"]} for n, q in enumerate(_QUESTIONS)]
    files["questions_file"] = _write(
        tmp_path / "s.jsonl", [*asked, {**asked[0], "question": "WHO is mayor of Town 0"}], "lines"
    )
    env = make_text_env(_ID, n_validation=4, n_test=4, **files)
    panel = env.tasks()
    keys = [{env.task(i).content["supports"][0] for i in panel.split(s)} for s in ("train", "validation", "test")]
    assert not keys[0] & keys[1] and not keys[1] & keys[2] and not keys[0] & keys[2]
    env.reset(options={"task_id": "000001"})
    *_, info = env.step("<search>Town 0</search>")
    assert info["episode_metrics"]["support_recall"] == 1.0


@pytest.mark.parametrize("key", ["questions_file", "corpus_file"])
def test_a_missing_file_is_named(files: dict[str, Path], key: str) -> None:
    with pytest.raises(EnvConfigError, match=rf"{key}='/nowhere/x\.json' is not there\. Wanted: "):
        make_text_env(_ID, **{**files, key: Path("/nowhere/x.json")})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x" * 5000, r"corpus_file='x+\.\.\. cannot be read: File name too long"),
        ("/proc/self/mem", r"corpus_file='/proc/self/mem' cannot be read: Input"),
    ],
)
def test_a_file_that_the_system_refuses_is_named(files: dict[str, Path], name: str, message: str) -> None:
    with pytest.raises(EnvConfigError, match=message):
        make_text_env(_ID, **{**files, "corpus_file": name})


def test_swapped_files_are_named(files: dict[str, Path]) -> None:
    for key, other in (("questions_file", "corpus_file"), ("corpus_file", "questions_file")):
        with pytest.raises(EnvConfigError, match=rf"{key}='.*' is not of its kind: .* Was it swapped with {other}\?"):
            make_text_env(_ID, **{**files, key: files[other]}, skip_malformed=True)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.98])
@pytest.mark.parametrize(("form", "suffix"), [("list", ".json"), ("list", ".gz"), ("lines", ".gz")])
@pytest.mark.parametrize("key", ["questions_file", "corpus_file"])
def test_a_file_cut_short_is_named(
    files: dict[str, Path], tmp_path: Path, key: str, form: str, suffix: str, share: float
) -> None:
    whole = _write(tmp_path / f"x{suffix}", _QUESTIONS if key == "questions_file" else _CORPUS, form)
    whole.write_bytes(whole.read_bytes()[: int(whole.stat().st_size * share)])
    with pytest.raises(EnvConfigError, match=rf"{key}='.*x\{suffix}'.*(breaks off|holds nothing|no text|no JSON)"):
        make_text_env(_ID, **{**files, key: whole}, skip_malformed=True)


_BAD = (
    "{", "[1]", "7", '"text"', "{}", '{"question": "x"}', '{"question": 3, "answer": "x"}', '{"question": " ", "answer": "x"}',
    '{"question": "x", "answer": []}', '{"question": "x", "answer": [1]}', '{"question": "x", "answer": ""}',
    '{"question": "x", "answer": "a</answer>"}', '{"question": "x", "answer": "a", "supports": 3}',
    '{"question": "x", "answer": "a", "supporting_facts": [[1, 2]]}', '{"question": "' + "x" * 5000 + '", "answer": "a"}',
    "[" * 100_000, '{"question": "x \\ud800", "answer": "a"}', '{"question": "x", "answer": ["a", "\\udfff"]}',
    '{"question": "x", "answer": "a", "n": ' + "9" * 5000 + "}",
)  # fmt: skip


@pytest.mark.parametrize("line", _BAD)
def test_a_malformed_line_is_named_or_skipped_and_counted(files: dict[str, Path], line: str) -> None:
    lines = files["questions_file"].read_text().splitlines()
    files["questions_file"].write_text("\n".join([*lines[:3], line, *lines[3:]]))
    with pytest.raises(
        EnvConfigError, match=r"questions_file='.*q\.jsonl', line 4: .* Remedy: mend it, or skip_malformed"
    ):
        make_text_env(_ID, **files, n_validation=1, n_test=1)
    env = make_text_env(_ID, **files, n_validation=1, n_test=1, skip_malformed=True)
    assert env.skipped == {"questions_file": 1, "corpus_file": 0} and "000005" in env.tasks().train + env.tasks().test


def test_an_entry_of_a_list_is_named(files: dict[str, Path], tmp_path: Path) -> None:
    bad = _write(tmp_path / "b.json", [*_CORPUS[:2], {"title": "x"}], "list")
    with pytest.raises(
        EnvConfigError, match=r"corpus_file='.*b\.json', entry 3: title='x' and text=None must be texts"
    ):
        read_corpus(bad)
    assert read_corpus(bad, skip_malformed=True).skipped == 1
    bad.write_bytes(b'{"title": "a", "text": "b"}\n\xff\xfe')
    with pytest.raises(EnvConfigError, match="line 2: it is no text in UTF-8"):
        read_corpus(bad)


@pytest.fixture
def real_file() -> Callable[[str], Path]:
    """Return the path of a real data file; the test is skipped where there is none."""

    def find(name: str) -> Path:
        folder = Path(os.environ.get("ARLARENA_SEARCH_DATA", _SHARED))
        if not (folder / name).is_file():
            pytest.skip(
                f"no real data: {name} is not in {folder}; set ARLARENA_SEARCH_DATA to the folder that holds it"
            )
        return folder / name

    return find


@pytest.mark.parametrize("name", ["2wiki.jsonl", "hotpotqa.jsonl"])
def test_real_questions_and_passages_are_read(real_file: Callable[[str], Path], name: str) -> None:
    env = make_text_env(_ID, questions_file=real_file(name), corpus_file=real_file("2wiki_corpus.json.gz"))
    panel = env.tasks()
    assert (len(panel.train), len(panel.validation), len(panel.test)) == (160, 20, 20)
    for task_id in panel.test:
        env.reset(options={"task_id": task_id})
        for action in env.gold_actions(task_id):
            *_, info = env.step(action)
        assert info["success"]
