"""The page of recorded episodes: its data survives, nothing in it becomes markup, and what is missing is told."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from browser import Browser

from tune_experiments.cli import main
from tune_experiments.view import view

EVIL = '<img src=x onerror="document.title=1"></script><script>document.title=2</script><!--\u2028\u2029\ud800\x00&amp;'


def _record(iteration: int, member: int = 0, text: str = "seen") -> dict[str, Any]:
    turn = {"observation": text, "prompt": text, "reply": text, "action": text, "thought": text, "reward": 1.0}
    named = {name: text for name in ("env", "method", "task_id", "task_type", "stop_reason", "error", "use")}
    return {"iteration": iteration, "group": 0, "member": member, "success": member == 0, "turns": [turn], **named}


def _write(trial: Path, iteration: int, lines: list[str]) -> None:
    folder = trial / "trajectories"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"iteration_{iteration:06d}.jsonl").write_text("".join(f"{line}\n" for line in lines))


class _Page(HTMLParser):
    """Collects what a browser would make of the page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script" and self.get_starttag_text() and data.strip():
            self.scripts.append(data)

    @property
    def records(self) -> list[dict[str, Any]]:
        return json.loads(self.scripts[0])


def test_page_holds_the_records_in_order_and_its_own_script_only(tmp_path: Path) -> None:
    for iteration in (10, 9, 1):
        _write(tmp_path / "trials" / "a", iteration, [json.dumps(_record(iteration, m)) for m in (0, 1)])
    viewed = view(tmp_path)
    assert (viewed.page, viewed.num_shown, viewed.notes) == (tmp_path / "trajectories.html", 6, [])
    page = _Page(viewed.page.read_text())
    assert [(r["iteration"], r["member"]) for r in page.records] == [(1, 0), (1, 1), (9, 0), (9, 1), (10, 0), (10, 1)]
    assert {r["trial"] for r in page.records} == {"trials/a"}
    policy = next(a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv"))
    digest = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def test_hostile_texts_stay_data(tmp_path: Path) -> None:
    _write(tmp_path, 1, [json.dumps(_record(1, text="seen"))])
    harmless = _Page(view(tmp_path).page.read_text())
    hostile = _record(1, text=EVIL + "x" * 100_000)
    _write(tmp_path, 1, [json.dumps(hostile)])
    html = view(tmp_path).page.read_text()
    page = _Page(html)
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in harmless.tags]  # not one element more
    assert not any(name.startswith("on") or name in ("src", "href") for _, a in page.tags for name in a)
    assert page.records == [{**hostile, "trial": "."}]
    assert re.findall(r"[<>&]|[^\x20-\x7e]", page.scripts[0]) == []


def test_script_of_the_page_never_makes_markup_of_text() -> None:
    script = (Path(__file__).parents[2] / "tune_experiments" / "data" / "view.js").read_text()
    forbidden = r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|setTimeout|fetch|import\b"
    assert "textContent" in script and re.findall(forbidden, script) == []
    assert "</script" not in script.lower() and "<!--" not in script
    ids = set(re.findall(r'"([a-z-]+)"', script.split(".map((id)")[0].split("Object.fromEntries(")[1])) | {"records"}
    source = (Path(__file__).parents[2] / "tune_experiments" / "view_page.py").read_text()
    assert ids <= set(re.findall(r'id="([a-z-]+)"', source))


def test_only_the_newest_episodes_that_fit_are_shown_and_the_page_says_so(tmp_path: Path) -> None:
    lines = [json.dumps(_record(iteration, text="x" * 500)) for iteration in range(1, 6)]
    for iteration, line in enumerate(lines, start=1):
        _write(tmp_path, iteration, [line])
    viewed = view(tmp_path, most_chars=2 * len(lines[0]) + 10)
    assert viewed.num_shown == 2
    assert viewed.notes[0].startswith("3 older episodes are left out: the newest 2 fill ")
    html = viewed.page.read_text()
    assert [r["iteration"] for r in _Page(html).records] == [4, 5] and viewed.notes[0] in html


def test_lines_that_are_no_records_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = json.dumps(_record(1))
    _write(tmp_path, 1, [good, good[:50], "[]", '{"turns": [3]}', good])
    assert main(["view", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0
    output = capsys.readouterr()
    assert output.out == f"page:    {tmp_path / 'page.html'} (2 episodes)\n"
    assert "note:    3 could not be read: " in output.err and "iteration_000001.jsonl, line 4" in output.err


@pytest.mark.parametrize(
    ("folder", "out", "message"),
    [
        ("nowhere", None, "is not a directory. Give the folder of a run."),
        ("empty", None, "A run with reporting.record_trajectories=8 writes 8 of each iteration."),
        ("run", "missing/page.html", "cannot be written to"),
        ("run", "p" * 300, "cannot be written to"),
        ("run", "pipe", "cannot be written to"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    folder: str, out: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    _write(tmp_path / "run", 1, [json.dumps(_record(1))])
    arguments = ["view", str(tmp_path / folder), *(["--out", str(tmp_path / out)] if out else [])]
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("configuration error: ") and message in line
    assert not (tmp_path / "pipe").is_file()


def test_numbers_that_a_browser_refuses_are_none(tmp_path: Path) -> None:
    turn = '{"reward": NaN, "advantage": -Infinity, "ratio_max": 1e999, "ratio_min": 0.5}'
    _write(tmp_path, 1, ['{"iteration": 1, "turns": [' + turn + "]}"])
    (record,) = _Page(view(tmp_path).page.read_text()).records
    assert record["turns"] == [{"reward": None, "advantage": None, "ratio_max": None, "ratio_min": 0.5}]


def test_lines_of_any_kind_do_not_hide_the_others(tmp_path: Path) -> None:
    seen = json.dumps(_record(1, text="a\u2028b\x85c"), ensure_ascii=False)
    _write(tmp_path, 1, ["", seen, '{"turns": [], "deep": ' + "[" * 100_000, ""])
    viewed = view(tmp_path)
    (record,) = _Page(viewed.page.read_text()).records
    assert record["turns"][0]["action"] == "a\u2028b\x85c"
    assert viewed.notes == [f"1 could not be read: {tmp_path / 'trajectories' / 'iteration_000001.jsonl'}, line 3."]


@pytest.mark.skipif("ARLARENA_CHROMIUM" not in os.environ, reason="ARLARENA_CHROMIUM does not name a Chromium")
def test_browser_runs_nothing_that_was_recorded_and_keys_move_through_it(tmp_path: Path) -> None:
    records = [_record(iteration, text=EVIL + "x" * 100_000) for iteration in (1, 2)]
    for record in records:
        record["turns"] *= 3
        _write(tmp_path, record["iteration"], [json.dumps(record)])
    page = view(tmp_path).page
    with Browser(os.environ["ARLARENA_CHROMIUM"], page.as_uri(), tmp_path / "profile") as browser:
        where = "document.querySelector('[aria-current=true] .where').textContent.split(' ')[0] + ' ' + "
        where += "document.querySelector('#turn h3').textContent.split(' ')[1]"
        seen = [browser.value(where)]
        for key in ("ArrowRight", "End", "ArrowRight", "ArrowLeft", "ArrowDown", "ArrowDown", "ArrowUp"):
            browser.press(key)
            seen.append(browser.value(where))
        assert seen == ["1 1", "1 2", "1 3", "1 3", "1 2", "2 1", "2 1", "1 1"]
        assert browser.value("document.title") == tmp_path.name  # the recorded scripts would have changed it
        assert browser.value("[document.images.length, document.scripts.length].join()") == "0,2"
        assert browser.value("document.querySelector('#turn pre').textContent").endswith("x" * 100_000)
