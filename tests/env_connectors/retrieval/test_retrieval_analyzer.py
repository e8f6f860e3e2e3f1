"""The analyser: words by Unicode's rules, Porter stems, and the stop words of Lucene."""
# ruff: noqa: RUF001  signs that look like others are what these tests are about

import random
import time

import pytest

from env_connectors.retrieval import analyze
from env_connectors.retrieval.porter import stem
from env_connectors.retrieval.unicode_words import _ASCII_WORD, _CLASSES, _LONE_JOINER, _WORD, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("14k_gold ring, size:12.5", ["14k_gold", "ring", "size", "12.5"]),
        ("wi-fi t-shirt", ["wi", "fi", "t", "shirt"]),
        ("men's l'eau color:red 1,000 3.5mm U.S.A. a.5", ["men's", "l'eau", "color:red", "1,000", "3.5mm", "U.S.A", "a", "5"]),
        ("___ _a _ 10;20 a;b", ["_a", "10;20", "a", "b"]),
        ("décor 5×7 ½ ² 3²", ["décor", "5", "7", "3"]),
        ("cafe\u0301\u2019s na\u00adme", ["cafe\u0301\u2019s", "na\u00adme"]),
        ("❤️❤★™ ✿●", ["❤️", "❤", "★", "™"]),
        ("\U0001f469\u200d\U0001f33e \U0001f44d\U0001f3fd", ["\U0001f469\u200d\U0001f33e", "\U0001f44d\U0001f3fd"]),
        ("\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7", ["\U0001f1e9\U0001f1ea", "\U0001f1eb\U0001f1f7"]),
        ("日本のカメラ_カ", ["日", "本", "の", "カメラ_カ"]),
        ("กางเกง 2 ตัว", ["กางเกง", "2", "ตัว"]),
        ("note：please １２ צה\"ל ג'", ["note：please", "１２", "צה\"ל", "ג'"]),
    ],
)  # fmt: skip
def test_words_of_a_text(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_long_words_are_cut() -> None:
    assert list(map(len, words("a" * 600))) == [255, 255, 90]


def test_both_ways_find_the_same_words_in_ascii() -> None:
    rng = random.Random(0)
    for _ in range(2000):
        text = "".join(rng.choices("ab19_:.,;' \"-", k=rng.randint(0, 20)))
        row = _LONE_JOINER.sub("X", text.translate(_CLASSES))
        slow = [text[match.start() : match.end()] for match in _WORD.finditer(row)]
        assert slow == [word for word in _ASCII_WORD.findall(text) if word.strip("_")], text


@pytest.mark.parametrize(
    "sign", ["a", "_", ".", "a.", "1,", "_a", "é", "é_", "❤", "\u200d", "❤\u200d", "\u0301", "カ_", "'\""]
)
def test_time_is_linear_in_the_length(sign: str) -> None:
    began = time.process_time()
    words(sign * 50_000)
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize(
    ("word", "expected"),
    [  # the examples of Porter's paper, and the two rules that its author added
        ("caresses", "caress"), ("ponies", "poni"), ("cats", "cat"), ("feed", "feed"), ("agreed", "agre"),
        ("plastered", "plaster"), ("bled", "bled"), ("motoring", "motor"), ("sing", "sing"), ("conflated", "conflat"),
        ("hopping", "hop"), ("falling", "fall"), ("filing", "file"), ("happy", "happi"), ("sky", "sky"),
        ("relational", "relat"), ("conditional", "condit"), ("vietnamization", "vietnam"), ("operator", "oper"),
        ("triplicate", "triplic"), ("hopeful", "hope"), ("goodness", "good"), ("revival", "reviv"), ("adoption", "adopt"),
        ("controll", "control"), ("roll", "roll"), ("rate", "rate"), ("cease", "ceas"), ("by", "by"), ("is", "is"),
        ("possibly", "possibl"), ("incredibly", "incred"), ("apology", "apolog"),
    ],
)  # fmt: skip
def test_stem(word: str, expected: str) -> None:
    assert stem(word) == expected


def test_terms_of_a_text() -> None:
    assert analyze("It's the MEN'S & Women’s running-shoes with a Box") == ["men", "women", "run", "shoe", "box"]
