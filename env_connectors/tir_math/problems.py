"""What a problem is, and when two problems are the same one."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import asdict, dataclass
from typing import Any

from env_connectors.task_panel import Task

_SPACING = re.compile(r"\\(?:left|right|displaystyle|quad|qquad|,|;|:|!|\s)|\$|\\[()\[\]]")
_FRACTION = re.compile(r"\\[dt]frac(?![a-zA-Z])")
_NO_CONTENT = re.compile(r"[\s.,;:!?'\"`~{}]+")


@dataclass(frozen=True)
class Problem:
    """A problem.

    Attributes:
        text: what is asked.
        answer: the exact answer, as it may be written in a box.
        kind: e.g. 'algebra'.
        level: difficulty from 1; 0 = not known.
        program: Python that prints the answer; '' = none is known.
    """

    text: str
    answer: str
    kind: str
    level: int
    program: str = ""

    @property
    def task_type(self) -> str:
        """Level, then kind: success is reported by level and, within each, by kind."""
        kind = "_".join(re.sub(r"\W+", " ", self.kind).lower().split())
        return f"level {self.level}/{kind}" if self.level else kind

    def task(self, task_id: str) -> Task:
        """Return the task, which shares a split with everything that has the same normalised text."""
        return Task(task_id, asdict(self), split_key=text_key(self.text))


def problem_of(content: Any) -> Problem:
    """Return the problem of a task's content."""
    return Problem(**content)


def normalised(text: str) -> str:
    """Return a problem's text without what does not make it another problem.

    Case, blanks, punctuation, dollar signs, LaTeX's spacing and size commands and braces are left out, \\dfrac is \\frac.
    """
    text = unicodedata.normalize("NFKC", text).casefold()
    text = _FRACTION.sub(r"\\frac", _SPACING.sub(" ", text))
    return _NO_CONTENT.sub("", re.sub(r"(?<=\d)[.,](?=\d)", "\u00b7", text))


def text_key(text: str) -> str:
    """Return a short hash of the normalised text."""
    return hashlib.sha256(normalised(text).encode()).hexdigest()[:24]
