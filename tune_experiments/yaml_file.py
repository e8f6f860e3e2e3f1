"""Reads a YAML file of sections strictly, with the place of every key: file and line, or the override that gave it."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from arlarena_rllib.errors import ConfigError

Places = dict[tuple[str, ...], str]
"""Path of a key -> where it was given."""


class _Named(io.StringIO):
    """Text that PyYAML names in its complaints."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.name = name


class _Loader(yaml.SafeLoader):
    """YAML whose numbers are those of YAML 1.2 (``5e-4`` is a number) and whose keys are unique."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node)
            if not isinstance(key, str):
                mark = key_node.start_mark
                raise ConfigError(f"key {key!r} ({mark.name}, line {mark.line + 1}) must be a text")
            if key in seen:
                mark = key_node.start_mark
                raise ConfigError(f"{key!r} is given twice ({mark.name}, line {mark.line + 1})")
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)$"),
    list("-+0123456789."),
)


def read_yaml(file: Path) -> tuple[dict[str, Any], Places]:
    """Return the mapping in ``file`` and the lines of its keys, of those below them too.

    Raises:
        ConfigError: it is not a mapping in YAML, or a key is given twice or is no text.
    """
    try:
        text = file.read_text(encoding="utf-8")
        tree = yaml.load(_Named(text, file.name), _Loader) or {}  # a SafeLoader
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file.name} is not valid YAML: {error}") from error
    if not isinstance(tree, dict):
        raise ConfigError(f"{file.name} must be a mapping of sections, got {type(tree).__name__}")
    places: Places = {}
    _add_lines(places, yaml.compose(text, _Loader), (), file.name)
    return tree, places


def read_value(text: str, name: str) -> Any:
    """Return the value that ``text`` is in YAML; ``name`` stands in the error.

    Raises:
        ConfigError: it is not YAML.
    """
    try:
        return yaml.load(_Named(text, name), _Loader)  # a SafeLoader
    except yaml.YAMLError as error:
        raise ConfigError(f"the value of {name} is not valid YAML: {error}") from error


def _add_lines(places: Places, node: yaml.Node | None, path: tuple[str, ...], file: str) -> None:
    for key, value in node.value if isinstance(node, yaml.MappingNode) else []:
        places[*path, key.value] = f"{file}, line {key.start_mark.line + 1}"
        _add_lines(places, value, (*path, key.value), file)


def place_of(places: Mapping[tuple[str, ...], str], *path: str, otherwise: str) -> str:
    """Return the place of a key, or of what is known above it."""
    known = (places[path[:length]] for length in range(len(path), 0, -1) if path[:length] in places)
    return next(known, otherwise)


def with_places(problems: str, places: Mapping[tuple[str, ...], str]) -> str:
    """Return the lines of ``problems``, each with the places of the keys that it names as ``key=value`` or ``key.more``."""

    def placed(line: str) -> str:
        named = {path[1]: place for path, place in places.items() if len(path) == 2}
        found = [place for key, place in named.items() if re.search(rf"\b{re.escape(key)}(=|\.\w)", line)]
        return f"{line} (in {'; '.join(dict.fromkeys(found))})" if found else line

    return "\n".join(map(placed, problems.splitlines()))
