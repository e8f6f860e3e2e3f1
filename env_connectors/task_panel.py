"""Task lists: what a task is, and the fixed train, validation and test panel made from a set of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from env_connectors.errors import PanelError, TaskNotFoundError

SPLITS = ("train", "validation", "test")


def content_hash_of(content: Mapping[str, Any]) -> str:
    """Return the sha256 (hex) of the canonical JSON of a task's content."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


@dataclass(frozen=True)
class Task:
    """One task: its content alone decides the episode that a fixed list of actions gives.

    Attributes:
        task_id: readable name, unique within an environment.
        content: JSON-able description of the start.
        content_hash: sha256 (hex) of the canonical JSON of `content`; made when left empty.
        split_key: tasks with equal keys always share a split (e.g. mirrored boards); `content_hash` when left empty.
    """

    task_id: str
    content: Mapping[str, Any] = field(hash=False)
    content_hash: str = ""
    split_key: str = ""

    def __post_init__(self) -> None:
        """Fill in the hashes that were left empty."""
        if not self.content_hash:
            object.__setattr__(self, "content_hash", content_hash_of(self.content))
        if not self.split_key:
            object.__setattr__(self, "split_key", self.content_hash)


@dataclass(frozen=True)
class TaskPanel:
    """Task ids of the three splits, in a fixed order, with hashes that pin ids and contents.

    Attributes:
        train: ids to learn from.
        validation: ids for choosing settings and checkpoints.
        test: ids for the reported number.
        hashes: for each split the first 16 hex digits of the sha256 of its ids and content hashes.
        panel_hash: the same over all three splits.
    """

    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]
    hashes: Mapping[str, str] = field(hash=False)
    panel_hash: str

    def split(self, name: str) -> tuple[str, ...]:
        """Return the ids of a split.

        Raises:
            PanelError: `name` is not one of SPLITS.
        """
        if name not in SPLITS:
            raise PanelError(f"split={name!r} is not known. Allowed: {', '.join(SPLITS)}.")
        return tuple(getattr(self, name))

    def draw(self, split: str, cursor: int, count: int, seed: int) -> tuple[list[str], int]:
        """Return the next `count` ids of a walk through a split, and the cursor to go on from.

        The walk is an endless row of passes; each pass visits every id once, in an order of its own. The answer
        depends on the arguments only, so a restored cursor continues exactly where the walk stopped.

        Args:
            split: one of SPLITS.
            cursor: number of ids drawn so far, >= 0.
            count: ids to draw, >= 0; may cross into the next passes.
            seed: decides the orders.

        Raises:
            PanelError: unknown or empty split, negative cursor or count.
        """
        ids = self._drawable(split, cursor, count)
        drawn = [_pass_order(ids, seed, at // len(ids))[at % len(ids)] for at in range(cursor, cursor + count)]
        return drawn, cursor + count

    def _drawable(self, split: str, cursor: int, count: int) -> tuple[str, ...]:
        """Return the ids of a split; raise what `draw` raises."""
        ids = self.split(split)
        if not ids:
            raise PanelError(
                f"split={split!r} is empty, nothing can be drawn. Remedy: build the panel with more tasks."
            )
        if cursor < 0 or count < 0:
            raise PanelError(f"cursor={cursor} and count={count} must not be negative.")
        return ids


@lru_cache(maxsize=32)
def _pass_order(ids: tuple[str, ...], seed: int, number: int) -> tuple[str, ...]:
    return tuple(sorted(ids, key=lambda task_id: _rank(f"{seed}:{number}", task_id)))


def _rank(salt: str, text: str) -> bytes:
    return hashlib.sha256(f"{salt}:{text}".encode()).digest()


def build_panel(
    tasks: Sequence[Task], *, seed: int, n_validation: int, n_test: int, held_out_per_key: int | None = None
) -> TaskPanel:
    """Return the panel of `tasks`: duplicates removed, split by a seeded hash, in a fixed order.

    Tasks with equal content hash count once (the first is kept). The split keys are ordered by sha256(seed, key); whole
    keys fill test, then validation, then train. What a held-out key holds beyond the wanted size (or beyond
    `held_out_per_key`) is left out of the panel, so no two splits ever share a split key. The order of `tasks` matters
    for nothing but duplicates.

    Args:
        tasks: all tasks of an environment, ids unique.
        seed: decides which key goes where.
        n_validation: exact size of the validation split, >= 0.
        n_test: exact size of the test split, >= 0.
        held_out_per_key: most tasks of one key in a held-out split, so that it holds many different ones; None: all.

    Raises:
        PanelError: an id twice, a seed that is no whole number, a negative size, or too few tasks to leave at least one
            for training.
    """
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise PanelError(f"the panel's seed {seed!r} is not a whole number.")
    if n_validation < 0 or n_test < 0:
        raise PanelError(f"n_validation={n_validation} and n_test={n_test} must not be negative.")
    _require_unique_ids(tasks)
    groups = _by_split_key(tasks)
    held_out = {key: group[:held_out_per_key] for key, group in groups.items()}
    keys = iter(sorted(groups, key=lambda key: _rank(str(seed), key)))
    test = _take(held_out, keys, n_test)
    validation = _take(held_out, keys, n_validation)
    train = [task for key in keys for task in groups[key]]
    if len(test) < n_test or len(validation) < n_validation or not train:
        n_tasks = sum(map(len, groups.values()))
        raise PanelError(
            f"n_validation={n_validation} and n_test={n_test} do not fit: there are {n_tasks} different tasks under "
            f"{len(groups)} split keys, and at least one must stay for training. Remedy: smaller panels or more tasks."
        )
    return panel_of({"train": train, "validation": validation, "test": test})


def _require_unique_ids(tasks: Sequence[Task]) -> None:
    seen: set[str] = set()
    for task in tasks:
        if task.task_id in seen:
            raise PanelError(f"task_id={task.task_id!r} is given to two tasks; every task needs an id of its own.")
        seen.add(task.task_id)


def _by_split_key(tasks: Sequence[Task]) -> dict[str, list[Task]]:
    first = {task.content_hash: task for task in reversed(tasks)}
    groups: dict[str, list[Task]] = {}
    for task in sorted(first.values(), key=lambda task: task.content_hash):
        groups.setdefault(task.split_key, []).append(task)
    return groups


def _take(groups: Mapping[str, list[Task]], keys: Iterator[str], count: int) -> list[Task]:
    taken: list[Task] = []
    while len(taken) < count and (key := next(keys, None)) is not None:
        taken += groups[key]
    return taken[:count]


def panel_of(splits: Mapping[str, Sequence[Task]]) -> TaskPanel:
    """Return the panel with exactly these tasks of each split, in this order; nothing is checked."""
    lines = {name: "".join(f"{t.task_id} {t.content_hash}\n" for t in splits[name]) for name in SPLITS}
    whole = "".join(f"[{name}]\n{lines[name]}" for name in SPLITS)
    ids = {name: tuple(task.task_id for task in splits[name]) for name in SPLITS}
    return TaskPanel(**ids, hashes={name: short_hash(lines[name]) for name in SPLITS}, panel_hash=short_hash(whole))


def short_hash(text: str) -> str:
    """Return the first 16 hex digits of the sha256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class TaskSet:
    """Tasks by id together with their panel; the usual thing behind TextEnv.tasks and TextEnv.task."""

    def __init__(self, tasks: Sequence[Task], panel: TaskPanel) -> None:
        self.panel = panel
        self._by_id = {task.task_id: task for task in tasks}

    @classmethod
    def split(cls, tasks: Sequence[Task], **arguments: Any) -> TaskSet:
        """Return the tasks with the panel that build_panel makes of them (same keyword arguments, same errors)."""
        return cls(tasks, build_panel(tasks, **arguments))

    def __len__(self) -> int:
        """Return the number of tasks, those left out of the panel included."""
        return len(self._by_id)

    def __getitem__(self, task_id: str) -> Task:
        """Return a task by id.

        Raises:
            TaskNotFoundError: no such task; the message shows an id that exists.
        """
        task = self._by_id.get(task_id) if isinstance(task_id, str) else None
        if task is None:
            example = next(iter(self._by_id), "none")
            raise TaskNotFoundError(
                f"task_id={task_id!r} is not known. There are {len(self._by_id)} tasks with ids like {example!r}; "
                "env.tasks() lists those of each split."
            )
        return task
