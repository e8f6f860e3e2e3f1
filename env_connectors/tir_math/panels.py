"""The task lists: generated ones, and files with training kept apart from evaluation."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from env_connectors.errors import EnvConfigError, PanelError
from env_connectors.task_panel import Task, TaskSet, panel_of
from env_connectors.tir_math.data_files import read_problems
from env_connectors.tir_math.generated.make import generated_problems
from env_connectors.tir_math.problems import Problem, text_key

GENERATED = "generated"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Spec:
    """What decides a task list.

    Attributes:
        data: 'generated', or files to train on.
        validation_data: files of the validation split; () = taken from `data`.
        test_data: files of the test split; () = taken from `data`.
        kinds: of `data` to keep; None = all.
        levels: of `data` to keep, and problems without a level; None = all.
        n_train: training tasks; None = 4000 generated ones, or all of the files.
        n_validation: validation tasks; None = 200, or a twentieth of `data`, or all of `validation_data`.
        n_test: test tasks; None = 400, or a tenth of `data`, or all of `test_data`.
        seed: decides generated problems, or which problems of `data` are held out.
        is_compact: generated problems in a few words.
    """

    data: tuple[str, ...]
    validation_data: tuple[str, ...] = ()
    test_data: tuple[str, ...] = ()
    kinds: tuple[str, ...] | None = None
    levels: tuple[int, ...] | None = None
    n_train: int | None = None
    n_validation: int | None = None
    n_test: int | None = None
    seed: int = 0
    is_compact: bool = False


@dataclass(frozen=True)
class Tasks:
    """A task list, and how many problems of `data` were left out.

    Attributes:
        task_set: the tasks.
        repeated: left out, as they are there twice.
        in_evaluation: left out, as they are in files of an evaluation split.
        without_answer: left out, as their answer is empty or cannot be given (data_files.py).
    """

    task_set: TaskSet
    repeated: int = 0
    in_evaluation: int = 0
    without_answer: int = 0


@lru_cache(maxsize=8)
def tasks_of(spec: Spec) -> Tasks:
    """Return the task list, the same object for equal specs.

    Raises:
        EnvConfigError: a file, kind or level cannot be used, or there are too few problems.
        PanelError: no task is left to train on.
    """
    return _generated(spec) if spec.data == (GENERATED,) else _from_files(spec)


def _generated(spec: Spec) -> Tasks:
    sizes = [
        default if asked is None else asked
        for asked, default in zip((spec.n_test, spec.n_validation, spec.n_train), (400, 200, 4000), strict=True)
    ]
    kinds = {} if spec.kinds is None else {"kinds": spec.kinds}
    levels = {} if spec.levels is None else {"levels": spec.levels}
    problems = generated_problems(sum(sizes), seed=spec.seed, is_compact=spec.is_compact, **kinds, **levels)  # type: ignore[arg-type]
    mark = "c" if spec.is_compact else ""
    tasks = [p.task(f"{mark}{spec.seed}/{p.kind}-{p.level}/{number:05d}") for number, p in enumerate(problems)]
    test, rest = tasks[: sizes[0]], tasks[sizes[0] :]
    return _checked(Tasks(_task_set(rest[sizes[1] :], rest[: sizes[1]], test)))


def _from_files(spec: Spec) -> Tasks:
    test = _distinct(_read(spec.test_data, spec, "test_data")[0])[0]
    validation = _distinct(_read(spec.validation_data, spec, "validation_data")[0], _keys(test))[0]
    found, without_answer = _read(spec.data, spec, "data")
    problems, repeated = _distinct(found)
    held_out = _keys(test) | _keys(validation)
    pool = [task for task in problems if task.split_key not in held_out]
    in_evaluation = len(problems) - len(pool)
    order = sorted(pool, key=lambda task: text_key(f"{spec.seed}:{task.split_key}"))
    n_test = 0 if spec.test_data else _share(spec.n_test, len(pool), 10)
    n_validation = 0 if spec.validation_data else _share(spec.n_validation, len(pool), 20)
    test = test[: spec.n_test] if spec.test_data else order[:n_test]
    validation = validation[: spec.n_validation] if spec.validation_data else order[n_test : n_test + n_validation]
    for name, asked, split in (("n_test", spec.n_test, test), ("n_validation", spec.n_validation, validation)):
        if asked is not None and asked > len(split):
            raise EnvConfigError(f"{name}={asked} is more than there are: {len(split)} problems that can be held out.")
    taken = {task.task_id for task in (*test, *validation)}
    train = [task for task in pool if task.task_id not in taken][: spec.n_train]
    if repeated or in_evaluation or without_answer:
        _log.warning(
            "TIRMath: of %d problems to train on were left out: %d that are there twice, %d that are in an evaluation split as "
            "well, %d without an answer that can be given.",
            len(found) + without_answer,
            repeated,
            in_evaluation,
            without_answer,
        )
    return _checked(Tasks(_task_set(train, validation, test), repeated, in_evaluation, without_answer))


def _checked(tasks: Tasks) -> Tasks:
    if not tasks.task_set.panel.train:
        raise PanelError(
            "TIRMath: no problem is left to train on. Remedy: smaller n_validation and n_test, other kinds or levels, "
            "or training files that are not evaluation files too."
        )
    return tasks


def _task_set(train: Sequence[Task], validation: Sequence[Task], test: Sequence[Task]) -> TaskSet:
    panel = panel_of({"train": train, "validation": validation, "test": test})
    return TaskSet([*train, *validation, *test], panel)


def _share(asked: int | None, of: int, part: int) -> int:
    return of // part if asked is None else asked


def _keys(tasks: Iterable[Task]) -> set[str]:
    return {task.split_key for task in tasks}


def _distinct(tasks: Sequence[Task], known: set[str] | None = None) -> tuple[list[Task], int]:
    """Return the first task of each normalised text that is not known, and how many others there were."""
    seen, kept = set(known or ()), []
    for task in tasks:
        if task.split_key not in seen:
            seen.add(task.split_key)
            kept.append(task)
    return kept, len(tasks) - len(kept)


def _read(paths: Sequence[str], spec: Spec, name: str) -> tuple[list[Task], int]:
    """Return the tasks of files, and the number of problems without an answer."""
    tasks, without_answer = [], 0
    found: set[tuple[str, int]] = set()
    used: set[str] = set()
    for path in paths:
        read = read_problems(path)
        problems, without_answer = read.problems, without_answer + read.without_answer
        stem = Path(path).stem
        if stem in used:
            raise EnvConfigError(f"{name}={list(paths)!r} names two files {stem!r}. Remedy: rename one.")
        used.add(stem)
        found |= {(problem.kind, problem.level) for problem in problems}
        tasks += [
            problem.task(f"{name[:-5] + '-' if name != 'data' else ''}{stem}/{number:05d}")
            for number, problem in enumerate(problems)
            if name != "data" or _is_wanted(problem, spec)
        ]
    if paths and not tasks:
        kinds = ", ".join(sorted({kind for kind, _ in found}))
        levels = ", ".join(map(str, sorted({level for _, level in found})))
        raise EnvConfigError(
            f"{name}={list(paths)!r} has no problem of kinds={spec.kinds!r}, levels={spec.levels!r}. It has kinds {kinds}; "
            f"levels {levels}."
        )
    return tasks, without_answer


def _is_wanted(problem: Problem, spec: Spec) -> bool:
    is_kind = spec.kinds is None or problem.kind in spec.kinds
    return is_kind and (spec.levels is None or problem.level == 0 or problem.level in spec.levels)
