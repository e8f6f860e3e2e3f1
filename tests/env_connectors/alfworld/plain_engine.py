"""Plays commands with alfworld's own AlfredTWEnv parts, unchanged, in a process of its own; prints transcripts as JSON.

Reads a list of [game file, commands] from stdin and prints for each its entries [text, admissible commands, won] and the
CPU seconds of load and reset, and of all steps.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from env_connectors.alfworld import engine  # noqa: F401 - lets textworld be imported without jericho


def play(path: str, commands: list[str]) -> dict[str, Any]:
    """Return the transcript of one game."""
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
    from textworld.envs.pddl import PddlEnv

    infos = textworld.EnvInfos(won=True, admissible_commands=True, extras=["gamefile"])
    env = AlfredInfos(AlfredDemangler(PddlEnv(infos)))
    began = time.process_time()
    env.load(path)
    state = env.reset()
    ready = time.process_time()
    entries = [[state.feedback, state["admissible_commands"], bool(state["won"])]]
    for command in commands:
        state, _, _ = env.step(command)
        entries.append([state.feedback, state["admissible_commands"], bool(state["won"])])
    return {"entries": entries, "reset_s": ready - began, "steps_s": time.process_time() - ready}


if __name__ == "__main__":
    print(json.dumps([play(*job) for job in json.load(sys.stdin)]))
