"""Exact comparison of answers without computer algebra: equal text, numbers, and tuples, sets and lists of numbers."""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from functools import lru_cache

MOST_CHARS = 2_000
_MOST_DIGITS = 400
_WRAPPERS = ("\\boxed{", "\\fbox{", "\\text{", "\\mathrm{", "\\mbox{", "\\textbf{", "\\mathbf{")
_NAME = re.compile(r"^(?:[a-zA-Z]|\\[a-z]+)(?:_?\{?\w{0,3}\}?)?(?:\([a-z]\))?(?:=|\\in(?![a-z]))")
_FRACTION = re.compile(r"\\frac(?:\{([^{}]*)\}|(\d))(?:\{([^{}]*)\}|(\d))")
_THOUSANDS = re.compile(r"(?<![\d.,])(\d{1,3})((?:,\d{3})+)(?![\d,])")
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,2})?")
_RAISED = re.compile("[\u207b\u207a]?[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+")
_MIXED = re.compile(r"(-?)(\d+)\\frac\{(\d+)\}\{(\d+)\}")
_UNITS = re.compile(
    r"(?<=[\d}])\\?(?:text|mbox|mathrm)\{[^{}]*\}(?:\^\{?[23]\}?)?$|(?<=\d)(?:\^\{?\\circ\}?|°|\\degree)$"
)

Value = Fraction | tuple[str, tuple[Fraction, ...]]


def with_powers(answer: str) -> str:
    """Return an answer whose raised digits are powers: 5² is 5^2, which Unicode's compatibility form would make 52."""
    return _RAISED.sub(lambda found: "^" + _in_braces(unicodedata.normalize("NFKC", found[0])), answer)


def _in_braces(power: str) -> str:
    return power if len(power) == 1 else f"{{{power}}}".replace("\u2212", "-")


@lru_cache(maxsize=4096)
def plain(answer: str) -> str:
    """Return an answer without what does not change its value: blanks, \\left, \\dfrac, a box, 'x=', a full stop."""
    text = unicodedata.normalize("NFKC", with_powers(answer[: MOST_CHARS + 1])).replace("\u2212", "-").strip()
    text = re.sub(r"\\(?:left|right|bigl|bigr|big|displaystyle)(?![a-zA-Z])|\\[!,;: ]|\$|~", "", text)
    text = re.sub(r"\\[dt]frac(?![a-zA-Z])", r"\\frac", text)
    text = re.sub(r"\\(?:cdot|times)(?![a-zA-Z])", "*", text).replace("**", "^")
    text = re.sub(r"(\\[a-zA-Z]+)\s+(?=[a-zA-Z])", r"\1{}", text)  # \pi r is not \pir
    text = re.sub(r"\s+", "", text).rstrip(".")
    for _ in range(3):
        inner = _inside(text)
        if inner is None:
            break
        text = inner
    named = _NAME.match(text)
    if named and text.count("=") <= 1:
        text = text[named.end() :]
    return _UNITS.sub("", text)


def _inside(text: str) -> str | None:
    """Return what a wrapper around the whole text holds."""
    for wrapper in _WRAPPERS:
        if text.startswith(wrapper) and text.endswith("}"):
            inner = text[len(wrapper) : -1]
            depth = 0
            for character in inner:
                depth += {"{": 1, "}": -1}.get(character, 0)
                if depth < 0:
                    return None
            return inner if depth == 0 else None
    return None


def number(text: str) -> Fraction | None:
    """Return the rational number that a plain answer is: an integer, a decimal, p/q, \\frac{p}{q}, n\\frac{p}{q}, p%."""
    if len(text) > _MOST_DIGITS:
        return None
    text = _THOUSANDS.sub(lambda found: found[0].replace(",", ""), text.replace("{,}", ","))
    if re.match(r"\\\d", text):  # what is left of \\$12
        text = text[1:]
    if text.endswith("%"):
        share = number(text[:-1].removesuffix("\\"))
        return None if share is None else share / 100
    if mixed := _MIXED.fullmatch(text):
        whole = Fraction(int(mixed[2])) + _quotient(mixed[3], mixed[4]) if int(mixed[4]) else None
        return whole if whole is None or not mixed[1] else -whole
    sign = -1 if text.startswith("-") and not _DECIMAL.fullmatch(text) else 1
    bare = text[1:] if sign < 0 or text.startswith("+") else text
    found = _FRACTION.fullmatch(bare)
    parts = [found[1] or found[2] or "", found[3] or found[4] or ""] if found else bare.split("/")
    if not 1 <= len(parts) <= 2:
        return None
    parts = [part[1:-1] if part[:1] + part[-1:] == "()" else part for part in parts]
    if not all(_DECIMAL.fullmatch(part) for part in parts):
        return None
    if len(parts) == 1:
        return sign * Fraction(parts[0])
    return sign * _quotient(*parts) if Fraction(parts[1]) else None


def _quotient(above: str, below: str) -> Fraction:
    return Fraction(above) / Fraction(below)


@lru_cache(maxsize=4096)
def value(text: str) -> Value | None:
    """Return the number, or the kind ('()', '{}', or '' for a bare list) and numbers of a plain answer; else None."""
    if (single := number(text)) is not None:
        return single
    kind, inner = "", text
    for left, right in (("\\{", "\\}"), ("{", "}"), ("(", ")"), ("[", "]")):
        if text.startswith(left) and text.endswith(right) and len(text) >= len(left) + len(right):
            kind, inner = {"\\{": "{}", "{": "{}", "(": "()", "[": "[]"}[left], text[len(left) : -len(right)]
            break
    parts = [number(part) for part in re.split(r"[,;]", inner)]
    found = [part for part in parts if part is not None]
    if len(found) != len(parts) or (not kind and len(found) < 2):
        return None
    if kind == "{}":
        found = sorted(set(found))
    elif not kind:
        found = sorted(found)
    return kind, tuple(found)


def compare(gold: str, given: str) -> bool | None:
    """Return whether two answers are equal, None when that needs computer algebra.

    True: equal as plain texts, or equal numbers, or equal collections of numbers; the braces of a set may be missing, its
    order is free, the order in parentheses is not. False: both are numbers, or collections of numbers, and differ.
    """
    if len(given) > MOST_CHARS:
        return False
    one, other = plain(gold), plain(given)
    if not other:
        return False
    if one == other:
        return True
    ours, theirs = value(one), value(other)
    if ours is None or theirs is None:
        return None
    if isinstance(ours, Fraction) or isinstance(theirs, Fraction):
        if isinstance(ours, Fraction) and isinstance(theirs, Fraction):
            return ours == theirs or (_is_percentage(one) != _is_percentage(other) and None)
        return _alone(ours) == _alone(theirs)
    if ours[0] == theirs[0]:
        return ours[1] == theirs[1]
    loose = {"", "{}"}
    if {ours[0], theirs[0]} <= loose or ("{}" in (ours[0], theirs[0]) and "[]" in (ours[0], theirs[0])):
        return tuple(sorted(set(ours[1]))) == tuple(sorted(set(theirs[1])))
    return None


def is_worked_out(gold: str, given: str) -> bool:
    """Return whether an answer that `compare` cannot decide has the form of the right one.

    Where that is a number or a collection of numbers, no other form will do; where it is an expanded polynomial, there are
    no parentheses, and no more terms.
    """
    one, other = plain(gold), plain(given)
    if value(one) is not None:
        return False
    return ("(" in one or "(" not in other) and len(re.findall(r"[+-]", other)) <= len(re.findall(r"[+-]", one)) + 1


def _is_percentage(text: str) -> bool:
    return text.endswith("%")


def _alone(found: Value) -> tuple[Fraction, ...]:
    """A set of one number is that number."""
    return (found,) if isinstance(found, Fraction) else found[1] if found[0] in ("{}", "") else ()
