"""What an earlier process left for MLflow, after somebody has been in the folder: told of, kept, in nobody's way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tune_experiments.cli import main
from tune_experiments.delivery_left import Left, deliver_left
from tune_experiments.undelivered import FOLDER

WRITE = {"op": "tags", "run": "r", "at_ms": 1, "values": {"tags": {}}, "number": 0}


def _left(storage: Path, header: object, write: object) -> Left:
    file = storage / FOLDER / "run.jsonl"
    file.parent.mkdir()
    text = f"{json.dumps(header)}\n{json.dumps(write)}\n"
    file.write_text(text)
    (left,) = deliver_left(storage, f"sqlite:///{storage}/mlflow.db", other_stores=True)
    assert file.read_text() == text
    return left


@pytest.mark.parametrize("values", [3, {"foo": 1}, {"tags": 3}])
def test_write_that_somebody_changed_is_kept_and_told_of(tmp_path: Path, values: object) -> None:
    header = {"tracking_uri": f"sqlite:///{tmp_path}/mlflow.db", "experiment": "e"}
    left = _left(tmp_path, header, {**WRITE, "values": values})
    assert (left.delivered, left.waiting) == (0, 1) and "a write in the file cannot be read" in left.reason


def test_write_that_the_store_refuses_is_dropped_and_counted_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / FOLDER / "run.jsonl"
    file.parent.mkdir()
    store = f"sqlite:///{tmp_path}/mlflow.db"
    lines = [
        {"tracking_uri": store, "experiment": "e"},
        {
            "op": "create",
            "run": "local-1",
            "at_ms": 1,
            "values": {"name": "r", "tags": {}, "find_name": False},
            "number": 0,
        },
        {"op": "nosuch", "run": "local-1", "at_ms": 2, "values": {}, "number": 1},
    ]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert main(["deliver", str(tmp_path)]) == 1
    assert "1 writes delivered" in (said := capsys.readouterr().out) and "1 refused and dropped" in said
    assert not file.exists()


@pytest.mark.parametrize(
    "header", [{"tracking_uri": 3, "experiment": "e"}, {"tracking_uri": "sqlite:///x", "experiment": 3}]
)
def test_header_of_another_kind_is_told_of(tmp_path: Path, header: object) -> None:
    assert "tracking_uri and experiment must be texts" in str(_left(tmp_path, header, WRITE))


def test_link_that_leads_nowhere_is_told_of(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "run.jsonl").symlink_to(tmp_path / "nowhere")
    (left,) = deliver_left(tmp_path, f"sqlite:///{tmp_path}/mlflow.db")
    assert "No such file" in str(left)


def test_path_that_is_too_long_is_no_directory(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deliver", "a" * 5000]) == 2
    assert "is not a directory" in capsys.readouterr().err
