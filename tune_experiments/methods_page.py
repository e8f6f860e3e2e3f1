"""What `arlarena methods` prints: the table of methods, and one method resolved for a task."""

from __future__ import annotations

from collections.abc import Sequence

from arlarena_rllib.objectives import AXES, SPEC_FIELDS
from arlarena_rllib.presets import METHODS, find_method, resolve_with_origin
from arlarena_rllib.task_defaults import TASKS


def methods_table() -> str:
    """Return one line per method: name, a choice on every axis, source."""
    rows = [("method", *AXES, "source")]
    rows += [(name, *(getattr(m, axis) for axis in AXES), m.source) for name, m in METHODS.items()]
    widths = [max(len(row[column]) for row in rows) for column in range(len(AXES) + 1)]
    lines = ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]) for row in rows]
    tasks = ", ".join(TASKS)
    hints = [
        f"`arlarena methods show METHOD [TASK]` prints all values; tasks: {tasks}.",
        "`arlarena methods losses` compares all methods on one batch.",
    ]
    return "\n".join([*lines, "", *hints])


def method_page(name: str, task: str | None) -> str:
    """Return every parameter that method ``name`` reads, with its value and where that comes from.

    Raises:
        ValueError: the method or the task is unknown; the message has the nearest one.
    """
    resolved = resolve_with_origin(name, task=task)
    read = resolved.spec.read_keys()
    shown = [key for key in SPEC_FIELDS if key in read]
    width = max(map(len, shown))
    lines = [f"{name}: {METHODS[find_method(name)].source}"]
    lines += [f"  {key:{width}s}  {_text(getattr(resolved.spec, key)):22s}  {resolved.origin[key]}" for key in shown]
    if task is not None:
        lines += [
            "",
            f"The study's run settings for {task} with models of 4B parameters ({TASKS[task].source}); not applied:",
        ]
        lines += _aligned(sorted(TASKS[task].scale.items()))
    return "\n".join(lines)


def _aligned(pairs: Sequence[tuple[str, object]]) -> list[str]:
    width = max((len(key) for key, _ in pairs), default=0)
    return [f"  {key:{width}s}  {_text(value)}" for key, value in pairs]


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else "off" if value is None else str(value)
