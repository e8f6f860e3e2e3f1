"""What is read from a reply: programs, answers, void turns, in both forms, whatever a model writes."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env_connectors.tir_math.replies import FENCE, TAGS, Deed, last_boxed, read_fence, read_tags, style_of


def _did(deed: Deed) -> tuple[str | None, str | None]:
    return deed.code, deed.answer


@pytest.mark.parametrize(
    ("text", "code", "answer"),
    [
        ("Let us see.\n```py\nprint(1)\n```\n", "print(1)\n", None),
        ("```python\nX = 'Ab'\n\nprint(X)\n```", "X = 'Ab'\n\nprint(X)\n", None),
        ("first ```py\na\n```\nthen\n```py\nb\n```\n", "a\n", None),
        ("```\nprint(1)\n```\n", "print(1)\n", None),
        ("```json\n{}\n```\nthen ```py\nb\n```", "b\n", None),
        ("```py\n```\n", "", None),
        ("```py\ns = '```'\nprint(s)\n```\n", "s = '```'\nprint(s)\n", None),
        ("It is \\boxed{\\frac{1}{2}}.", None, "\\frac{1}{2}"),
        ("Not \\boxed{3} but \\boxed{ {1, 2} }", None, "{1, 2}"),
        ("\\boxed{\\{1, 2\\}}", None, "\\{1, 2\\}"),
        ("\\boxed{7}\n```py\nprint(8)\n```\n", "print(8)\n", "7"),
        ("```py\nprint(8)\n```\nso \\boxed{9}", "print(8)\n", None),
        ("now a plain one\n```\n", "", None),
        ("```py\nprint(1)", None, None),
        ("\\boxed{\\frac{1}{2}", None, None),
        ("\\boxed {7}", None, None),
        ("I think it is 7.", None, None),
        ("", None, None),
    ],
)
def test_fence(text: str, code: str | None, answer: str | None) -> None:
    assert _did(read_fence(text)) == (code, answer)


@pytest.mark.parametrize(
    ("text", "code", "answer"),
    [
        ("Hm. <code>\nprint(A)\n</code>", "print(A)", None),
        ("<code>```python\nprint(1)\n```</code>", "print(1)", None),
        ("<code>  if x:\n    y\n</code>", "  if x:\n    y", None),
        ("<answer> 6 </answer>", None, "6"),
        ("<answer>so \\boxed{6}</answer>", None, "6"),
        ("<answer>1</answer><code>2</code>", None, "1"),
        ("<code>2</code><answer>1</answer>", "2", None),
        ("<code>never closed <answer>1</answer>", None, "1"),
        ("<code> </code>", "", None),
        ("</code><code>x", None, None),
        ("<Code>1</Code>", None, None),
        ("6", None, None),
    ],
)
def test_tags(text: str, code: str | None, answer: str | None) -> None:
    assert _did(read_tags(text)) == (code, answer)


@pytest.mark.parametrize("name", ["fence", "tags"])
@pytest.mark.parametrize("is_compact", [False, True])
@pytest.mark.parametrize("thought", ["", "Let X be 2.", "two\nlines"])
def test_a_rendered_reply_is_read_back_and_ends_where_generation_stops(
    name: str, is_compact: bool, thought: str
) -> None:
    style = style_of(name, compact=is_compact)
    for action in (style.call.format("for i in range(3):\n    print('Ab', i)"), style.answer.format("\\frac{1}{2}")):
        reply = style.form.render(thought, action)
        parsed = style.form.parse(reply)
        assert (parsed.action, parsed.thought, parsed.format_valid) == (action, thought, True)
        cut = min((reply.find(text) + len(text) for text in style.form.stop if text in reply), default=len(reply))
        assert cut == len(reply), "a stop text inside the reply would cut it"
        assert style.read(parsed.action) == style.read(action)


@pytest.mark.parametrize(
    "text",
    [
        "```py\nprint(1)\n```\nand more",
        "\\boxed{1}\n```py\nprint(1)\n```\n",
        "```py\n```\n",
        "no deed",
        "\\boxed{1} or maybe 2",
    ],
)
def test_what_is_played_but_not_well_formed(text: str) -> None:
    assert not FENCE.parse(text).format_valid


def test_an_opening_fence_with_a_language_is_no_stop() -> None:
    for opening in ("Let us see.\n```py\n", "Let us see.\n```python\n"):
        assert not any(stop in opening for stop in FENCE.stop)


def test_boxes_are_balanced() -> None:
    assert last_boxed("\\boxed{a\\}b}") == ("a\\}b", 0, 12)
    assert last_boxed("\\boxed{1} \\boxed{") == ("1", 0, 9)


@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * 20_000,
        "{" * 100_000,
        "<code>" * 20_000,
        "```py\n" * 20_000,
        "```\n" * 25_000,
        "<answer>" * 9_000 + "</code>",
        "\\boxed{" + "{}" * 50_000,
        "`" * 100_000,
        "\u00e9\U0001f600" * 50_000,
        "\n" * 100_000,
        "<code>" * 9_000 + "</code>" * 9_000,
    ],
)
def test_100_kb_of_nonsense_is_read_fast(text: str) -> None:
    started = time.process_time()
    for form in (FENCE, TAGS):
        form.parse(text)
    assert time.process_time() - started < 1.0


@given(st.text(alphabet=st.sampled_from(list("`py\n <>/codeanswer{}\\bxd1\ud800\u00e9")), max_size=200))
def test_no_text_makes_the_reader_raise(text: str) -> None:
    for form, read in ((FENCE, read_fence), (TAGS, read_tags)):
        parsed = form.parse(text)
        assert parsed.action in text
        assert read(parsed.action) == read(parsed.action)
