"""Shipped Sokoban levels: same boards everywhere, solutions that work, held-out boards that stay held out."""

import gzip
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from env_connectors import EnvConfigError, PanelError, make_text_env
from env_connectors.errors import EnvContractError
from env_connectors.sokoban import generate
from env_connectors.sokoban.levels import (
    LEVELS,
    LevelFile,
    LevelSpec,
    _load_levels,
    dump_levels,
    load_levels,
    symmetries,
    twin_key,
)
from env_connectors.sokoban.solver import solve
from env_connectors.sokoban.text import Board
from env_connectors.task_panel import SPLITS

_SPECS = list(LEVELS.values())
_PANELS = {
    "6x6-1": ((4162, 256, 384), "8830a0eb77dc05db"),
    "6x6-2": ((3870, 256, 384), "45ab0e20fd3e5e61"),
    "7x7-2": ((4320, 256, 384), "2320c2c43b557f38"),
    "10x10-4": ((37, 10, 10), "fe92198ceb6df59e"),
}
_MAKE_SMALL = ["--size", "6", "--boxes", "2", "--raw", "25", "--seed", "3", "--min-solution", "2"]


def _by_name(spec: LevelSpec) -> str:
    return spec.name


def _env_id(spec: LevelSpec) -> str:
    return f"arlarena/Sokoban-{spec.name}-v0"


@pytest.fixture(scope="module")
def small_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A level file made by the command, 25 raw boards."""
    path = tmp_path_factory.mktemp("levels") / "small.txt.gz"
    assert generate.main([*_MAKE_SMALL, "--out", str(path)]) == 0
    return path


@pytest.mark.parametrize("spec", _SPECS, ids=_by_name)
def test_shipped_panel_is_pinned(spec: LevelSpec) -> None:
    panel = make_text_env(_env_id(spec)).tasks()
    assert (tuple(len(panel.split(name)) for name in SPLITS), panel.panel_hash) == _PANELS[spec.name]


@pytest.mark.parametrize("spec", _SPECS, ids=_by_name)
def test_shipped_file_is_small_and_says_how_it_was_made(spec: LevelSpec) -> None:
    header = load_levels(spec.path).header
    made = {name: header[name] for name in ("size", "boxes", "raw", "seed", "min_solution", "max_solution")}
    bounds = {"min_solution": spec.min_solution, "max_solution": spec.max_solution}
    assert made == {"size": spec.size, "boxes": spec.boxes, "raw": spec.raw, "seed": 0, **bounds}
    assert spec.path.stat().st_size < 300_000


@pytest.mark.parametrize("spec", _SPECS, ids=_by_name)
def test_shipped_boards_are_unique_and_within_bounds(spec: LevelSpec) -> None:
    levels = load_levels(spec.path).levels
    assert len({level.board for level in levels}) == len({level.index for level in levels}) == len(levels)
    assert all(spec.min_solution <= len(level.letters) <= spec.max_solution for level in levels)
    boards = [Board.from_text(level.board) for level in levels]
    assert {(b.height, b.width, len(b.boxes)) for b in boards} == {(spec.size, spec.size, spec.boxes)}
    assert not any(board.boxes & board.targets for board in boards)


@pytest.mark.parametrize("spec", _SPECS, ids=_by_name)
def test_held_out_boards_have_no_twin_in_another_split(spec: LevelSpec) -> None:
    env = make_text_env(_env_id(spec))
    panel = env.tasks()
    copies = [
        {copy for task_id in panel.split(name) for copy in symmetries(env.task(task_id).content["board"])}
        for name in SPLITS
    ]
    assert sum(map(len, copies)) == len(set.union(*copies))


@pytest.mark.parametrize("spec", _SPECS, ids=_by_name)
def test_held_out_panels_hold_one_board_of_each_symmetry_class(spec: LevelSpec) -> None:
    env = make_text_env(_env_id(spec))
    for name in ("validation", "test"):
        keys = [env.task(task_id).split_key for task_id in env.tasks().split(name)]
        assert len(set(keys)) == len(keys)


def test_plan_leads_to_success_from_wherever_the_player_stands() -> None:
    env = make_text_env("arlarena/Sokoban-6x6-1-v0")
    rng = np.random.default_rng(0)
    deadlocked = 0
    for task_id in env.tasks().train[:40]:
        env.reset(options={"task_id": task_id})
        for _ in range(3):
            *_, terminated, _, info = env.step(str(rng.choice(env.admissible())))
            if terminated:
                break
        plan = env.plan()
        if info["success"]:
            assert plan == []
            continue
        deadlocked += not plan
        for thought, action in plan:
            assert thought.startswith(("push ", "walk "))
            *_, terminated, truncated, info = env.step(action)
        if plan and not truncated:
            assert terminated and info["success"]
    assert deadlocked < 20


def test_plan_of_an_environment_that_cannot_replan_says_so() -> None:
    env = make_text_env("arlarena/Guess-v0")
    env.reset(options={"task_id": env.tasks().train[0]})
    assert [action for _, action in env.plan()] == env.gold_actions(env.tasks().train[0])
    env.step("0")
    with pytest.raises(EnvContractError, match=r"override plan\(\)"):
        env.plan()


@pytest.mark.parametrize(("spec", "count"), zip(_SPECS, (200, 100, 60, 20), strict=True), ids=lambda v: str(v)[:24])
def test_gold_on_a_sample_of_tasks_gives_success_in_turn_budget(spec: LevelSpec, count: int) -> None:
    env = make_text_env(_env_id(spec))
    panel = env.tasks()
    for task_id in (*panel.train[: count // 2], *panel.test[: count // 4], *panel.validation[: count // 4]):
        env.reset(options={"task_id": task_id})
        gold = env.gold_actions(task_id)
        *_, last = [env.step(action) for action in gold]
        assert last[2] and last[4]["success"] and last[4]["turn"] == len(gold)
        assert len(env.gold_thoughts(task_id)) == len(gold)


@pytest.mark.parametrize(("spec", "step"), zip(_SPECS, (40, 60, 80, 20), strict=True), ids=lambda v: str(v)[:24])
def test_stored_solution_is_what_the_solver_finds(spec: LevelSpec, step: int) -> None:
    for level in load_levels(spec.path).levels[::step]:
        assert solve(Board.from_text(level.board)) == level.actions


@pytest.mark.parametrize("spec", _SPECS[:3], ids=_by_name)
def test_shipped_boards_come_from_their_seed_under_any_hash_seed(spec: LevelSpec) -> None:
    code = (
        "from env_connectors.sokoban.engine import generate_board\n"
        f"for i in range(40):\n b = generate_board({spec.size}, {spec.boxes}, 0, i)\n"
        " print(b and b.to_text().replace(chr(10), '/'))\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)}
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    boards = finished.stdout.splitlines()
    assert len(boards) == 40
    shipped = [level for level in load_levels(spec.path).levels if level.index < 40]
    assert len(shipped) > 5
    assert [boards[level.index] for level in shipped] == [level.board.replace("\n", "/") for level in shipped]
    assert finished.stderr == ""


def test_loading_the_shipped_6x6_1_file_is_fast_and_cached() -> None:
    spec, seconds = LEVELS["6x6-1"], []
    for _ in range(5):
        _load_levels.cache_clear()
        started = time.process_time()
        first = load_levels(spec.path)
        seconds.append(time.process_time() - started)
    assert min(seconds) < 0.05
    assert load_levels(spec.path) is first


def test_second_environment_shares_boards_and_panel() -> None:
    one, other = (make_text_env("arlarena/Sokoban-6x6-1-v0") for _ in range(2))
    assert one.tasks() is other.tasks()


def test_generate_twice_gives_equal_bytes_and_reports_progress(
    small_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = tmp_path / "again.txt.gz"
    generate.main([*_MAKE_SMALL, "--out", str(again)])
    assert again.read_bytes() == small_file.read_bytes()
    assert again.read_bytes()[4:8] == bytes(4)  # gzip's time field
    printed = capsys.readouterr()
    assert "6x6-2: 25/25 raw, " in printed.err
    assert printed.out.startswith(f"{again}: ")


def test_generate_without_needed_options_says_which(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        generate.main(["--size", "6"])
    assert "give --level, or all of --size --boxes --raw --out" in capsys.readouterr().err


def test_own_level_file_is_played(small_file: Path) -> None:
    env = make_text_env("arlarena/Sokoban-6x6-2-v0", levels_file=small_file, max_solution=30, n_validation=3, n_test=3)
    ids = {task_id for name in SPLITS for task_id in env.tasks().split(name)}
    assert 10 < len(ids) <= 25
    assert all(task_id.startswith("6x6-2/0000") for task_id in ids)


def test_tighter_bounds_keep_only_boards_inside() -> None:
    env = make_text_env("arlarena/Sokoban-6x6-1-v0", min_solution=6, max_solution=7, n_validation=50, n_test=50)
    lengths = {len(env.gold_actions(task_id)) for task_id in env.tasks().train}
    assert lengths == {6, 7}


def test_dump_then_load_gives_the_same_levels(small_file: Path, tmp_path: Path) -> None:
    loaded = load_levels(small_file)
    header = {key: value for key, value in loaded.header.items() if key not in ("format", "count", "sha256")}
    copy = tmp_path / "copy.gz"
    copy.write_bytes(dump_levels(loaded.levels, header))
    assert load_levels(copy) == LevelFile(loaded.header, loaded.levels)


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _altered(data: bytes) -> bytes:
    return gzip.compress(gzip.decompress(data).replace(b"/#_", b"/##", 1))


def _bare_header(data: bytes) -> bytes:
    return gzip.compress(gzip.decompress(data).replace(b'"min_solution"', b'"min"', 1))


def _other_format(data: bytes) -> bytes:
    return gzip.compress(b'{"format": "levels/0"}\n')


def _no_gzip(data: bytes) -> bytes:
    return b"######"


def _no_header(data: bytes) -> bytes:
    return gzip.compress(b"######\n#PXO_#\n######")


@pytest.mark.parametrize("damage", [_cut, _altered, _bare_header, _other_format, _no_gzip, _no_header])
def test_damaged_level_file_is_refused_with_the_command(damage: object, small_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "damaged.txt.gz"
    path.write_bytes(damage(small_file.read_bytes()))  # type: ignore[operator]
    with pytest.raises(EnvConfigError) as caught:
        make_text_env("arlarena/Sokoban-6x6-1-v0", levels_file=path)
    assert repr(str(path)) in str(caught.value)
    assert "python -m env_connectors.sokoban.generate --size" in str(caught.value)


def test_missing_shipped_file_names_its_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("env_connectors.sokoban.levels.DATA_FOLDER", tmp_path)
    with pytest.raises(
        EnvConfigError, match=r"7x7-2\.txt\.gz.*python -m env_connectors\.sokoban\.generate --level 7x7-2"
    ):
        make_text_env("arlarena/Sokoban-7x7-2-v0")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"level": "5x5-1"}, "level='5x5-1'"),
        ({"observation": "image"}, "observation='image'"),
        ({"min_solution": 1}, "min_solution=1"),
        ({"max_solution": 40}, "max_solution=40"),
        ({"min_solution": 9, "max_solution": 8}, "min_solution=9 and max_solution=8"),
        ({"levels_file": LEVELS["6x6-2"].path}, "holds level 6x6-2"),
    ],
)
def test_bad_argument_is_named(arguments: dict, named: str) -> None:
    with pytest.raises(EnvConfigError, match=named):
        make_text_env("arlarena/Sokoban-6x6-1-v0", **arguments)


def test_panels_larger_than_the_file_are_refused() -> None:
    with pytest.raises(PanelError, match="n_validation=90000"):
        make_text_env("arlarena/Sokoban-6x6-1-v0", n_validation=90_000)


def test_symmetries_are_the_eight_turned_and_mirrored_boards() -> None:
    board = "abc\ndef\nghi"
    copies = symmetries(board)
    assert copies[0] == board
    assert set(copies) == {
        "abc\ndef\nghi", "cba\nfed\nihg", "gda\nheb\nifc", "adg\nbeh\ncfi",
        "ihg\nfed\ncba", "ghi\ndef\nabc", "cfi\nbeh\nadg", "ifc\nheb\ngda",
    }  # fmt: skip
    assert len({twin_key(copy) for copy in copies}) == 1
    assert twin_key(board) != twin_key("abc\ndef\nghj")


def test_twin_keys_of_the_shipped_file_are_those_of_its_boards() -> None:
    levels = load_levels(LEVELS["6x6-1"].path).levels
    assert all(twin_key(level.board) == level.twin_key for level in levels[::5])
