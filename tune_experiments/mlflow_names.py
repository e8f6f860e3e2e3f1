"""Turns nested results and settings into the flat names and values that MLflow accepts."""

from __future__ import annotations

import hashlib
import json
import math
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

from arlarena_rllib.diagnostics import metric_names

MAX_NAME_LENGTH = 250
MAX_PARAM_VALUE_LENGTH = 6000

#: Keys that Ray adds to every result and that say nothing about the training.
BOOKKEEPING_KEYS = frozenset(
    {
        "config",
        "date",
        "done",
        "experiment_id",
        "experiment_tag",
        "hist_stats",
        "hostname",
        "iterations_since_restore",
        "node_ip",
        "pid",
        "should_checkpoint",
        "time_since_restore",
        "timestamp",
        "timesteps_since_restore",
        "trial_id",
        "trial_name",
    }
)
#: Top-level names of the few metrics that runs are compared by; MLflow shows them before all groups.
HEADLINES = {
    "success": metric_names.SUCCESS,
    "heldout_success": metric_names.EVALUATION_SAMPLED,
    "heldout_success_greedy": metric_names.EVALUATION_GREEDY,
    "format_valid": metric_names.FORMAT_VALID,
    "off_policy_kl": metric_names.OFF_POLICY_KL,
    "reference_kl": metric_names.REF_KL,
    "grad_norm": metric_names.GRAD_NORM,
    "entropy": metric_names.ENTROPY,
}
_FORBIDDEN = re.compile(r"[^/\w.\- :]")


def flatten(tree: Mapping[Any, Any], separator: str) -> Iterator[tuple[str, Any]]:
    """Yield ``(name, leaf)`` with the keys on the way joined by ``separator``; an empty mapping is a leaf."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            for name, leaf in flatten(value, separator):
                yield f"{key}{separator}{name}", leaf
        else:
            yield str(key), value


def metric_values(result: Mapping[str, Any]) -> dict[str, float]:
    """Return every finite number of a nested result as ``"group/name": value``.

    Numpy scalars, one-element arrays and booleans count as numbers; NaN, infinities, text, longer arrays and Ray's
    bookkeeping (:data:`BOOKKEEPING_KEYS`) are left out. Names are made acceptable by :func:`acceptable_names`.
    """
    kept = {key: value for key, value in result.items() if key not in BOOKKEEPING_KEYS}
    finite = {}
    for name, leaf in flatten(kept, "/"):
        value = as_number(leaf)
        if value is not None and math.isfinite(value):
            finite[name] = value
    names = acceptable_names(finite)
    return {names[name]: value for name, value in finite.items()}


def headline_values(values: Mapping[str, float]) -> dict[str, float]:
    """Return those of :data:`HEADLINES` that are among an iteration's flat values."""
    return {headline: values[name] for headline, name in HEADLINES.items() if name in values}


def param_values(config: Mapping[str, Any]) -> dict[str, str]:
    """Return nested settings as ``"section.key": text``; text beyond MLflow's limit is cut and ends with ``...``."""
    leaves = dict(flatten(config, "."))
    names = acceptable_names(leaves)
    return {names[name]: _as_text(leaf) for name, leaf in leaves.items()}


def acceptable_names(raw: Iterable[str]) -> dict[str, str]:
    """Map each name to one that MLflow accepts; no two names map to the same one.

    A name that is already acceptable stays. Of several that would become equal, the others get a short hash of their
    original spelling, so that a name is the same in every iteration.
    """
    names: dict[str, str] = {}
    for name in sorted(set(raw), key=lambda name: (_clean(name) != name, name)):
        clean = _clean(name)
        if len(clean) > MAX_NAME_LENGTH or clean in names.values():
            digest = hashlib.sha1(name.encode()).hexdigest()[:8]
            clean = f"{clean[: MAX_NAME_LENGTH - 9]}-{digest}"
        names[name] = clean
    return names


def overlay(config: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of nested ``config`` in which ``own`` replaces what it names.

    A key of ``own`` (``"lr"``, ``"training.lr"``, ``"env_config/observation"``) replaces the leaf whose path ends with
    it; a key that fits none or several goes to the section ``trial``, so nothing is lost.
    """
    tree: dict[str, Any] = plain(config)
    paths = [tuple(name.split("\0")) for name, _ in flatten(tree, "\0")]
    for key, value in own.items():
        parts = tuple(re.split(r"[./]", key))
        fitting = [path for path in paths if path[-len(parts) :] == parts]
        exact = [path for path in fitting if path == parts]
        if len(exact or fitting) == 1:
            _set_leaf(tree, (exact or fitting)[0], plain(value))
        else:
            tree.setdefault("trial", {})[key] = plain(value)
    return tree


def plain(value: Any) -> Any:
    """Return ``value`` made of dicts, lists, numbers, text and None only, for YAML and JSON."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return plain(value.value)
    number = _python_number(value)
    return number if number is not None else (None if value is None else str(value))


def as_number(value: Any) -> float | None:
    """Return a number, numpy scalar or one-element array or tensor as ``float``, and None for anything else."""
    number = _python_number(value)
    return None if number is None else float(number)


def _python_number(value: Any) -> bool | int | float | None:
    for kind in (bool, int, float):
        if isinstance(value, kind):
            return kind(value)
    size = getattr(value, "size", None)
    if size is None or not hasattr(value, "item"):
        return None
    count = math.prod(size()) if callable(size) else size  # torch: a method with the shape; numpy: the count
    item = value.item() if count == 1 else None
    return item if isinstance(item, (bool, int, float)) else None


def _clean(name: str) -> str:
    safe = _FORBIDDEN.sub("_", name)
    parts = [part for part in posixpath.normpath(safe).split("/") if part not in ("", ".", "..")]
    return "/".join(parts) or "_"


def _as_text(value: Any) -> str:
    text = json.dumps(plain(value)) if isinstance(value, (Mapping, list, tuple, set, frozenset)) else str(value)
    return text if len(text) <= MAX_PARAM_VALUE_LENGTH else text[: MAX_PARAM_VALUE_LENGTH - 3] + "..."


def _set_leaf(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        tree = tree[key]
    tree[path[-1]] = value
