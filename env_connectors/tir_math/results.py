"""What the model reads of a program's run: at most so many characters, by a stated rule."""

from __future__ import annotations

import re

from env_connectors.tir_math.sandbox import RunResult, Status

CUT = " ..."
_LINE = re.compile(r'(File "main\.py", line )(\d+)')
_DEFINITION = "def final_answer(x): print('\\\\boxed{' + str(x) + '}')\n"


def with_final_answer(code: str) -> str:
    """Return the program with `final_answer`, which prints its argument in a box, where it is used and not its own."""
    return _DEFINITION + code if "final_answer(" in code and "def final_answer" not in code else code


def is_error(result: RunResult) -> bool:
    """Return whether the program did not end as it should; a cut output is no error."""
    return result.status is not Status.OK


def result_text(result: RunResult, code: str, *, most_chars: int, error_lines: int) -> str:
    """Return what the model reads.

    A program that ended well: what it printed, without blanks at the end; the beginning of it when it is longer than
    allowed, then ' ...'. Any other: the last lines of its error output, the end of them when they are too long, or what
    stopped it. Never empty.

    Args:
        result: of the run.
        code: as the model wrote it; line numbers are those of it.
        most_chars: of the text, >= 16.
        error_lines: of the error output.
    """
    if not is_error(result):
        shown = result.stdout.rstrip() or "(nothing was printed)"
        return shown if len(shown) <= most_chars else shown[: most_chars - len(CUT)] + CUT
    if result.note:
        return result.note if len(result.note) <= most_chars else result.note[: most_chars - len(CUT)] + CUT
    errors = result.stderr
    if with_final_answer(code) != code:
        errors = _LINE.sub(lambda found: f"{found[1]}{int(found[2]) - 1}", errors)
    lines = [line for line in errors.splitlines() if line.strip()][-error_lines:]
    shown = "\n".join(lines).strip() or f"({result.status})"
    return shown[-most_chars:]
