"""An episode as a page, written out by hand."""

from arlarena_rllib.trajectory import StopReason, Trajectory, Turn
from tune_experiments.show import trajectory_text


def _turn(observation: str, reply: str, action: str, format_valid: bool, action_valid: bool, reward: float) -> Turn:
    return Turn([1], [2], [-0.1], [1], [0], reply, action, format_valid, action_valid, "state", reward, observation)


def test_page_of_an_episode() -> None:
    turns = [
        _turn("a room\n\nfind the egg", "<think>a</think><action>fly</action>", "fly", True, False, 0.0),
        _turn("Nothing happens.", "look", "look", False, False, 0.0),
        _turn("egg " * 30, "<think>b</think><action>take egg</action>", "take egg", True, True, 10.0),
    ]
    trajectory = Trajectory("kitchen/7", 0, 0, turns=turns, stop_reason=StopReason.SUCCESS, success=True)
    trajectory.task_type, trajectory.env_metrics = "pick", {"walk_frac": 0.25}
    assert trajectory_text(trajectory).splitlines() == [
        "kitchen/7 (pick)",
        "3 turns, ended with success, return 10",
        "  walk_frac 0.250",
        "--- turn 1",
        "  a room",
        "",
        "  find the egg",
        "> <think>a</think><action>fly</action>",
        "  = fly   [not admissible]",
        "--- turn 2",
        "  Nothing happens.",
        "> look",
        "  = look   [not in the asked form]",
        "--- turn 3",
        "  " + ("egg " * 27).strip(),
        "  egg egg egg",
        "> <think>b</think><action>take egg</action>",
        "  = take egg   [reward 10]",
    ]


def test_page_of_a_failed_episode_tells_the_error() -> None:
    trajectory = Trajectory("k", 0, 0, stop_reason=StopReason.ENV_ERROR, error="the engine died")
    assert trajectory_text(trajectory) == "k\n0 turns, ended with env_error: the engine died, return 0"
