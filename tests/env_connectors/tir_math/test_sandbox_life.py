"""Nothing outlives its owner: not a process, not a file; and nothing that breaks is the end of the sandbox."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from env_connectors.tir_math.sandbox import Sandbox, SandboxError, Session, Status

REPOSITORY = Path(__file__).resolve().parents[3]
Below = Callable[[int], list[int]]
Gone = Callable[[list[int]], bool]


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10.0
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


def _idle(sandbox: Sandbox, below: Below) -> list[int]:
    """Return bwrap and the fork server; the session of the self-test has ended."""
    assert sandbox.pid is not None
    pid = sandbox.pid
    _wait_for(lambda: len(below(pid)) == 2)
    return below(pid)


def test_sixteen_sessions_at_once_do_not_mix(sandbox: Sandbox) -> None:
    sessions = [sandbox.session() for _ in range(16)]

    def work(number: int) -> list[str]:
        said = [
            sessions[number].run(f"open('n', 'a').write('{number} '); print({number} ** 2)").stdout for _ in range(3)
        ]
        return [*said, sessions[number].run("print(open('n').read())").stdout]

    with ThreadPoolExecutor(16) as pool:
        for number, said in enumerate(pool.map(work, range(16))):
            assert said == [f"{number**2}\n"] * 3 + [f"{number} " * 3 + "\n"]
    for session in sessions:
        session.close()


def test_no_process_is_left_after_a_killed_call_a_session_and_a_close(
    small_sandbox: Sandbox, below: Below, gone: Gone
) -> None:
    idle = _idle(small_sandbox, below)
    assert small_sandbox.pid is not None
    session = small_sandbox.session()
    _wait_for(lambda: len(below(small_sandbox.pid or 0)) == len(idle) + 1)
    assert session.run("while True: pass", timeout_s=0.3).status is Status.TIMEOUT
    assert len(below(small_sandbox.pid)) == len(idle) + 1
    session.close()
    _wait_for(lambda: below(small_sandbox.pid or 0) == idle)
    small_sandbox.close()
    small_sandbox.close()
    assert gone(idle) and small_sandbox.pid is None
    with pytest.raises(SandboxError, match="closed"):
        small_sandbox.session()


def test_close_ends_a_call_that_runs_in_another_thread(small_sandbox: Sandbox, below: Below, gone: Gone) -> None:
    quiet = len(_idle(small_sandbox, below)) + 1
    session = small_sandbox.session()
    assert small_sandbox.pid is not None
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(session.run, "while True: pass", timeout_s=60.0)
        _wait_for(lambda: len(below(small_sandbox.pid or 0)) == quiet + 1)
        members = below(small_sandbox.pid)
        began = time.monotonic()
        small_sandbox.close()
        with pytest.raises(SandboxError, match="closed"):
            call.result(10.0)
    assert time.monotonic() - began < 10.0 and gone(members)


_OWNER = """
import os, sys, threading, time
from env_connectors.tir_math.sandbox import Sandbox
sandbox = Sandbox(packages=())
session = sandbox.session()
threading.Thread(target=session.run, args=("while True: pass",), kwargs={"timeout_s": 100.0}, daemon=True).start()
if sys.argv[1] == "fork":
    if os.fork() == 0:
        time.sleep(5)  # holds copies of every socket
        os._exit(0)
print(sandbox.pid, flush=True)
if sys.argv[1] == "close":
    time.sleep(1)
    sys.exit()
time.sleep(100)
"""


@pytest.mark.parametrize("way", ["kill", "fork", "close"])
def test_no_process_is_left_when_the_owner_ends(sandbox: Sandbox, below: Below, gone: Gone, way: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, sys.path)])}
    line = [sys.executable, "-c", _OWNER, way]
    owner = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    _wait_for(lambda: len(below(pid)) >= 4)  # bwrap, fork server, session, call
    members = below(pid)
    if way != "close":
        owner.send_signal(signal.SIGKILL)
    owner.wait(20.0)
    assert gone(members)


def test_host_sees_a_call_without_rights_behind_a_filter(small_sandbox: Sandbox, below: Below) -> None:
    server = _idle(small_sandbox, below)
    session = small_sandbox.session()
    assert small_sandbox.pid is not None
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(session.run, "print('on', flush=True); import time; time.sleep(60)", timeout_s=3.0)
        _wait_for(lambda: len(below(small_sandbox.pid or 0)) == len(server) + 2)
        process = Path(f"/proc/{below(small_sandbox.pid)[-1]}")
        _wait_for(lambda: "Seccomp:\t2" in (process / "status").read_text())
        status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines() if ":\t" in line)
        assert status["NoNewPrivs"] == "1" and {status[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Amb")} == {
            "0" * 16
        }
        assert status["NSpid"].split()[-1] != status["Pid"] and len(status["NSpid"].split()) >= 3
        assert (process / "oom_score_adj").read_text() == "1000\n"
        for kind in ("mnt", "net", "pid", "ipc", "user", "uts"):
            assert os.readlink(process / "ns" / kind) != os.readlink(f"/proc/self/ns/{kind}")
        small_sandbox.close()
        with pytest.raises(SandboxError):
            call.result(10.0)


def test_sandbox_outlives_the_thread_that_started_it(sandbox: Sandbox) -> None:
    other = Sandbox(packages=())
    thread = threading.Thread(target=other.start)
    thread.start()
    thread.join()
    with other, other.session() as session:
        time.sleep(0.2)
        assert session.run("print(1)").stdout == "1\n"


def test_lost_session_is_a_result_and_the_next_call_has_a_new_one(
    small_sandbox: Sandbox, below: Below, gone: Gone
) -> None:
    idle = _idle(small_sandbox, below)
    assert small_sandbox.pid is not None
    session = small_sandbox.session()
    session.run("open('/tmp/x', 'w')")
    _wait_for(lambda: len(below(small_sandbox.pid or 0)) == len(idle) + 1)
    (its,) = set(below(small_sandbox.pid)) - set(idle)
    os.kill(its, signal.SIGKILL)
    assert gone([its])
    assert session.run("print(1)").status is Status.LOST
    assert session.run("import os; print(os.listdir('/tmp'))").stdout == "[]\n"


def test_lost_sandbox_is_started_again_and_proved_again(small_sandbox: Sandbox, below: Below, gone: Gone) -> None:
    session = small_sandbox.session()
    assert small_sandbox.pid is not None
    members = below(small_sandbox.pid)
    os.kill(members[1], signal.SIGKILL)  # the fork server: process 1 of the namespace
    assert gone(members)
    small_sandbox.report.clear()
    assert session.run("print(1)").status is Status.LOST
    assert session.run("print(2)").stdout == "2\n"
    assert small_sandbox.report and small_sandbox.pid not in members


def test_nothing_is_written_on_the_host(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Sandbox(packages=()) as other, other.session() as session:
        session.run("open('/tmp/x', 'w').write('x')")
        session.run("while True: print('x')", timeout_s=0.2)
    assert list(tmp_path.rglob("*")) == []


def test_forked_process_may_not_use_its_parents_sandbox(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -5)
    with pytest.raises(SandboxError, match="another process"):
        session.run("pass")
