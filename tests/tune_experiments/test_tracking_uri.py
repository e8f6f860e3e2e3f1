"""A tracking URI that cannot work is refused in one line before any work is done; nothing is made by the check."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from arlarena_rllib.errors import ConfigError
from tune_experiments.cli import guarded
from tune_experiments.mlflow_store import StoreUriError, TrackingError, check_store, resolve_tracking_uri


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("folder", r"/folder' is a directory\."),
        ("text.db", r"/text\.db' cannot be opened \(file is not a database\)\."),
        ("text.db/deeper/mlflow.db", r"cannot be made: .*/text\.db is not a directory\."),
    ],
)
def test_sqlite_file_that_cannot_be_opened_or_made_is_refused_at_once(tmp_path: Path, path: str, problem: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.db").write_text("a letter, and no database")
    with pytest.raises(ConfigError, match=rf"tracking_uri='sqlite:///.*{problem} Allowed .*sqlite:///<absolute path>"):
        check_store(resolve_tracking_uri(f"sqlite:///{tmp_path}/{path}", tmp_path), "e")


def test_sqlite_file_that_can_be_made_is_left_to_the_run(tmp_path: Path) -> None:
    check_store(resolve_tracking_uri(f"sqlite:///{tmp_path}/new/mlflow.db", tmp_path), "e")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        (
            "postgresql://user:secret@host/db",
            r"'postgresql://host/db' needs the Python package 'psycopg2?', which is not",
        ),
        ("mysql+pymysql://host/db", r"needs the Python package 'pymysql'"),
        ("sqlite+nothing:///file.db", r"is not understood \(Can't load plugin"),
        ("sqlite://", r"names no file"),
        ("nonsense", r"'nonsense' is that of no server and no database\. Allowed .*http\(s\)"),
        ("foo:bar", r"'foo:bar' is that of no server"),
        ("file:///runs", r"'file:///runs' is that of no server"),
        ("http://", r"'http://' names no server"),
        ("http://user:secret@[", r"'http://\[' is no URI \(Invalid IPv6 URL\)"),
        ("http://host:99999", r"is no URI \(Port out of range"),
    ],
)
def test_database_without_driver_is_one_line_of_bad_input(
    uri: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(StoreUriError, match=problem) as caught:
        check_store(uri, "e")
    assert isinstance(caught.value, TrackingError) and str(pickle.loads(pickle.dumps(caught.value))) == str(
        caught.value
    )

    def command() -> int:
        check_store(uri, "e")
        return 0

    assert guarded(command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("configuration error: tracking_uri=") and "secret" not in line
