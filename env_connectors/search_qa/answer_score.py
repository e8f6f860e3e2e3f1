"""Exact match and F1 of an answer, as SQuAD and HotpotQA define them; pure functions."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED = frozenset({"yes", "no", "noanswer"})
"""Answers (normalised) that another answer matches wholly or not at all."""


def normalise(text: str) -> str:
    """Return a text as it is compared: lower case, without ASCII punctuation, then without a, an, the, single blanks."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, golds: Iterable[str]) -> float:
    """Return 1.0 if the answer equals one of the gold answers, both normalised, else 0.0.

    Source: SQuAD's evaluation script (1606.05250).
    """
    given = normalise(answer)
    return float(any(given == normalise(gold) for gold in golds))


def f1(answer: str, golds: Iterable[str]) -> float:
    """Return the best F1 of the answer's words with those of a gold answer, 0.0 without gold answers.

    F1 = 2 p r / (p + r), p = common / words of the answer, r = common / words of the gold one, common counted with
    repetition. yes, no and noanswer on either side count only when both are equal.   Source: HotpotQA (1809.09600).
    """
    given = normalise(answer)
    return max((_f1(given, normalise(gold)) for gold in golds), default=0.0)


def _f1(given: str, gold: str) -> float:
    if given != gold and (given in _CLOSED or gold in _CLOSED):
        return 0.0
    ours, theirs = given.split(), gold.split()
    common = sum((Counter(ours) & Counter(theirs)).values())
    if not common:
        return 0.0
    precision, recall = common / len(ours), common / len(theirs)
    return 2 * precision * recall / (precision + recall)
