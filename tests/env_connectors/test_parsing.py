"""Reply parsing: the strict format rule, the fallbacks, and reading back what was written."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from env_connectors import parse_reply, render_reply

_REFCASES = Path(__file__).parent.parent / "refcases" / "cases.json"


def _format_table() -> list[dict]:
    cases = json.loads(_REFCASES.read_text())["cases"]
    return next(case for case in cases if case["id"] == "format/strict")["expected"]["table"]


def test_format_table_of_refcases_has_all_its_rows() -> None:
    assert len(_format_table()) == 16


@pytest.mark.parametrize("row", _format_table(), ids=lambda row: repr(row["text"])[:40])
def test_parse_reply_on_reference_text_gives_reference_flag_and_action(row: dict) -> None:
    parsed = parse_reply(row["text"])
    assert parsed.format_valid == bool(row["valid"])
    if row["valid"]:
        assert parsed.action == row["action"]


@pytest.mark.parametrize(
    ("text", "action", "thought"),
    [
        ("<think>Go</think> text <action> UP </action>", "up", "Go"),
        ("<action>Left</action><action>right</action>", "left", ""),
        ("<ACTION>Left</Action>", "left", ""),
        ("<think>use <action>x</action></think><action>y</action>", "x", "use <action>x</action>"),
        ("<action>never closed", "<action>never closed", ""),
        ("</action> first <action>b</action>", "b", ""),
        ("I think that I should now walk up  ", "nk that i should now walk up", ""),
        ("<think>\u6211</think><action>up</action>", "up", "\u6211"),
        ("<think>\U00020000</think><action>up</action>", "up", "\U00020000"),
        ("< think >a</think><think>a</think><action>up</action>", "up", "a"),
        ("<think>a< / think ></think><action>up</action>", "up", "a< / think >"),
        ("", "", ""),
        ("   \n", "", ""),
    ],
)
def test_parse_reply_on_malformed_text_still_gives_an_action(text: str, action: str, thought: str) -> None:
    parsed = parse_reply(text)
    assert (parsed.action, parsed.thought, parsed.format_valid) == (action, thought, False)


@pytest.mark.parametrize("text", ["<think>日</think><action>b</action>", "<think>a</think><action>漢</action>"])
def test_parse_reply_with_ideographs_is_invalid(text: str) -> None:
    assert not parse_reply(text).format_valid


@pytest.mark.parametrize("letters", ["é", "Привет", "かな", "한글", "→ √ 📦"])
def test_parse_reply_with_other_scripts_stays_valid(letters: str) -> None:
    parsed = parse_reply(render_reply(letters, letters))
    assert (parsed.format_valid, parsed.action, parsed.thought) == (True, letters.lower(), letters)


def test_render_reply_gives_the_exact_text() -> None:
    assert render_reply("push up from 4,3", "up") == "<think>push up from 4,3</think><action>up</action>"


_PIECES = [
    "<think>",
    "</think>",
    "<action>",
    "</action>",
    "<",
    ">",
    "/",
    " ",
    "a",
    "\n",
    "\u6211",
    "\u0130",
    "< think >",
]


@settings(deadline=None)
@given(st.lists(st.sampled_from(_PIECES), max_size=30).map("".join) | st.text(max_size=60))
def test_parse_reply_on_any_text_gives_clean_action(text: str) -> None:
    parsed = parse_reply(text)
    assert parsed.action == parsed.action.strip()
    assert parsed == parse_reply(text)


@settings(deadline=None)
@given(st.text("abc ,0", max_size=20), st.text("updown ,0", max_size=20))
def test_parse_reply_reads_back_what_render_reply_wrote(thought: str, action: str) -> None:
    parsed = parse_reply(render_reply(thought, action))
    assert (parsed.format_valid, parsed.thought, parsed.action) == (True, thought.strip(), action.strip())


@pytest.mark.parametrize("piece", ["<think>", "<action>", "</action>", "< ", "<think></think>", " "])
def test_parse_reply_on_long_hostile_text_is_fast(piece: str) -> None:
    started = time.process_time()
    parse_reply(piece * (200_000 // len(piece)))
    assert time.process_time() - started < 1.0
