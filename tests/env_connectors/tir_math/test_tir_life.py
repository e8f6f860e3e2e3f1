"""One sandbox a process, a session an episode, and nothing left behind, however the process ends."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from env_connectors import TextEnv, make_text_env
from env_connectors.errors import EnvConfigError
from env_connectors.tir_math.env import TIRMathEnv

_ID = "arlarena/TIRMath-v0"
_SMALL = {"n_train": 32, "n_validation": 4, "n_test": 4, "packages": []}
_KILLED = """
import sys
from env_connectors import make_text_env
env = make_text_env("arlarena/TIRMath-v0", n_train=32, n_validation=4, n_test=4, packages=[], style="tags")
env.reset()
env.step("<code>print(1)</code>")
env._judge.compare("p + 1", "1 + p")
print("ready", flush=True)
sys.stdin.read()
"""


def _small(**arguments: object) -> TIRMathEnv:
    env = make_text_env(_ID, **{**_SMALL, **arguments})
    assert isinstance(env, TIRMathEnv)
    return env


def test_environments_share_a_sandbox_that_ends_with_the_last_of_them(
    sandbox: object, below: Callable[[int], list[int]], gone: Callable[[list[int]], bool]
) -> None:
    limits = {"timeout_s": 6.5}  # of these environments only
    envs = [_small(limits=limits, style="tags") for _ in range(3)]
    assert {env._lease.pid for env in envs} == {None}, "nothing is started before the first episode"
    for env in envs:
        env.reset()
        env.step("<code>print(1)</code>")
    (pid,) = {env._lease.pid for env in envs}
    assert pid is not None
    assert envs[0]._judge.compare("p + 2", "2 + p").is_equal and envs[0]._judge.pid is not None
    processes = [*below(pid), envs[0]._judge.pid]
    envs[0].close()
    envs[1].close()
    envs[1].close()
    assert envs[2]._lease.pid == pid
    assert "7" in envs[2].step("<code>print(7)</code>")[0]
    envs[2].close()
    assert gone(processes)


def test_an_episode_leaves_no_session_behind(sandbox: object, below: Callable[[int], list[int]]) -> None:
    env = _small(limits={"timeout_s": 6.25}, style="tags")
    env.reset()
    assert env._lease.pid is not None
    for _ in range(5):
        env.reset()
        env.step("<code>print(1)</code>")
    seen = len(below(env._lease.pid))
    for _ in range(5):
        env.reset()
        env.step("<code>print(1)</code>")
    assert len(below(env._lease.pid)) <= seen + 1
    env.close()


def test_a_closed_environment_can_be_reset_again(sandbox: object) -> None:
    env = _small(limits={"timeout_s": 6.75}, style="tags")
    env.reset()
    env.close()
    env.reset()
    assert "3" in env.step("<code>print(3)</code>")[0]
    env.close()


def test_nothing_is_left_of_a_process_that_was_killed(
    sandbox: object, below: Callable[[int], list[int]], gone: Callable[[list[int]], bool]
) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    owner = subprocess.Popen(
        [sys.executable, "-c", _KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    assert owner.stdout is not None and owner.stdout.readline() == b"ready\n"
    processes = below(owner.pid)
    assert len(processes) >= 4, "fork server, session, judge"
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert gone(processes)
    for pipe in (owner.stdin, owner.stdout):
        assert pipe is not None
        pipe.close()


def test_threads_have_environments_of_their_own(make_tir: Callable[..., TextEnv]) -> None:
    envs = [make_tir(style="tags", packages=[]) for _ in range(6)]
    problems: list[object] = []

    def play(env: TextEnv) -> None:
        for task_id in env.tasks().train[:4]:
            env.reset(options={"task_id": task_id})
            env.step(f"<code>open('/tmp/me', 'x').write('{id(env)}')</code>")
            if str(id(env)) not in env.step("<code>print(open('/tmp/me').read())</code>")[0]:
                problems.append(task_id)

    threads = [threading.Thread(target=play, args=(env,)) for env in envs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert problems == []


def test_a_machine_that_cannot_isolate_programs_is_told_at_the_first_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARLARENA_BWRAP", str(Path("/no/bwrap")))
    env = _small(limits={"timeout_s": 7.5})
    with pytest.raises(EnvConfigError) as raised:
        env.reset()
    told = str(raised.value)
    assert told.startswith("TIRMath cannot run programs on this machine: ") and "\n" not in told
    assert "docs/sandbox.md" in told and "env_config.unsafe_no_isolation=true" in told
    env.close()


def test_a_package_that_is_not_installed_is_no_matter_of_isolation(sandbox: object) -> None:
    env = _small(packages=["no_such_package"])
    with pytest.raises(
        EnvConfigError, match=r"the package 'no_such_package' is not installed\. Remedy: pip install"
    ) as told:
        env.reset()
    assert "unsafe_no_isolation" not in str(told.value)
    env.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused")
def test_running_without_isolation_is_refused_for_root() -> None:
    env = _small(unsafe_no_isolation=True)
    with pytest.raises(EnvConfigError, match="unsafe_no_isolation=True is refused for root"):
        env.reset()
    env.close()
