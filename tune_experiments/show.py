"""One episode as a page to read: what was seen, what was answered, what came of it."""

from __future__ import annotations

import textwrap

from arlarena_rllib.trajectory import Trajectory, Turn

_WIDTH = 110


def trajectory_text(trajectory: Trajectory) -> str:
    """Return an episode in lines: its task and how it ended, then each turn's observation, reply, flags and reward."""
    kind = f" ({trajectory.task_type})" if trajectory.task_type else ""
    error = f": {trajectory.error}" if trajectory.error else ""
    head = (
        f"{trajectory.task_id}{kind}\n{len(trajectory.turns)} turns, ended with {trajectory.stop_reason.value}{error}, "
        f"return {trajectory.episode_return:g}"
    )
    numbers = "".join(f"\n  {name} {value:.3f}" for name, value in sorted(trajectory.env_metrics.items()))
    return "\n".join([head + numbers, *(_turn_text(n, turn) for n, turn in enumerate(trajectory.turns, start=1))])


def _turn_text(number: int, turn: Turn) -> str:
    flags = [
        *([] if turn.format_valid else ["not in the asked form"]),
        *([] if turn.action_valid or not turn.format_valid else ["not admissible"]),
        *([f"reward {turn.reward:g}"] if turn.reward else []),
    ]
    note = f"   [{', '.join(flags)}]" if flags else ""
    return "\n".join(
        [f"--- turn {number}", _wrapped(turn.observation, "  "), _wrapped(turn.reply, "> "), f"  = {turn.action}{note}"]
    )


def _wrapped(text: str, indent: str) -> str:
    """Return the text in lines that fit, each after the same sign."""
    lines = [piece for line in text.splitlines() for piece in textwrap.wrap(line, _WIDTH) or [""]]
    return "\n".join(f"{indent}{line}".rstrip() for line in lines)
