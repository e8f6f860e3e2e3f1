"""Proof, at every start, that programs are shut in: it tries to get out, with harmless means, before any program runs."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path

from env_connectors.tir_math.sandbox.result import RunResult, Status

_TIMEOUT_S = 30.0
_TRY = """
import ctypes, errno, json, os, socket, sys
facts = json.loads(sys.stdin.read())
seen = {}

def attempt(name, action):
    try:
        seen[name] = ["reached", repr(action())[:200]]
    except OSError as error:
        seen[name] = ["refused", errno.errorcode.get(error.errno, str(error.errno))]

def write(path):
    with open(path, "w") as file:
        file.write("out of the sandbox")

def execute():
    try:
        os.execv("/no/such/program", ["x"])
    except PermissionError:
        raise
    except OSError as error:
        return error  # it was looked for

def found(path):
    return os.stat(path).st_size

attempt("read a secret file of the owner", lambda: open(facts["secret"]).read())
attempt("find this project on the host", lambda: found(facts["project"]))
for path in ("/etc/passwd", "/usr/bin/env", "/home", "/root", "/var", "/sys", "/run"):
    attempt("find " + path, lambda: found(path))
attempt("look at processes", lambda: found("/proc/self"))
owner = facts["owner"] if facts["owner"] != os.getpid() else 1  # the same number in another namespace
attempt("signal the owner", lambda: os.kill(owner, 0))
attempt("signal the session", lambda: os.kill(1, 0))
attempt("open an internet socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
attempt("open a local socket", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
attempt("start a process", lambda: os.fork() or os._exit(0))
attempt("run a program", execute)
attempt("write beside the owner's file", lambda: write(facts["target"]))
for place in ("/", "/dev", "/usr/lib", "/python", "/packages", "/sandbox/inside", os.path.dirname(os.__file__)):
    attempt("write to " + place, lambda: write(os.path.join(place, facts["name"])))

def capabilities():
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if ctypes.CDLL(None).capget(header, data):
        return "unknown"
    return sum(data) and list(data)

facts_seen = {
    "capabilities": capabilities(),
    "environment": sorted(set(os.environ) - set(facts["environment"])),
    "uid": os.getuid(),
    "tmp": os.listdir("/tmp"),
}
print(json.dumps([seen, facts_seen]))
"""
_EXPECTED_ATTEMPTS = 24


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One attempt of the self-test."""

    name: str
    is_contained: bool
    seen: str
    """What stopped it, or what it reached."""


def _secret_file() -> tuple[Path, str]:
    folder = Path(tempfile.mkdtemp(prefix="arlarena-selftest-"))
    text = secrets.token_hex(16)
    (folder / "secret").write_text(text)
    return folder, text


def run(run_program: Callable[..., RunResult]) -> list[Finding]:
    """Try to leave the sandbox and return what came of it.

    Args:
        run_program: `Session.run` of a fresh session.
    """
    from env_connectors.tir_math.sandbox.bwrap import ENVIRONMENT

    folder, secret = _secret_file()
    name = f"arlarena-selftest-{secrets.token_hex(8)}"
    facts = {
        "secret": str(folder / "secret"),
        "target": str(folder / "target"),
        "project": str(Path(__file__).resolve()),
        "owner": os.getpid(),
        "name": name,
        "environment": [*ENVIRONMENT, "PYTHONPATH", "LD_LIBRARY_PATH", "PWD", "LC_CTYPE"],
    }
    try:
        result = run_program(_TRY, json.dumps(facts), timeout_s=_TIMEOUT_S)
        return verdict(result, secret, is_written=(folder / "target").exists())
    finally:
        for file in ("target", "secret"):
            (folder / file).unlink(missing_ok=True)
        folder.rmdir()


def verdict(result: RunResult, secret: str, *, is_written: bool) -> list[Finding]:
    """Return the findings that an answer of the self-test's program means; doubt is never contained.

    Args:
        result: Of the program.
        secret: What stood in the owner's file.
        is_written: Whether the owner found the file that the program tried to write.
    """
    try:
        seen, facts = json.loads(result.stdout)
        attempts = {str(name): (str(what), str(detail)) for name, (what, detail) in seen.items()}
    except (ValueError, TypeError, AttributeError):
        return [Finding("the self-test", False, f"it did not run to its end: {result.text[-300:]!r}")]
    findings = [Finding(name, what == "refused", detail) for name, (what, detail) in attempts.items()]
    complete = result.status is Status.OK and len(attempts) >= _EXPECTED_ATTEMPTS
    findings.append(Finding("the self-test ran to its end", complete, f"{len(attempts)} attempts, {result.status}"))
    findings.append(Finding("the secret is in no output", secret not in result.text, "searched"))
    findings.append(Finding("the owner's folder is unchanged", not is_written, "looked at from outside"))
    for key, wanted in (("capabilities", 0), ("environment", []), ("uid", 65534), ("tmp", [])):
        value = facts.get(key, "missing") if isinstance(facts, dict) else "missing"
        findings.append(Finding(key, value == wanted, str(value)))
    return findings
