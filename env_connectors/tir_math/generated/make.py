"""Lists of generated problems: equal for equal arguments in every process, and no problem twice."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from env_connectors.errors import EnvConfigError
from env_connectors.tir_math.generated import algebra, arithmetic, combinatorics, compact, number_theory
from env_connectors.tir_math.generated.numbers import Templates
from env_connectors.tir_math.problems import Problem, normalised

FORMAT = "generated/1"
KINDS = ("arithmetic", "algebra", "number_theory", "combinatorics")
LEVELS = (1, 2, 3, 4)
_TRIES = 400
_TEMPLATES: Mapping[str, Mapping[int, Templates]] = {
    "arithmetic": arithmetic.TEMPLATES,
    "algebra": algebra.TEMPLATES,
    "number_theory": number_theory.TEMPLATES,
    "combinatorics": combinatorics.TEMPLATES,
}


def generated_problems(
    count: int, *, seed: int, kinds: Sequence[str] = KINDS, levels: Sequence[int] = LEVELS, is_compact: bool = False
) -> list[Problem]:
    """Return the first problems of an endless list: kinds and levels in turn, no text and no program twice.

    Raises:
        EnvConfigError: there are not so many different problems.
    """
    cells = [(kind, level) for level in levels for kind in kinds]
    seen: set[str] = set()
    found = []
    for number in range(count):
        kind, level = cells[number % len(cells)]
        templates = compact.TEMPLATES[level] if is_compact else _TEMPLATES[kind][level]
        rng = random.Random(f"{FORMAT}:{seed}:{kind}:{level}:{is_compact}:{number // len(cells)}")
        for _ in range(_TRIES):
            draft = rng.choice(templates)(rng)
            keys = {normalised(draft.text), draft.program}
            if not keys & seen:
                break
        else:
            raise EnvConfigError(
                f"there are fewer than {count} different generated problems of kinds {', '.join(kinds)} and levels "
                f"{', '.join(map(str, levels))}. Remedy: fewer tasks, or more kinds or levels."
            )
        seen |= keys
        found.append(Problem(draft.text, draft.answer, kind, level, draft.program))
    return found
