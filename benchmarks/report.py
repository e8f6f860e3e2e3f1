"""How a result is shown and kept: aligned tables, small bar pictures, one JSON file per benchmark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import busy_warning

BAR_WIDTH = 40


def table(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return ``rows`` as text: the first column to the left, the others to the right, numbers in three digits."""
    cells = [[str(header) for header in headers], *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    lines = []
    for row in cells:
        first, *others = row
        lines.append(
            "  ".join([first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(others, widths[1:], strict=True))])
        )
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(f"  {line}".rstrip() for line in lines)


def bars(parts: Mapping[str, float], *, unit: str) -> str:
    """Return one bar per part, drawn to the share of the sum."""
    total = sum(parts.values()) or 1.0
    name_width = max(map(len, parts))
    lines = []
    for name, value in parts.items():
        share = value / total
        bar = "#" * round(BAR_WIDTH * share)
        lines.append(f"  {name:{name_width}s} |{bar:{BAR_WIDTH}s}| {_cell(value)} {unit} ({share:.0%})")
    return "\n".join(lines)


def figure(name: str, value: float, *, target: float, at_least: bool) -> dict[str, Any]:
    """Return the headline of a benchmark: a number and the side of the target that it should be on."""
    return {
        "name": name,
        "value": value,
        "target": target,
        "better": "higher" if at_least else "lower",
        "meets_target": value >= target if at_least else value <= target,
    }


def publish(result: dict[str, Any], text: str, folder: Path, facts: dict[str, Any]) -> Path:
    """Print ``text`` under a headline and write ``result`` with ``facts`` of the machine to ``folder``; return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result['benchmark']}.json"
    path.write_text(json.dumps({**result, "machine": facts}, indent=1) + "\n")
    print(f"\n{headline(result)}\n{text}")
    warning = busy_warning(facts)
    if warning:
        print(f"  note: {warning}")
    print(f"  written: {path}", flush=True)
    return path


def headline(result: Mapping[str, Any]) -> str:
    """Return the first line of a result."""
    found = result.get("figure")
    if found is None:
        return f"{result['benchmark']}"
    verdict = "meets" if found["meets_target"] else "MISSES"
    sign = ">=" if found["better"] == "higher" else "<="
    return (
        f"{result['benchmark']}: {found['name']} {found['value']:.3g}, {verdict} the target {sign} {found['target']:g}"
    )


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)
