"""Finding games by the stated order, naming broken ones, and panels that never move."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from env_connectors import EnvConfigError, make_text_env
from env_connectors.alfworld.games import GameFileError, collect_games, data_root, find_root
from env_connectors.alfworld.generate import main, write_games
from env_connectors.alfworld.generated import GeneratedSpec, generate_games
from env_connectors.alfworld.goals import TASK_TYPES
from env_connectors.alfworld.host import close_engine
from env_connectors.task_panel import SPLITS

ENV_ID = "arlarena/ALFWorld-v0"
SPEC = GeneratedSpec(n_train=6, n_seen=6, n_unseen=6, rooms=2, unseen_rooms=1, max_receptacles=8, max_things=10)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with 6 generated games in each split."""
    assert write_games(tmp_path / "data", SPEC) == {"train": 6, "valid_seen": 6, "valid_unseen": 6}
    return tmp_path / "data"


def test_data_is_looked_for_in_the_stated_order(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    assert find_root(None) is None and find_root("generated") is None
    monkeypatch.setenv("ALFWORLD_DATA", str(folder))
    assert find_root(None) == folder / "json_2.1.1" == find_root(str(folder / "json_2.1.1"))
    assert find_root("generated") is None
    monkeypatch.setenv("MY_GAMES", str(folder))
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "nowhere"))
    assert find_root("$MY_GAMES") == folder / "json_2.1.1"
    with pytest.raises(EnvConfigError, match=r"^\$ALFWORLD_DATA: .*nowhere.* holds no ALFWorld games"):
        find_root(None)


def test_generated_games_from_a_folder_are_those_made_in_memory(folder: Path) -> None:
    env = make_text_env(ENV_ID, data=str(folder))
    values = {name: getattr(SPEC, name) for name in ("n_train", "n_seen", "n_unseen", "rooms", "unseen_rooms")}
    other = make_text_env(ENV_ID, data="generated", generated={**values, "max_receptacles": 8, "max_things": 10})
    assert env.data == other.data == "generated"
    assert env.tasks() == other.tasks()


def test_plain_alfworld_would_collect_all_generated_games(folder: Path) -> None:
    for path in folder.rglob("game.tw-pddl"):
        assert json.loads(path.read_text())["solvable"] is True
        kind = json.loads((path.parent / "traj_data.json").read_text())["task_type"]
        assert kind in TASK_TYPES and path.parent.parent.name.startswith(kind)


def test_splits_share_no_combination_and_unseen_no_room() -> None:
    games = generate_games(GeneratedSpec(n_train=96, n_seen=36, n_unseen=36)).games
    folders = {split: {game.task.task_id.split("/")[2] for game in found} for split, found in games.items()}
    rooms = {split: {name.rsplit("-", 1)[1] for name in found} for split, found in folders.items()}
    assert not folders["train"] & folders["valid_seen"]
    assert not rooms["valid_unseen"] & (rooms["train"] | rooms["valid_seen"])
    for found in games.values():
        assert {game.task_type for game in found} == set(TASK_TYPES)


def test_equal_seeds_give_equal_games_and_others_differ() -> None:
    made = [generate_games.__wrapped__(SPEC, TASK_TYPES) for _ in range(2)]
    assert made[0].games == made[1].games
    other = generate_games(GeneratedSpec(**{**vars(SPEC), "seed": 1})).games["train"]
    assert not {game.task.content_hash for game in other} & {game.task.content_hash for game in made[0].games["train"]}


def test_panel_hashes_are_equal_under_other_hash_seeds(folder: Path) -> None:
    line = (
        "from env_connectors import make_text_env; import sys; "
        f"e = make_text_env('{ENV_ID}', data=sys.argv[1]); print(e.tasks().panel_hash, e.data)"
    )
    seen = set()
    for hash_seed in ("1", "2"):
        for data in (str(folder), "generated"):
            values = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            command = [sys.executable, "-c", line, data]
            seen.add((data, subprocess.run(command, env=values, capture_output=True, text=True, check=True).stdout))
    assert len(seen) == 2 and all(out.endswith(" generated\n") for _, out in seen)


def test_evaluation_never_redraws(folder: Path) -> None:
    """The panel is the same in every instance, a subset is its beginning, and an id is one game for all members."""
    whole = make_text_env(ENV_ID, data=str(folder)).tasks()
    part = make_text_env(ENV_ID, data=str(folder), n_validation=4, n_test=2).tasks()
    assert (part.validation, part.test) == (whole.validation[:4], whole.test[:2])
    env, member = make_text_env(ENV_ID, data=str(folder)), make_text_env(ENV_ID, data=str(folder))
    task_id = whole.validation[0]
    first = env.reset(seed=1, options={"task_id": task_id})
    env.reset(seed=3)
    env.step("look")
    assert env.reset(seed=2, options={"task_id": task_id}) == first == member.reset(options={"task_id": task_id})


def test_task_types_choose_games(folder: Path) -> None:
    panel = make_text_env(ENV_ID, data=str(folder), task_types=["pick_two_obj_and_place"]).tasks()
    assert [len(panel.split(name)) for name in SPLITS] == [1, 1, 1]


@pytest.mark.parametrize("harm", ["cut", "empty", "no goal", "no task", "list"])
def test_broken_games_are_named_and_skipped_with_a_count(
    folder: Path, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = sorted((folder / "json_2.1.1" / "train").rglob("game.tw-pddl"))[2]
    text = path.read_text()
    game = json.loads(text)
    harmed: dict[str, Any] = {
        "cut": text[: len(text) // 2],
        "empty": "",
        "no goal": json.dumps({**game, "pddl_problem": game["pddl_problem"].replace("Type)", ")")}),
        "no task": json.dumps({**game, "grammar": "{}"}),
        "list": "[1, 2]",
    }
    path.write_text(harmed[harm])
    env = make_text_env(ENV_ID, data=str(folder))
    assert len(env.tasks().train) == 5
    assert list(env.skipped) == [str(path.parent)]  # type: ignore[attr-defined]
    assert "1 broken ALFWorld games" in caplog.text and path.parent.name in caplog.text


def test_unplayable_folders_are_left_out_without_a_complaint(folder: Path) -> None:
    games = sorted((folder / "json_2.1.1" / "train").rglob("game.tw-pddl"))
    games[0].write_text(json.dumps({**json.loads(games[0].read_text()), "solvable": False}))
    games[1].unlink()
    games[2].parent.parent.rename(games[2].parent.parent.with_name("pick_and_place_with_movable_recep-A-B-C-1"))
    found = collect_games(data_root(folder))
    assert (len(found.games["train"]), found.unplayable, found.broken) == (3, 3, {})


def test_empty_data_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "json_2.1.1" / "train").mkdir(parents=True)
    with pytest.raises(EnvConfigError, match="holds no playable game: 0 are broken and 0 are not for the text engine"):
        make_text_env(ENV_ID, data=str(tmp_path))
    shutil.rmtree(tmp_path / "json_2.1.1")
    with pytest.raises(EnvConfigError, match=r"holds no ALFWorld games: neither .* has a folder train"):
        make_text_env(ENV_ID, data=str(tmp_path))


def test_a_game_that_changed_after_it_was_found_is_refused(folder: Path) -> None:
    close_engine()  # one that holds the game already would not ask for its file
    env = make_text_env(ENV_ID, data=str(folder))
    task_id = env.tasks().train[0]
    path = folder / "json_2.1.1" / task_id.removeprefix("generated/") / "game.tw-pddl"
    game = json.loads(path.read_text())
    path.write_text(json.dumps({**game, "pddl_problem": game["pddl_problem"].replace("(openable ", "(coolable ", 1)}))
    with pytest.raises(GameFileError, match="is not the one it was"):
        env.reset(options={"task_id": task_id})
    env.reset(options={"task_id": env.tasks().train[1]})


def test_a_folder_is_not_written_twice(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(folder), "--n-train", "1"]) == 1
    assert "holds games already" in capsys.readouterr().err
