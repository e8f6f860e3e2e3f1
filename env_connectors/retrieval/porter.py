"""Porter's stemmer as Lucene has it: the algorithm of 1980 with its author's later changes (bli -> ble, logi -> log).

Words of one or two letters stay as they are. Every sign but a, e, i, o, u and a y after a consonant is a consonant,
digits and apostrophes included.            Source: M. F. Porter, An algorithm for suffix stripping, Program 14(3), 1980.
"""

from __future__ import annotations

import itertools

_STEP2 = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "bli": "ble", "alli": "al",
    "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate", "alism": "al",
    "iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble", "logi": "log",
}  # fmt: skip
_STEP3 = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
_STEP4 = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
)  # fmt: skip


def _longest_first(suffixes: object) -> tuple[str, ...]:
    return tuple(sorted(suffixes, key=len, reverse=True))  # type: ignore[call-overload]


_STEP2_ORDER, _STEP3_ORDER, _STEP4_ORDER = map(_longest_first, (_STEP2, _STEP3, _STEP4))


def stem(word: str) -> str:
    """Return the stem of a lower-case word."""
    if len(word) <= 2:
        return word
    word = _step1c(_step1b(_step1a(word)))
    word = _replaced(word, _STEP2_ORDER, _STEP2)
    word = _replaced(word, _STEP3_ORDER, _STEP3)
    return _step5(_step4(word))


def _consonants(word: str) -> list[bool]:
    """Return for each letter whether it is a consonant."""
    found: list[bool] = []
    for letter in word:
        found.append(letter not in "aeiou" and (letter != "y" or not found or not found[-1]))
    return found


def _measure(stem_part: str) -> int:
    """Return m of [C](VC)^m[V]: how often a consonant follows a vowel."""
    kinds = _consonants(stem_part)
    return sum(1 for before, now in itertools.pairwise(kinds) if now and not before)


def _has_vowel(stem_part: str) -> bool:
    return not all(_consonants(stem_part))


def _ends_double_consonant(word: str) -> bool:
    return len(word) >= 2 and word[-1] == word[-2] and _consonants(word)[-1]


def _ends_cvc(word: str) -> bool:
    """Return whether the word ends consonant, vowel, consonant, and the last one is none of w, x, y."""
    if len(word) < 3 or word[-1] in "wxy":
        return False
    kinds = _consonants(word)
    return kinds[-1] and not kinds[-2] and kinds[-3]


def _step1a(word: str) -> str:
    if word.endswith("sses") or word.endswith("ies"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _step1b(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        if word.endswith(suffix) and _has_vowel(word[: -len(suffix)]):
            return _mended(word[: -len(suffix)])
    return word


def _mended(word: str) -> str:
    """Return a word that lost -ed or -ing with its e back, or one letter less of a double consonant."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if _ends_double_consonant(word):
        return word if word[-1] in "lsz" else word[:-1]
    return word + "e" if _measure(word) == 1 and _ends_cvc(word) else word


def _step1c(word: str) -> str:
    return word[:-1] + "i" if word.endswith("y") and _has_vowel(word[:-1]) else word


def _replaced(word: str, order: tuple[str, ...], table: dict[str, str]) -> str:
    for suffix in order:
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            return rest + table[suffix] if _measure(rest) > 0 else word
    return word


def _step4(word: str) -> str:
    for suffix in _STEP4_ORDER:
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            fits = suffix != "ion" or rest.endswith(("s", "t"))
            return rest if fits and _measure(rest) > 1 else word
    return word


def _step5(word: str) -> str:
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _ends_cvc(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word
