"""The Sokoban solver: fewest moves (against plain breadth-first search), deadlocks, and the texts of its plan."""

from collections import deque

import pytest

from env_connectors.sokoban.engine import generate_board
from env_connectors.sokoban.solver import is_deadlocked, push_plan, solve
from env_connectors.sokoban.text import MOVES, Board

_State = tuple[tuple[int, int], frozenset]


def _successors(board: Board, state: _State) -> list[_State]:
    """Return the states after each move that moves the player (rules written down a second time)."""
    (row, column), boxes = state
    result = []
    for down, right in MOVES.values():
        ahead, beyond = (row + down, column + right), (row + 2 * down, column + 2 * right)
        if ahead in board.walls or (ahead in boxes and (beyond in board.walls or beyond in boxes)):
            continue
        result.append((ahead, (boxes - {ahead}) | {beyond} if ahead in boxes else boxes))
    return result


def _fewest_moves(board: Board) -> int | None:
    start = (board.player, board.boxes)
    known, queue = {start: 0}, deque([start])
    while queue:
        state = queue.popleft()
        if state[1] == board.targets:
            return known[state]
        for following in _successors(board, state):
            if following not in known:
                known[following] = known[state] + 1
                queue.append(following)
    return None


def _replayed(board: Board, actions: list[str]) -> frozenset:
    player, boxes = board.player, board.boxes
    for action in actions:
        ahead = (player[0] + MOVES[action][0], player[1] + MOVES[action][1])
        (following,) = [s for s in _successors(board, (player, boxes)) if s[0] == ahead]
        player, boxes = following
    return boxes


@pytest.mark.parametrize(("size", "boxes", "count"), [(6, 1, 150), (6, 2, 60), (7, 2, 25), (6, 3, 15)])
def test_solve_on_raw_boards_gives_the_fewest_moves(size: int, boxes: int, count: int) -> None:
    boards = [generate_board(size, boxes, 9, index) for index in range(count)]
    solvable = [board for board in boards if board is not None]
    assert len(solvable) > count // 2
    for board in solvable:
        actions = solve(board)
        assert actions is not None
        assert len(actions) == _fewest_moves(board)
        assert _replayed(board, actions) == board.targets


@pytest.mark.parametrize("index", range(6))
def test_is_deadlocked_agrees_with_search_on_every_reachable_state(index: int) -> None:
    board = generate_board(6, 2, 4, index)
    assert board is not None
    states, queue = {(board.player, board.boxes)}, deque([(board.player, board.boxes)])
    while queue and len(states) < 150:
        for following in _successors(board, queue.popleft()):
            if following not in states:
                states.add(following)
                queue.append(following)
    for player, boxes in states:
        here = Board(board.height, board.width, board.walls, board.targets, boxes, player)
        assert is_deadlocked(here) == (_fewest_moves(here) is None)


@pytest.mark.parametrize(
    ("text", "is_dead"),
    [
        ("######\n#_O__#\n#__X_#\n#P___#\n######", False),
        ("######\n#X_O_#\n#____#\n#P___#\n######", True),
        ("######\n#XX_O#\n#____#\n#P__O#\n######", True),
        ("#######\n#_XX__#\n#_O_O_#\n#P____#\n#######", True),
        ("######\n#P#__#\n###XO#\n######", True),
        ("######\n#_*P_#\n######", False),
    ],
)
def test_is_deadlocked_on_known_positions(text: str, is_dead: bool) -> None:
    assert is_deadlocked(Board.from_text(text)) is is_dead


def test_solve_on_a_solved_board_is_empty() -> None:
    assert solve(Board.from_text("#####\n#P_*#\n#####")) == []


def test_solve_prefers_few_moves_over_few_pushes() -> None:
    board = Board.from_text("#######\n#_____#\n#PX_O_#\n#_____#\n#######")
    assert solve(board) == ["right", "right"]


def test_push_plan_names_the_next_push_until_it_is_done() -> None:
    board = Board.from_text("######\n#___O#\n#____#\n#_X#_#\n#_P__#\n######")
    actions = ["up", "up", "left", "up", "right", "right"]
    assert solve(board) == actions
    assert push_plan(board, actions) == [
        "push up from 4,2",
        "push up from 3,2",
        "push right from 1,1",
        "push right from 1,1",
        "push right from 1,1",
        "push right from 1,2",
    ]


def test_push_plan_after_the_last_push_names_the_walk() -> None:
    board = Board.from_text("######\n#PX_O#\n#____#\n######")
    assert push_plan(board, ["right", "down", "left"]) == ["push right from 1,1", "walk down", "walk left"]
