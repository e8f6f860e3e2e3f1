"""The reply's form: what is valid, what is still played, and that both directions agree."""

import time

import pytest

from env_connectors.search_qa.reply import COMPACT_REPLY, SEARCH_REPLY, TAGS, Request, parse_reply, read_action

_BIG = 100_000


@pytest.mark.parametrize(
    ("text", "action", "thought"),
    [
        ("<think>Who?</think><search>Ada Lund</search>", "<search>Ada Lund</search>", "Who?"),
        (" <think>\nx < y\n</think>\n\n<answer> In Rome </answer>\n", "<answer>In Rome</answer>", "x < y"),
        ("<think></think><search>\u4e2d\u6587</search>", "<search>\u4e2d\u6587</search>", ""),
        ("<think>a</think><search>a <b> [c]\nd</search>", "<search>a <b> [c]\nd</search>", "a"),
    ],
)
def test_valid_replies(text: str, action: str, thought: str) -> None:
    parsed = parse_reply(text)
    assert (parsed.action, parsed.thought, parsed.format_valid) == (action, thought, True)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<search>A</search>", "<search>A</search>"),
        ("<think>x</think><search>A</search><answer>B</answer>", "<search>A</search>"),
        ("<think>x</think><answer>B</answer><search>A</search>", "<answer>B</answer>"),
        ("<think>x</think><answer><search>A</search></answer>", "<answer><search>A</search></answer>"),
        ("<think>x</think><search>A</answer></search>", "<search>A</answer></search>"),
        ("<think>x</think>so <search>A</search>", "<search>A</search>"),
        ("<think>x</think><search>A</search> done", "<search>A</search>"),
        ("<think>x</think><think>y</think><search>A</search>", "<search>A</search>"),
        ("<think>x<search>A</search></think>", "<search>A</search>"),
        ("<search>A</search><think>x</think>", "<search>A</search>"),
        ("</think><think><search>A</search>", "<search>A</search>"),
        ("<think>x</think><search> </search>", "<search></search>"),
        ("<think>x</think><information>A</information><search>A</search>", "<search>A</search>"),
        ("<answer>open <search>A</search>", "<search>A</search>"),
        ("<Think>x</Think><Search>A</Search>", "nk>x</Think><Search>A</Search>"),
        ("<think>x</think><search>A", "<think>x</think><search>A"),
        ("", ""),
    ],
)
def test_malformed_replies_are_flagged_and_still_read(text: str, action: str) -> None:
    parsed = parse_reply(text)
    assert (parsed.action, parsed.format_valid) == (action, False)


def test_without_a_pair_the_end_is_the_action_and_means_nothing() -> None:
    action = parse_reply("<think>x</think>" + "Word " * 20).action
    assert len(action) <= 30 and action.startswith("Word") and read_action(action) is None


@pytest.mark.parametrize("form", [SEARCH_REPLY, COMPACT_REPLY])
@pytest.mark.parametrize("action", ["<search>Ada LUND</search>", "<answer>in Rome</answer>"])
def test_what_is_rendered_is_read_back_and_ends_with_a_stop_text(form: object, action: str) -> None:
    reply = form.render("who was it", action)  # type: ignore[attr-defined]
    parsed = form.parse(reply)  # type: ignore[attr-defined]
    assert (parsed.action, parsed.thought, parsed.format_valid) == (action, "who was it", True)
    assert reply.endswith(SEARCH_REPLY.stop)


def test_the_compact_form_keeps_a_blank_before_every_word() -> None:
    assert (
        COMPACT_REPLY.render("need boss", "<search>boss of x</search>")
        == "<think> need boss</think><search> boss of x</search>"
    )


def test_actions_are_read_as_the_first_pair_that_closes() -> None:
    assert read_action("<search><answer> x </answer>") == Request("answer", "x")
    assert read_action("<answer>1</answer><search>2</search>") == Request("answer", "1")
    assert read_action("no pair") is None and read_action("</search><search>") is None


@pytest.mark.parametrize("unit", [*TAGS, "<", "<think", "<search><answer>", "<think></think>", "</search><search>"])
def test_time_is_linear_in_the_length(unit: str) -> None:
    began = time.process_time()
    parse_reply(unit * (_BIG // len(unit)))
    assert time.process_time() - began < 1.0
