"""Every key of a configuration file, with its default and its meaning: what `arlarena settings` prints."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from arlarena_rllib.config import ARLArenaConfig
from arlarena_rllib.errors import ConfigError, nearest
from arlarena_rllib.objectives import ObjectiveSpec
from arlarena_rllib.settings import RLLIB_SETTINGS, SETTINGS
from arlarena_rllib.warmstart.cloning import CloningConfig
from tune_experiments.run_config import ModelSettings, RunSettings, WarmStartSettings
from tune_experiments.study_settings import StabilitySettings, StudySettings

_WIDTH, _OF_DEFAULT = 120, 20
"""Of a line, and of the column of defaults, in letters."""


@dataclass(frozen=True)
class Row:
    """One key: its section, name, default as YAML-like text ("" for one without), and meaning."""

    section: str
    key: str
    default: str
    meaning: str


def settings_rows() -> list[Row]:
    """Return all keys, section by section; of RLlib's own those whose values are checked here."""
    rows = [
        *_of_class("run", RunSettings),
        *_of_class("model", ModelSettings),
        *_of_class("warm_start", WarmStartSettings, without=("cloning",)),
        *_of_class("warm_start", CloningConfig, without=("seed",)),
    ]
    defaults = ARLArenaConfig()
    rows += [
        Row(setting.section, key, _text(getattr(defaults, key)), setting.doc)
        for key, setting in {**RLLIB_SETTINGS, **SETTINGS}.items()
        if key not in ("model_path", "framework_str")  # the run sets the one, and there is no choice of the other
    ]
    rows += [replace(row, default="the method's") for row in _of_class("training", ObjectiveSpec)]
    rows += _of_class("study", StudySettings)
    rows += _of_class("study.stability", StabilitySettings)
    order = list(dict.fromkeys(row.section for row in rows))
    return sorted(rows, key=lambda row: order.index(row.section))


def settings_text(sections: Sequence[str] = ()) -> str:
    """Return the table of these sections, of all when none is named.

    Raises:
        ConfigError: there is no such section.
    """
    rows = settings_rows()
    known = list(dict.fromkeys(row.section for row in rows))
    for section in sections:
        if section not in known:
            raise ConfigError(f"{section!r} is not a section.{nearest(section, known)} Allowed: {', '.join(known)}.")
    shown = [row for row in rows if not sections or row.section in sections]
    name = max(len(f"{row.section}.{row.key}") for row in shown)
    return "\n".join(_lines(row, name) for row in shown)


def _lines(row: Row, name: int) -> str:
    is_long = len(row.default) > _OF_DEFAULT
    head = f"{f'{row.section}.{row.key}':{name}}  {'' if is_long else row.default:{_OF_DEFAULT}}  "
    meaning = " ".join([row.meaning, *([f"Default: {row.default}"] if is_long else [])]).replace("``", "")
    wrapped = textwrap.wrap(meaning, _WIDTH - len(head)) or [""]
    return "\n".join([f"{head}{wrapped[0]}".rstrip(), *(" " * len(head) + line for line in wrapped[1:])])


def _of_class(section: str, cls: Any, *, without: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the fields of a dataclass; what they mean stands below them in its source."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(tree, ast.ClassDef)
    meanings = {
        field.target.id: " ".join(str(text.value.value).split())
        for field, text in itertools.pairwise(tree.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }  # fmt: skip
    for field in fields(cls):
        if field.name not in without:
            default = field.default_factory() if field.default_factory is not MISSING else field.default
            yield Row(section, field.name, _text(default), meanings.get(field.name, ""))


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        value = list(value)
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
