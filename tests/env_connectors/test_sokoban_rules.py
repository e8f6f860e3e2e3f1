"""Sokoban as played: the text environment against gym-sokoban itself, rewards, texts, and invalid moves."""

import random

import numpy as np
import pytest

from env_connectors import EnvConfigError, Task, make_text_env
from env_connectors.sokoban.engine import generate_board, load_engine
from env_connectors.sokoban.env import SokobanTextEnv
from env_connectors.sokoban.text import MOVES, Board, coords_text, grid_text

_THREE_BOXES = "#######\n#___#_#\n#_X___#\n#S_XO_#\n###___#\n#*____#\n#######"
_SMALL = "######\n#__O_#\n#____#\n#_X#_#\n#_P__#\n######"


def _env(**kwargs: object) -> SokobanTextEnv:
    env = make_text_env("arlarena/Sokoban-6x6-1-v0", **kwargs)
    assert isinstance(env, SokobanTextEnv)
    return env


def _on_board(text: str, **kwargs: object) -> SokobanTextEnv:
    """Return an environment in the middle of an episode on a board of one's own."""
    env = _env(**kwargs)
    env.reset()
    env.task = lambda task_id: Task(task_id, {"board": text})  # type: ignore[method-assign]
    env.reset(options={"task_id": "own"})
    return env


def _native(size: int, boxes: int, index: int) -> object:
    """Return gym-sokoban's own environment on raw board `index`, set up by its own reset."""
    engine = load_engine().SokobanEnv(dim_room=(size, size), max_steps=10**6, num_boxes=boxes, reset=False)
    first, second = np.random.SeedSequence([0, size, boxes, index]).generate_state(2)
    random.seed(int(first))
    np.random.seed(int(second))
    engine.reset()
    return engine


@pytest.mark.parametrize(("size", "boxes", "count"), [(6, 1, 30), (6, 2, 20), (7, 2, 10), (7, 3, 3)])
def test_random_play_matches_gym_sokoban_move_by_move(size: int, boxes: int, count: int) -> None:
    rng, pushes, solved = random.Random(0), 0, 0
    for index in range(count):
        board = generate_board(size, boxes, 0, index)
        if board is None:
            continue
        native = _native(size, boxes, index)
        env = _on_board(board.to_text(), max_turns=10**6)
        for _ in range(80):
            action = rng.choice(list(MOVES))
            _, reward, done, info = native.step(1 + list(MOVES).index(action), "tiny_rgb_array")  # type: ignore[attr-defined]
            _, our_reward, terminated, _, our_info = env.step(action)
            pushes += info["action.moved_box"]
            assert (our_reward, terminated) == (reward, done)
            assert our_info["moved"] == info["action.moved_player"]
            assert env.board is not None
            assert _as_array(env.board).tolist() == native.room_state.tolist()  # type: ignore[attr-defined]
            if done:
                solved += 1
                break
    assert pushes > 10
    assert solved > 0 or boxes > 1


def _as_array(board: Board) -> np.ndarray:
    codes = {"#": 0, "_": 1, "O": 2, "*": 3, "X": 4, "P": 5, "S": 5}
    return np.array([[codes[symbol] for symbol in row] for row in board.to_text().split("\n")])


def test_rewards_follow_boxes_on_and_off_targets() -> None:
    env = _on_board("#######\n#P_XO_#\n#____O#\n#___X_#\n#######")
    rewards = [env.step(action)[1] for action in ("right", "right", "right", "left")]
    assert rewards == pytest.approx([-0.1, 0.9, -1.1, -0.1])


def test_solving_move_gives_eleven_less_the_turn_cost() -> None:
    env = _on_board("#####\n#PXO#\n#####")
    observation, reward, terminated, truncated, info = env.step("right")
    assert observation == "walls goal 1,3 you 1,2 box 1,3"
    assert reward == pytest.approx(10.9)
    assert (terminated, truncated, info["success"], info["boxes_left"]) == (True, False, True, 0)


def test_start_with_a_box_on_a_target_counts_it_from_the_start() -> None:
    env = _on_board(_THREE_BOXES)
    _, reward, _, _, info = env.step("right")
    assert reward == pytest.approx(-0.1)
    assert info["progress"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("action", ["", "jump", "up down", "上", "u", "x" * 10_000])
def test_invalid_action_stands_still_and_costs_a_turn(action: str) -> None:
    env = _env()
    before, start = env.reset(options={"task_id": "6x6-1/000004"})
    after, reward, terminated, truncated, info = env.step(action)
    assert after == before
    assert (reward, terminated, truncated) == (pytest.approx(-0.1), False, False)
    assert (info["action_valid"], info["turn"], info["anchor"]) == (False, 1, start["anchor"])


@pytest.mark.parametrize("action", ["UP", " up\n", "Up"])
def test_action_in_any_case_is_valid(action: str) -> None:
    env = _on_board(_SMALL)
    assert env.step(action)[0] == "walls 3,3 goal 1,3 you 3,2 box 2,2"


def test_blocked_move_is_valid_but_moves_nothing() -> None:
    env = _on_board(_SMALL)
    _, _, _, _, info = env.step("down")
    assert (info["action_valid"], info["moved"]) == (True, False)


@pytest.mark.parametrize(
    ("kind", "text", "brief"),
    [
        ("coords", "walls 3,3 goal 1,3 you 4,2 box 3,2", "you 4,2 box 3,2"),
        ("grid", "# # # # # #\n# _ _ O _ #\n# _ _ _ _ #\n# _ X # _ #\n# _ P _ _ #\n# # # # # #", None),
        (
            "grid_coords",
            "# # # # # #\n# _ _ O _ #\n# _ _ _ _ #\n# _ X # _ #\n# _ P _ _ #\n# # # # # #\n"
            "walls 3,3 goal 1,3 you 4,2 box 3,2",
            "you 4,2 box 3,2",
        ),
    ],
)
def test_observation_texts_are_exact(kind: str, text: str, brief: str | None) -> None:
    env = _on_board(_SMALL, observation=kind, render_mode="ansi")
    observation, info = env.reset(options={"task_id": "own"})
    assert observation == text
    assert info["brief"] == (brief or text)
    assert info["anchor"].endswith(" you 4,2 box 3,2")
    assert env.render() == _SMALL


def test_texts_with_several_boxes_list_them_sorted_and_show_every_sign() -> None:
    board = Board.from_text(_THREE_BOXES)
    assert coords_text(board) == "walls 1,4 4,1 4,2 goal 3,1 3,4 5,1 you 3,1 box 2,2 3,3 5,1"
    assert grid_text(board).replace(" ", "") == board.to_text() == _THREE_BOXES


def test_anchor_is_equal_exactly_for_equal_states() -> None:
    env = _on_board(_SMALL)
    walk = ["left", "right", "right", "left", "down"]
    anchors = [env.step(action)[4]["anchor"] for action in walk]
    assert anchors[1] == anchors[3] == anchors[4]
    assert len(set(anchors)) == 3


def test_anchor_differs_between_boards_with_equal_positions() -> None:
    one = _on_board(_SMALL).step("down")[4]
    other = _on_board(_SMALL.replace("__O_", "_O__")).step("down")[4]
    assert one["brief"] == other["brief"]
    assert one["anchor"] != other["anchor"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("####\n#PX#\n####", "1 players, 1 boxes and 0 targets"),
        ("#####\n#_XO#\n#####", "0 players"),
        ("#####\n#PPXO#\n#####", "not a rectangle"),
        ("#####\n#P?O#\n#####", "not a rectangle"),
        ("#####\n#PXO_\n#####", "open at the border"),
    ],
)
def test_board_text_that_is_no_board_is_refused(text: str, named: str) -> None:
    with pytest.raises(EnvConfigError, match=named):
        Board.from_text(text)


def test_playing_leaves_the_global_random_generators_alone() -> None:
    random.seed(5)
    np.random.seed(6)
    states = random.getstate(), str(np.random.get_state())
    generate_board(6, 2, 0, 3)
    env = _env()
    env.reset(seed=1)
    env.step("up")
    assert (random.getstate(), str(np.random.get_state())) == states
