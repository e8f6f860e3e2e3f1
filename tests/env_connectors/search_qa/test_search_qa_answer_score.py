"""Exact match and F1 against a second implementation, written from the definitions without looking at the first."""

import random
import string
import unicodedata

import pytest

from env_connectors.search_qa.answer_score import exact_match, f1, normalise


def _second_normalise(text: str) -> str:
    """Letter by letter: lower case, ASCII punctuation out; then whole words a, an, the out, bounded as \\b bounds them."""
    kept = [sign for sign in text.lower() if sign not in string.punctuation]
    words: list[str] = []
    run = ""
    for sign in [*kept, " "]:  # runs of word signs; every other sign is a run of its own
        if sign.isalnum() or sign == "_":
            run += sign
            continue
        words += [" " if run in ("a", "an", "the") else run, sign]
        run = ""
    return " ".join("".join(words).split())


def _second_f1(answer: str, gold: str) -> float:
    one, other = _second_normalise(answer), _second_normalise(gold)
    for closed in ("yes", "no", "noanswer"):
        if closed in (one, other) and one != other:
            return 0.0
    ours, rest = one.split(), other.split()
    if not ours or not rest:
        return 0.0
    hits = 0
    for word in ours:
        if word in rest:
            rest.remove(word)
            hits += 1
    return 0.0 if hits == 0 else 2 * hits / (len(ours) + len(other.split()))


_WORDS = (
    "the", "a", "an", "The", "yes", "no", "noanswer", "New", "york", "York,", "U.S.", "the-end", "theory", "a.", "42", "1,000",
    "O'Neil", "\u00e9t\u00e9", "\u201cquoted\u201d", "\t", "\n", "--", "Th\u00e9", "'the'", "$5", "A+", "\u4e2d\u6587",
    "an\u00a0apple",
)  # fmt: skip


def _draw(rng: random.Random) -> str:
    return rng.choice([" ", "  ", "-", ""]).join(rng.choices(_WORDS, k=rng.randint(0, 5)))


def test_both_implementations_agree_on_generated_pairs() -> None:
    rng, positive, equal = random.Random(7), 0, 0
    for _ in range(3000):
        answer, golds = _draw(rng), [_draw(rng) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.3:
            golds.append(f"The {answer.upper()}!")
        assert all(unicodedata.category(sign)[0] != "M" for sign in answer), "the second one does not know marks"
        assert normalise(answer) == _second_normalise(answer), answer
        assert exact_match(answer, golds) == float(
            any(_second_normalise(answer) == _second_normalise(gold) for gold in golds)
        )
        assert f1(answer, golds) == pytest.approx(max(_second_f1(answer, gold) for gold in golds), abs=1e-12)
        positive += f1(answer, golds) > 0
        equal += exact_match(answer, golds) == 1
    assert positive > 500 and equal > 300


@pytest.mark.parametrize(
    ("answer", "golds", "em", "score"),
    [
        ("The Eiffel Tower", ["eiffel tower."], 1.0, 1.0),
        ("Eiffel Tower in Paris", ["the Eiffel Tower"], 0.0, 2 / 3),
        ("yes", ["Yes, it is"], 0.0, 0.0),
        ("no", ["No."], 1.0, 1.0),
        ("no way", ["no"], 0.0, 0.0),
        ("b b c", ["b"], 0.0, 0.5),
        ("", ["x"], 0.0, 0.0),
        ("the", ["a"], 1.0, 0.0),
        ("York", ["Rome", "New York"], 0.0, 2 / 3),
        ("x", [], 0.0, 0.0),
    ],
)
def test_scores_by_hand(answer: str, golds: list[str], em: float, score: float) -> None:
    assert (exact_match(answer, golds), f1(answer, golds)) == (em, pytest.approx(score))
