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
_MOST_VALUES = 100_000
"""In a file, each alias counted with all that it stands for: ten lines of aliases of aliases can stand for billions."""
_TEXT, _MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"


class _Named(io.StringIO):
    """Text that PyYAML names in its complaints."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.name = name


class _Loader(yaml.SafeLoader):
    """YAML whose numbers are those of YAML 1.2: ``5e-4`` is a number."""


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
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file.name} is not valid YAML: {error}") from error
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.") from error
    tree, node = _read(text, file.name, file.name)
    tree = {} if tree is None else tree
    if not isinstance(tree, dict):
        raise ConfigError(f"{file.name} must be a mapping of sections, got {type(tree).__name__}")
    places: Places = {}
    _add_lines(places, node, (), file.name)
    return tree, places


def read_value(text: str, name: str) -> Any:
    """Return the value that ``text`` is in YAML; ``name`` stands in the error.

    Raises:
        ConfigError: it is not YAML, or a key in it is given twice or is no text.
    """
    return _read(text, name, f"the value of {name}")[0]


def _read(text: str, name: str, what: str) -> tuple[Any, yaml.Node | None]:
    """Return the value of ``text`` and the node that it was made from; None for an empty text."""
    try:
        loader = _Loader(_Named(text, name))
        node = loader.get_single_node()
        if node is None:
            return None, None
        _check(loader, node, (), 0)
        return loader.construct_document(node), node
    except ConfigError:
        raise
    except RecursionError:
        raise ConfigError(f"{what} is nested too deeply.") from None
    except (
        yaml.YAMLError,
        ValueError,
        LookupError,
        AttributeError,
        OverflowError,
    ) as error:  # of dates that are none, say
        raise ConfigError(f"{what} is not valid YAML: {' '.join(str(error).split())}") from error


def _check(loader: _Loader, node: yaml.Node, above: tuple[yaml.Node, ...], count: int) -> int:
    """Return ``count`` and the values below ``node``; keys must be different texts, nothing part of itself.

    ``<<`` is replaced by what it stands for: PyYAML's own way lets the later mapping of a list win, and the older value of
    a chain, depending on the names.
    """
    if node in above:
        raise ConfigError(f"an alias ({_place(node)}) stands inside of what it stands for")
    if count > _MOST_VALUES:
        raise ConfigError(f"{node.start_mark.name} has more than {_MOST_VALUES:,} values, aliases counted in full.")
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            count = _check(loader, item, (*above, node), count)
    elif isinstance(node, yaml.MappingNode):
        _check_keys(loader, node)
        for _, value in node.value:
            count = _check(loader, value, (*above, node), count)
        _merge(node)
    return count + 1


def _check_keys(loader: _Loader, node: yaml.MappingNode) -> None:
    seen: set[str] = set()
    for key_node, _ in node.value:
        if key_node.tag not in (_TEXT, _MERGE):
            key = loader.construct_object(key_node, deep=True)
            raise ConfigError(f"key {key!r} ({_place(key_node)}) must be a text")
        if not key_node.value.isprintable():
            raise ConfigError(f"key {key_node.value!r} ({_place(key_node)}) must be one line of letters and signs")
        if key_node.value in seen:
            raise ConfigError(f"{key_node.value!r} is given twice ({_place(key_node)})")
        seen.add(key_node.value)


def _merge(node: yaml.MappingNode) -> None:
    """Put the mappings that stand behind ``<<`` before the node's own keys; of one key its own counts, then the first."""
    own = [(key, value) for key, value in node.value if key.tag != _MERGE]
    names, merged = {key.value for key, _ in own}, []
    for key, value in node.value:
        for source in (value.value if isinstance(value, yaml.SequenceNode) else [value]) if key.tag == _MERGE else ():
            if not isinstance(source, yaml.MappingNode):
                raise ConfigError(
                    f"'<<' ({_place(key)}) must be a mapping, an alias (*name) of one, or a list of these."
                )
            merged += [pair for pair in source.value if pair[0].value not in names]
            names |= {name.value for name, _ in source.value}
    node.value = merged + own


def _place(node: yaml.Node) -> str:
    return f"{node.start_mark.name}, line {node.start_mark.line + 1}"


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
