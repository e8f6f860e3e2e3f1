"""Proof, at every start, that programs are shut in: it tries to get out, with harmless means, before any program runs."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
from collections.abc import Callable, Sequence
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

before = os.listdir("/tmp")
write(os.path.join("/tmp", facts["name"]))  # the owner looks whether it is there
attempt("read a file of the owner", lambda: open(facts["file"]).read(100))
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
attempt("write beside the owner's file", lambda: write(os.path.join(os.path.dirname(facts["file"]), facts["name"])))
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
    "tmp": before,
}
print(json.dumps([seen, facts_seen]))
"""
_EXPECTED_ATTEMPTS = 23


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One attempt of the self-test."""

    name: str
    is_contained: bool
    seen: str
    """What stopped it, or what it reached."""


def run(run_program: Callable[..., RunResult]) -> list[Finding]:
    """Try to leave the sandbox and return what came of it.

    Args:
        run_program: `Session.run` of a fresh session.
    """
    from env_connectors.tir_math.sandbox.bwrap import ENVIRONMENT

    own = Path(__file__).resolve()
    name = f"arlarena-selftest-{secrets.token_hex(8)}"
    facts = {
        "file": str(own),
        "owner": os.getpid(),
        "name": name,
        "environment": [*ENVIRONMENT, "PYTHONPATH", "LD_LIBRARY_PATH", "PWD", "LC_CTYPE"],
    }
    result = run_program(_TRY, json.dumps(facts), timeout_s=_TIMEOUT_S)
    written = [file for file in (Path("/tmp") / name, own.with_name(name)) if os.path.exists(file)]
    for file in written:
        file.unlink(missing_ok=True)
    return verdict(result, written)


def verdict(result: RunResult, written: Sequence[Path]) -> list[Finding]:
    """Return the findings that an answer of the self-test's program means; doubt is never contained.

    Args:
        result: Of the program.
        written: The program's files that the owner found on the host.
    """
    try:
        seen, facts = json.loads(result.stdout)
        attempts = {str(name): (str(what), str(detail)) for name, (what, detail) in seen.items()}
    except (ValueError, TypeError, AttributeError):
        return [Finding("the self-test", False, f"it did not run to its end: {result.text[-300:]!r}")]
    findings = [Finding(name, what == "refused", detail) for name, (what, detail) in attempts.items()]
    complete = result.status is Status.OK and len(attempts) >= _EXPECTED_ATTEMPTS
    findings.append(Finding("the self-test ran to its end", complete, f"{len(attempts)} attempts, {result.status}"))
    told = ", ".join(map(str, written)) or "not there"
    findings.append(Finding("a file written inside, seen from the host", not written, told))
    for key, wanted in (("capabilities", 0), ("environment", []), ("uid", 65534), ("tmp", [])):
        value = facts.get(key, "missing") if isinstance(facts, dict) else "missing"
        findings.append(Finding(key, value == wanted, str(value)))
    return findings
