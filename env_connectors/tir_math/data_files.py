"""Problems from a user's files, parquet (MATH level 3-5) or JSON lines (MATH-500, GSM8K, AIME), told apart by their content."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from env_connectors.arguments import shown
from env_connectors.errors import EnvConfigError
from env_connectors.tir_math.exact import MOST_CHARS
from env_connectors.tir_math.problems import Problem
from env_connectors.tir_math.replies import last_boxed

FORMS = (
    "JSON lines with question or problem, and answer (GSM8K: after '#### '); parquet with a column prompt, question or "
    "problem, and one of gt_answer, reward_model or answer"
)
_QUESTIONS = ("question", "problem")
_ANSWERS = ("answer", "gt_answer", "ground_truth_answer", "target")
_GSM8K = re.compile(r"####\s*(.+?)\s*\Z")
_SURROGATE = re.compile("[\ud800-\udfff]")
_LARGEST_LINE = 1 << 20


@dataclass(frozen=True)
class DataFile:
    """The problems of a file, in its order, and how many were left out.

    Attributes:
        problems: that can be solved.
        without_answer: number of those whose answer nobody can give: it is empty, too long, or its braces do not match.
    """

    problems: list[Problem]
    without_answer: int


def read_problems(path: str | Path) -> DataFile:
    """Read a file.

    Raises:
        EnvConfigError: the file is missing, cut short, of another form, or holds a line that is no problem; the message names
            file, line and what is allowed.
    """
    try:
        file = Path(path).expanduser()
        if not file.is_file():
            what = "is a folder, not a file" if file.is_dir() else "does not exist"
            raise EnvConfigError(f"data file {str(file)!r} {what}.")
        rows = _parquet_rows(file) if _is_parquet(file) else _json_rows(file)
        read = [_problem(row, file, place) for place, row in rows]
    except (OSError, RuntimeError) as error:  # RuntimeError: no such home directory
        reason = error.strerror if isinstance(error, OSError) else error
        raise EnvConfigError(f"data file {shown(str(path))} cannot be read: {str(reason).rstrip('.')}.") from error
    problems = [problem for problem in read if _can_be_given(problem.answer)]
    if not problems:
        raise EnvConfigError(f"data file {str(file)!r} holds no problem with an answer. Allowed: {FORMS}.")
    return DataFile(problems, len(read) - len(problems))


def _can_be_given(answer: str) -> bool:
    if not answer or len(answer) > MOST_CHARS:
        return False
    boxed = last_boxed(f"\\boxed{{{answer}}}")
    return boxed is not None and boxed[0] == answer


def _is_parquet(file: Path) -> bool:
    with file.open("rb") as stream:
        begins = stream.read(4) == b"PAR1"
    if file.suffix == ".parquet" and not begins:
        raise EnvConfigError(f"data file {str(file)!r} is no parquet file: it does not begin with PAR1.")
    return begins


def _json_rows(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    with file.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            place = f"line {number}"
            cut = " The file seems to be cut short: its last line has no end." if not line.endswith(b"\n") else ""
            if len(line) > _LARGEST_LINE:
                raise EnvConfigError(f"data file {str(file)!r}, {place}: longer than 1 MB, so these are no JSON lines.")
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
                raise EnvConfigError(
                    f"data file {str(file)!r}, {place}: no JSON: {error}.{cut} Allowed: {FORMS}."
                ) from error
            if not isinstance(row, dict):
                raise EnvConfigError(
                    f"data file {str(file)!r}, {place}: a {type(row).__name__}, wanted an object with question and answer."
                )
            yield place, row


def _parquet_rows(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise EnvConfigError(
            f"data file {str(file)!r} is parquet, which needs pyarrow: pip install pyarrow."
        ) from error
    wanted = {*_QUESTIONS, *_ANSWERS, "prompt", "reward_model", "level", "subject", "extra_info"}
    try:
        with pyarrow.parquet.ParquetFile(file) as opened:
            columns = [name for name in opened.schema_arrow.names if name in wanted]
            if not {"prompt", *_QUESTIONS} & set(columns) or not {"reward_model", *_ANSWERS} & set(columns):
                have = ", ".join(opened.schema_arrow.names)
                raise EnvConfigError(
                    f"data file {str(file)!r} lacks columns: it has {have or 'none'}. Allowed: {FORMS}."
                )
            number = 0
            for batch in opened.iter_batches(columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", row
    except (pyarrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise EnvConfigError(f"data file {str(file)!r} cannot be read as parquet; is it cut short? {reason}") from error


def _problem(row: Mapping[str, Any], file: Path, place: str) -> Problem:
    where = f"data file {str(file)!r}, {place}"
    text, answer = _question(row), _answer(row)
    if text is None or answer is None:
        lacks = "no question" if text is None else "no answer"
        raise EnvConfigError(f"{where}: {lacks}; it has {', '.join(map(str, row)) or 'nothing'}. Allowed: {FORMS}.")
    if _SURROGATE.search(text) or _SURROGATE.search(answer):
        raise EnvConfigError(f"{where}: half of a surrogate pair (\\ud800 to \\udfff), which is no character.")
    if "####" in answer:
        found = _GSM8K.search(answer)
        if found is None:
            raise EnvConfigError(f"{where}: nothing follows '####' in the answer.")
        answer = found[1].replace(",", "")
    elif (boxed := last_boxed(answer)) is not None:
        answer = boxed[0]
    kind = row.get("subject") or row.get("type")
    return Problem(text.strip(), answer.strip(), kind if isinstance(kind, str) and kind else file.stem, _level(row))


def _question(row: Mapping[str, Any]) -> str | None:
    prompt = row.get("prompt")
    if isinstance(prompt, list):
        asked = [part.get("content") for part in prompt if isinstance(part, dict) and part.get("role") == "user"]
        prompt = asked[-1] if asked else None
    values = [prompt, *(row.get(name) for name in _QUESTIONS)]
    return next((value for value in values if isinstance(value, str) and value.strip()), None)


def _answer(row: Mapping[str, Any]) -> str | None:
    values = [row.get(name) for name in _ANSWERS]
    model = row.get("reward_model")
    values.append(model.get("ground_truth") if isinstance(model, dict) else None)
    plain = [str(v) if isinstance(v, (int, float)) and not isinstance(v, bool) else v for v in values]
    return next((value for value in plain if isinstance(value, str)), None)


def _level(row: Mapping[str, Any]) -> int:
    extra = row.get("extra_info")
    for value in (row.get("level"), extra.get("level") if isinstance(extra, dict) else None):
        digits = re.fullmatch(r"(?:Level )?(\d)", str(value)) if value is not None else None
        if digits:
            return int(digits[1])
    return 0
