"""YAML is read as its author meant it, or refused in one line: aliases, `<<`, values that are none, endless texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from arlarena_rllib.errors import ConfigError
from tune_experiments.run_config import load_run_config
from tune_experiments.yaml_file import read_value, read_yaml


def _file(folder: Path, text: str) -> Path:
    file = folder / "run.yaml"
    file.write_text(text)
    return file


def test_merge_keys_take_over_what_stands_nearest(tmp_path: Path) -> None:
    text = """
a: &a {training.lr: 1, p: 1}
b: &b {<<: *a, training.lr: 2, p: 2}
chain: {<<: *b, q: 3}
first: {<<: [*a, *b]}
own: {p: 7, <<: [*b, *a]}
"""
    tree, places = read_yaml(_file(tmp_path, text))
    assert tree["chain"] == {"training.lr": 2, "p": 2, "q": 3}
    assert tree["first"] == {"training.lr": 1, "p": 1}
    assert tree["own"] == {"training.lr": 2, "p": 7}
    assert places["chain", "training.lr"] == "run.yaml, line 3"
    assert places["own", "p"] == "run.yaml, line 6"


ALIASES_OF_ALIASES = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join(10 * ['*' + below])}]\n" for below, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x {b: *x}", r"an alias \(run\.yaml, line 1\) stands inside of what it stands for"),
        ("a: &x [*x]", r"an alias \(run\.yaml, line 1\)"),
        ("a: &x {<<: *x}", r"an alias \(run\.yaml, line 1\)"),
        (ALIASES_OF_ALIASES, r"run\.yaml has more than 100,000 values, aliases counted in full"),
        ("a: " + "[" * 2000 + "]" * 2000, r"run\.yaml is nested too deeply"),
        ("a: 2024-99-01", r"run\.yaml is not valid YAML: month must be in 1\.\.12"),
        ("a: 0x_", r"run\.yaml is not valid YAML: invalid literal for int"),
        ("a: " + "9" * 5000, r"run\.yaml is not valid YAML: Exceeds the limit"),
        ("a: !!timestamp x", r"run\.yaml is not valid YAML"),
        ("a: !!bool x", r"run\.yaml is not valid YAML"),
        ("a: {<<: 3}", r"'<<' \(run\.yaml, line 1\) must be a mapping, an alias \(\*name\) of one, or a list"),
        ('run:\n  "a\\nb": 1', r"key 'a\\nb' \(run\.yaml, line 2\) must be one line"),
        ("a:\n\tb: 1", r"run\.yaml is not valid YAML: .* in \"run\.yaml\", line 2, column 1"),
    ],
)
def test_text_that_cannot_be_meant_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        read_yaml(_file(tmp_path, text))
    assert "\n" not in str(raised.value)


def test_value_of_an_override_is_read_as_strictly() -> None:
    assert read_value("{a: 5e-4}", "override 'x'") == {"a": 5e-4}
    with pytest.raises(ConfigError, match=r"the value of override 'x' is not valid YAML: month"):
        read_value("2024-99-01", "override 'x'")


def test_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, encoding: str) -> str:
        raise PermissionError(13, "Permission denied")

    file = _file(tmp_path, "a: 1")
    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(ConfigError, match=r"run\.yaml cannot be read: Permission denied"):
        read_yaml(file)


def test_name_that_is_too_long_for_a_file_is_no_file() -> None:
    with pytest.raises(ConfigError, match="is not a file"):
        load_run_config("a" * 5000)
