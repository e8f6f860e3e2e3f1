"""An engine that dies, hangs, finds no room or a broken game: its episodes fail with the reason, the next ones go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from env_connectors import TextEnv, make_text_env
from env_connectors.alfworld import host
from env_connectors.alfworld.env import AlfworldTextEnv
from env_connectors.alfworld.host import EngineError, EngineLostError, RemoteEpisode

ENV_ID = "arlarena/ALFWorld-v0"


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _wait_gone(pid: int, timeout_s: float = 30.0) -> bool:
    until = time.monotonic() + timeout_s
    while _is_running(pid) and time.monotonic() < until:
        time.sleep(0.1)
    return not _is_running(pid)


def test_engine_killed_in_mid_episode_fails_that_episode_alone(env: TextEnv) -> None:
    task_id = env.tasks().train[0]
    first = env.reset(options={"task_id": task_id})
    pid = host.engine().pid
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EngineLostError, match=rf"engine process {pid} has died \(signal 9\)"):
        env.step("look")
    assert env.reset(options={"task_id": task_id}) == first
    assert host.engine().pid != pid and _wait_gone(pid)


def test_other_episodes_go_on_in_a_new_engine_where_they_were(env: TextEnv, small: dict[str, Any]) -> None:
    other, undisturbed = make_text_env(ENV_ID, **small), make_text_env(ENV_ID, **small)
    task_id = env.tasks().train[1]
    gold = env.gold_actions(task_id)
    for one in (env, other, undisturbed):
        one.reset(options={"task_id": task_id})
    played = [undisturbed.step(action) for action in gold]
    before = [other.step(action) for action in gold[:2]]
    os.kill(host.engine().pid, signal.SIGKILL)
    with pytest.raises(EngineLostError, match="has died"):
        env.step("look")
    assert [*before, *(other.step(action) for action in gold[2:])] == played
    assert other.reset(options={"task_id": task_id}) == undisturbed.reset(options={"task_id": task_id})


def test_interrupt_in_a_call_leaves_no_answer_for_the_next_question(env: TextEnv, small: dict[str, Any]) -> None:
    """Ctrl-C in a notebook: the answer on its way is not taken for that of another episode."""
    task_id, other = env.tasks().train[0], make_text_env(ENV_ID, **small)
    first = env.reset(options={"task_id": task_id})
    played = env.step("look")
    env.reset(options={"task_id": task_id})
    pid = host.engine().pid
    os.kill(pid, signal.SIGSTOP)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            env.step("inventory")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert _wait_gone(pid)
    assert other.reset(options={"task_id": task_id}) == first
    assert other.step("look") == played


def test_engine_that_hangs_is_killed_after_its_time(small: dict[str, Any]) -> None:
    env = make_text_env(ENV_ID, step_timeout_s=1.0, **small)
    env.reset(options={"task_id": env.tasks().train[0]})
    pid = host.engine().pid
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(EngineLostError, match=rf"engine process {pid} did not answer 'step' within 1 s"):
        env.step("look")
    assert time.monotonic() - began < 10 and _wait_gone(pid)
    make_text_env(ENV_ID, **small).reset(seed=0)


def test_a_problem_that_cannot_be_translated_is_an_error_and_the_engine_goes_on(env: TextEnv) -> None:
    assert isinstance(env, AlfworldTextEnv)
    game = env._games[env.tasks().train[0]]
    text = game.read()
    broken = type(text)(text.problem.replace("(:init", "(:init (nonsense agent1"), text.sentence, text.goal)
    env.reset(options={"task_id": env.tasks().train[0]})
    pid = host.engine().pid
    with pytest.raises(EngineError):
        RemoteEpisode("broken", lambda: broken, timeout_s=60.0)
    env.step("look")
    assert host.engine().pid == pid


def test_full_temporary_folder_does_not_matter(env: TextEnv) -> None:
    """The plain engine copies its library into TMPDIR for each episode; ours maps the installed one and writes nothing."""
    env.reset(seed=0)
    pid = host.engine().pid
    mapped = {line.split(maxsplit=5)[-1] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()}
    libraries = {name for name in mapped if "libdownward" in name}
    assert len(libraries) == 1 and "fast_downward/libdownward.so" in libraries.pop()
    opened = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir() if int(entry.name) > 2]
    assert not [name for name in opened if name.startswith(tempfile.gettempdir())]


def test_nothing_is_left_running_when_the_process_is_killed(small: dict[str, Any]) -> None:
    script = (
        "import sys, time; from env_connectors import make_text_env; from env_connectors.alfworld import host; "
        f"e = make_text_env({ENV_ID!r}, **{small!r}); e.reset(seed=0); print(host.engine().pid, flush=True); "
        "time.sleep(600)"
    )
    paths = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths}
    )
    assert process.stdout is not None
    engine = int(process.stdout.readline())
    assert _is_running(engine)
    process.kill()
    process.wait()
    assert _wait_gone(engine)


def test_episodes_of_discarded_environments_leave_the_engine(small: dict[str, Any]) -> None:
    env = make_text_env(ENV_ID, **small)
    for _ in range(20):
        make_text_env(ENV_ID, **small).reset(options={"task_id": env.tasks().train[0]})
    env.reset(options={"task_id": env.tasks().train[0]})
    env.step("look")
    assert host.engine().call("forget", timeout_s=60.0)[1] <= 2


def test_many_episodes_of_several_games_side_by_side_do_not_disturb_each_other(small: dict[str, Any]) -> None:
    envs = [make_text_env(ENV_ID, **small) for _ in range(12)]
    assert isinstance(envs[0], AlfworldTextEnv)
    ids = [envs[0].tasks().train[n % 4] for n in range(12)]
    golds = {task_id: envs[0].gold_actions(task_id) for task_id in ids}
    alone = {}
    for task_id in golds:
        envs[0].reset(options={"task_id": task_id})
        alone[task_id] = [envs[0].step(action) for action in golds[task_id]]
    for env, task_id in zip(envs, ids, strict=True):
        env.reset(options={"task_id": task_id})
    together: dict[int, list[Any]] = {n: [] for n in range(12)}
    for turn in range(max(map(len, golds.values()))):
        for n, task_id in enumerate(ids):
            if turn < len(golds[task_id]):
                together[n].append(envs[n].step(golds[task_id][turn]))
    assert all(together[n] == alone[task_id] for n, task_id in enumerate(ids))
