"""Reads questions and corpora of the user: JSON lines or one JSON list, plain or .gz.

A question has `question` and `answer` or `golden_answers` (a text or a list of texts); if it has `supporting_facts`
(HotpotQA's pairs of title and sentence, or a mapping with `title`) or `supports` (titles), these are its supports. A document
has `title` and `text`, or Search-R1's `contents` (the title in quotes, a line break, the text).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from env_connectors.arguments import shown
from env_connectors.errors import EnvConfigError
from env_connectors.search_qa.documents import Document

MOST_QUESTION_CHARS = 4000
_QUESTIONS = 'questions, as {"question": ..., "answer": [...]} line by line or in a list'
_CORPUS = 'documents, as {"title": ..., "text": ...} or {"id": ..., "contents": ...} line by line or in a list'
_SHOWN = 60
_SURROGATE = re.compile("[\ud800-\udfff]")
_T = TypeVar("_T")


@dataclass(frozen=True)
class UserQuestion:
    """A question of the user's file.

    Attributes:
        text: the question.
        answers: golds, at least one.
        supports: titles of the documents that it takes; empty if not told.
        kind: `type` or `data_source`, '' if not told.
        number: of its line or entry, from 1.
    """

    text: str
    answers: tuple[str, ...]
    supports: tuple[str, ...]
    kind: str
    number: int


@dataclass(frozen=True)
class Read:
    """What a file held.

    Attributes:
        entries: that could be read.
        skipped: number of malformed ones that were left out.
        mark: of the contents, 16 hex digits, wherever the file lies.
    """

    entries: tuple[Any, ...]
    skipped: int
    mark: str


def read_questions(path: str | Path, *, skip_malformed: bool = False) -> Read:
    """Return the UserQuestions of a file.

    Raises:
        EnvConfigError: the file is missing, cut short, not of its kind, or has a malformed line; names file and line.
    """
    return _read("questions_file", Path(path), _question, _QUESTIONS, "corpus_file", skip_malformed)


def read_corpus(path: str | Path, *, skip_malformed: bool = False) -> Read:
    """Return the Documents of a file.

    Raises:
        EnvConfigError: as read_questions.
    """
    return _read("corpus_file", Path(path), _document, _CORPUS, "questions_file", skip_malformed)


class _MalformedError(Exception):
    """What is wrong with an entry."""


class _SwappedError(_MalformedError):
    """An entry of the other kind of file."""


def _question(entry: Mapping[str, Any], number: int) -> UserQuestion:
    text = entry.get("question")
    if not isinstance(text, str) or not text.strip():
        if "contents" in entry or ("title" in entry and "text" in entry):
            raise _SwappedError("it is a document")
        raise _MalformedError(f"question={_short(text)} is no text")
    if len(text) > MOST_QUESTION_CHARS:
        raise _MalformedError(f"the question has {len(text)} characters; allowed: {MOST_QUESTION_CHARS}")
    name = "golden_answers" if "golden_answers" in entry else "answer" if "answer" in entry else "answers"
    value = entry.get(name)
    answers = [value] if isinstance(value, str) else value
    if not isinstance(answers, list) or not answers or not all(isinstance(a, str) and a.strip() for a in answers):
        raise _MalformedError(f"{name}={_short(value)} is neither a text nor a list of texts")
    if any("</answer>" in answer for answer in answers):
        raise _MalformedError(f"{name}={_short(value)} holds the tag </answer>")
    kind = entry.get("type", entry.get("data_source", ""))
    kept = tuple(dict.fromkeys(" ".join(answer.split()) for answer in answers))
    return UserQuestion(text.strip(), kept, _supports(entry), kind if isinstance(kind, str) else "", number)


def _supports(entry: Mapping[str, Any]) -> tuple[str, ...]:
    found = entry.get("supports", entry.get("supporting_facts", ()))
    if isinstance(found, Mapping):
        found = found.get("title", ())
    if not isinstance(found, (list, tuple)):
        raise _MalformedError(f"its supports {_short(found)} are no list")
    titles = [pair[0] if isinstance(pair, list) and pair else pair for pair in found]
    if not all(isinstance(title, str) for title in titles):
        raise _MalformedError(f"its supports {_short(found)} are no titles")
    return tuple(dict.fromkeys(titles))


def _document(entry: Mapping[str, Any], number: int) -> Document:
    if isinstance(contents := entry.get("contents"), str):
        return document_of_contents(contents)
    title, text = entry.get("title"), entry.get("text")
    if not isinstance(title, str) or not isinstance(text, str):
        if "question" in entry:
            raise _SwappedError("it is a question")
        raise _MalformedError(f"title={_short(title)} and text={_short(text)} must be texts")
    return Document(title.strip(), text.strip())


def document_of_contents(contents: str) -> Document:
    """Return the document of Search-R1's form: the first line is the title, mostly in quotes, the rest the text."""
    title, _, text = contents.partition("\n")
    title = title.strip()
    if len(title) > 1 and title[0] == title[-1] == '"':
        title = title[1:-1]
    return Document(title, text.strip())


def contents_of(document: Document) -> str:
    """Return Search-R1's form of a document; document_of_contents reads it back if the title has one line."""
    return f'"{document.title}"\n{document.text}'


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _read(
    key: str, path: Path, read: Callable[[Mapping[str, Any], int], _T], wanted: str, other: str, skip_malformed: bool
) -> Read:
    text, mark = _text(key, path, wanted)
    kept: list[_T] = []
    skipped = 0
    for place, number, entry in _entries(key, path, text, wanted):
        try:
            if isinstance(entry, json.JSONDecodeError):
                raise _MalformedError(f"it is no JSON ({entry.msg} at column {entry.colno})")
            if not isinstance(entry, dict):
                raise _MalformedError(f"it is a {type(entry).__name__}, not an object")
            if path_to := _half_character(entry):
                raise _MalformedError(f"{path_to} holds half of a surrogate pair, which is no character")
            kept.append(read(entry, number))
        except _SwappedError as error:
            raise EnvConfigError(
                f"{key}={str(path)!r} is not of its kind: {place}: {error}. Wanted: {wanted}. Was it swapped with {other}?"
            ) from None
        except _MalformedError as error:
            if not skip_malformed:
                raise EnvConfigError(
                    f"{key}={str(path)!r}, {place}: {error}. Wanted: {wanted}. Remedy: mend it, or skip_malformed=True."
                ) from None
            skipped += 1
    if not kept:
        raise EnvConfigError(
            f"{key}={str(path)!r} holds nothing that can be used ({skipped} malformed). Wanted: {wanted}."
        )
    return Read(tuple(kept), skipped, mark)


def _as_json_error(error: Exception) -> json.JSONDecodeError:
    """Return what Python says of text that is no JSON, nested too deep or has numbers too long, as one kind of error."""
    if isinstance(error, json.JSONDecodeError):
        return error
    return json.JSONDecodeError(
        "nested too deep" if isinstance(error, RecursionError) else "a number is too long", "", 0
    )


def _half_character(entry: Mapping[str, Any]) -> str:
    """Return the name of a value with a lone surrogate anywhere in it, '' if there is none."""
    return next((str(key)[:_SHOWN] for key, value in entry.items() if _SURROGATE.search(_written(value))), "")


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) if value else ""


def _text(key: str, path: Path, wanted: str) -> tuple[str, str]:
    try:
        if not path.is_file():
            raise EnvConfigError(f"{key}={shown(str(path))} is not there. Wanted: {wanted}.")
        raw = path.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        return raw.decode("utf-8-sig"), hashlib.sha256(raw).hexdigest()[:16]
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise EnvConfigError(
            f"{key}={str(path)!r} breaks off or is damaged: {error}. Remedy: fetch it anew."
        ) from error
    except OSError as error:
        raise EnvConfigError(f"{key}={shown(str(path))} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise EnvConfigError(f"{key}={str(path)!r}, line {line}: it is no text in UTF-8. Wanted: {wanted}.") from error


def _entries(key: str, path: Path, text: str, wanted: str) -> Iterator[tuple[str, int, Any]]:
    """Yield (place, number, entry), where an entry that is no JSON is its JSONDecodeError."""
    if not text.lstrip().startswith("["):
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                try:
                    yield f"line {number}", number, json.loads(line)
                except (ValueError, RecursionError) as error:
                    yield f"line {number}", number, _as_json_error(error)
        return
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        told = _as_json_error(error)
        raise EnvConfigError(
            f"{key}={str(path)!r}, line {told.lineno}: the list breaks off or is no JSON ({told.msg}). Wanted: {wanted}."
        ) from None
    for number, entry in enumerate(entries, start=1):
        yield f"entry {number}", number, entry
