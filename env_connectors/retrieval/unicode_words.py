"""Words of a text by the word boundaries of Unicode (UAX #29), as Lucene's StandardTokenizer finds them.

A word is a run of letters, digits and low lines; a colon or full stop between two letters and a comma, semicolon or full
stop between two digits do not break it, nor does an apostrophe between two of a kind. Every Han or Hiragana sign and every
emoji is a word of its own. Words of more than 255 signs are cut there.

A text of ASCII signs takes a short way. Any other text is first written as a row of classes, one letter for each sign, and
words are then found in that row: A letter, H Hebrew letter, D digit, K Katakana, C Han or Hiragana, S South East Asian,
U low line, P pictograph, M skin tone, R half a flag, Z joiner, X other signs that extend the one before; . : , ' " may stand
inside a word, - is all the rest.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

MAX_CHARS = 255
_ASCII_WORD = re.compile(
    r"[A-Za-z0-9_]++(?:(?:(?<=[A-Za-z])[:.'](?=[A-Za-z])|(?<=[0-9])[.,;'](?=[0-9]))[A-Za-z0-9_]++)*+"
)
_LONG_RUN = re.compile(rf"\S{{{MAX_CHARS + 1}}}")
_LETTERS = r"""[AHD]++(?:(?:(?<=[AH])[:.'](?=[AH])|(?<=D)[.,'](?=D)|(?<=H)"(?=H))[AHD]++)*+(?:(?<=H)')?+"""
_WORD = re.compile(
    rf"(?<!U)U*+(?:K++|{_LETTERS})(?:U++(?:K++|{_LETTERS}))*+U*+|S++|C|[PM]M?(?:ZPM?)*+|RR?"  # possessive: linear time
)
_LONE_JOINER = re.compile(r"(?<![PMX])Z|Z(?!P)")
_SIGNS = {
    ":": "3a b7 387 55f 5f4 2027 fe13 fe55 ff1a",
    ",": "2c 3b 37e 589 60c 60d 66c 7f8 2044 fe10 fe14 fe50 fe54 ff0c ff1b",
    ".": "2e 2018 2019 2024 fe52 ff07 ff0e",
    "'": "27",
    '"': "22",
    "U": "5f 202f 203f 2040 2054 fe33 fe34 fe4d fe4e fe4f ff3f",
    "Z": "200d",
    "X": "ff9e ff9f",
    "-": "200b",
}
_CLASS_OF_SIGN = {chr(int(code, 16)): name for name, codes in _SIGNS.items() for code in codes.split()}
_PICTOGRAPHS = (
    "a9 ae 203c 2049 2122 2194-2199 21a9-21aa 231a-231b 2328 2388 23cf 23e9-23f3 23f8-23fa 25aa-25ab 25b6 25c0 25fb-25fe "
    "2600-2605 2607-2612 2614-2685 2690-2705 2708-2712 2714 2716 271d 2721 2728 2733-2734 2744 2747 274c 274e 2753-2755 "
    "2757 2763-2767 2795-2797 27a1 27b0 27bf 2934-2935 2b05-2b07 2b1b-2b1c 2b50 2b55 3030 303d 3297 3299 1f000-1f0ff "
    "1f10d-1f10f 1f12f 1f16c-1f16f 1f18e 1f191-1f19a 1f1ad-1f1e5 1f201-1f20f 1f21a 1f22f 1f232-1f23a 1f23c-1f23f "
    "1f249-1f3fa 1f400-1f53d 1f546-1f64f 1f680-1f6ff 1f774-1f77f 1f7d5-1f7ff 1f80c-1f80f 1f848-1f84f 1f85a-1f85f "
    "1f888-1f88f 1f8ae-1f8ff 1f90c-1f93a 1f93c-1f945 1f947-1fffd"
)
"""Signs with the property Extended_Pictographic (UTS #51, version 11), without those that are letters."""
_CIRCLED_LETTERS = ((0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189))
_SCRIPTS = {
    "C": (
        "CJK",
        "HIRAGANA",
        "KANGXI",
        "IDEOGRAPHIC ITERATION",
        "IDEOGRAPHIC NUMBER",
        "HANGZHOU",
        "VERTICAL IDEOGRAPHIC",
    ),
    "K": ("KATAKANA", "HALFWIDTH KATAKANA"),
    "H": ("HEBREW ",),
    "S": ("THAI ", "LAO ", "KHMER ", "MYANMAR ", "TAI ", "NEW TAI LUE ", "AHOM "),
}


def words(text: str) -> list[str]:
    """Return the words of a text in order; linear in its length."""
    if text.isascii():
        found = _ASCII_WORD.findall(text)
        is_plain = "_" not in text and not _LONG_RUN.search(text)
        return found if is_plain else [part for word in found if word.strip("_") for part in _pieces(word)]
    row = _LONE_JOINER.sub("X", text.translate(_CLASSES))
    kept = [at for at, name in enumerate(row) if name != "X"]
    ends = [*kept[1:], len(text)]
    bare = "".join(row[at] for at in kept)
    spans = (text[kept[match.start()] : ends[match.end() - 1]] for match in _WORD.finditer(bare))
    return [part for word in spans for part in _pieces(word)]


def _pieces(word: str) -> list[str]:
    return [word] if len(word) <= MAX_CHARS else [word[at : at + MAX_CHARS] for at in range(0, len(word), MAX_CHARS)]


class _ClassTable(dict[int, str]):
    """Class of every sign by its code, found when first asked for; the form that str.translate reads."""

    def __missing__(self, code: int) -> str:
        self[code] = name = _class_of(chr(code))
        return name


_CLASSES = _ClassTable()


def _class_of(sign: str) -> str:
    code = ord(sign)
    if sign in _CLASS_OF_SIGN:
        return _CLASS_OF_SIGN[sign]
    if 0x1F3FB <= code <= 0x1F3FF:
        return "M"
    if 0x1F1E6 <= code <= 0x1F1FF:
        return "R"
    if code in _pictographs():
        return "P"
    category = unicodedata.category(sign)
    if category[0] == "M" or category == "Cf":
        return "X"
    if category == "Nd":
        return "D"
    return _class_of_letter(sign, category)


def _class_of_letter(sign: str, category: str) -> str:
    name = unicodedata.name(sign, "")
    is_letter = category[0] == "L" or category == "Nl"
    for script, beginnings in _SCRIPTS.items():
        if name.startswith(beginnings) and (is_letter or (script == "C" and category == "So" and "RADICAL" in name)):
            return script
    return "A" if is_letter or any(low <= ord(sign) <= high for low, high in _CIRCLED_LETTERS) else "-"


@cache
def _pictographs() -> frozenset[int]:
    bounds = [tuple(int(end, 16) for end in part.split("-")) for part in _PICTOGRAPHS.split()]
    return frozenset(code for ends in bounds for code in range(ends[0], ends[-1] + 1))
