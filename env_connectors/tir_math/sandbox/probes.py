"""Hostile programs, each with what must come of it. They run in a sandbox whose self-test has passed, and nowhere else.

A program prints REACHED when it got what it wanted. `python -m env_connectors.tir_math.sandbox` prints the table, the
tests run every row.
"""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Iterator

from env_connectors.tir_math.sandbox.inside import syscalls
from env_connectors.tir_math.sandbox.result import RunResult, Status
from env_connectors.tir_math.sandbox.sandbox import Session

AFTER = "print(open('/tmp/kept').read(), 6 * 7)"
"""A call that must work as ever after each probe, in the same session; `BEFORE` comes before."""
BEFORE = "open('/tmp/kept', 'w').write('kept')"


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """One hostile program."""

    name: str
    code: str
    contained_by: str
    status: Status
    shows: str = ""
    """Text that must stand in the result."""
    stdin: str = ""

    def is_contained(self, result: RunResult) -> bool:
        """Return whether this is the result that it must have."""
        return "REACHED" not in result.text and result.status is self.status and self.shows in result.text


_TRY = """
import os, sys, ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, action):
    try:
        value = action()
    except (OSError, ValueError) as error:
        print(name, type(error).__name__, getattr(error, "strerror", None) or error)
    else:
        print("REACHED", name, value)
def call(name, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(NR[name], *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
"""


def _numbers() -> dict[str, int]:
    machine = platform.machine()
    return syscalls.numbers(machine if machine in syscalls.ARCHITECTURES else "x86_64")


def _program(text: str) -> str:
    names = {name: number for name, number in _numbers().items() if f'"{name}"' in text}
    return f"NR = {names}{_TRY}{text}"


def _killed(name: str, text: str) -> Probe:
    return Probe(name, _program(text), "system call filter: killed", Status.FILTER, "not allowed")


_READ = """
for path in ("/etc/passwd", "/etc/shadow", "/etc/hostname", "/root", "/home", "/work", "/var", "/usr/bin", "/sys",
             "/proc/self/maps", "/proc/1/environ", "/proc/1/root/etc/passwd", "/dev/mem", "/dev/vda", "/dev/kmsg"):
    attempt(path, lambda: os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(20))
attempt("..", lambda: open("../" * 30 + "etc/passwd").read())
"""
_WRITE = """
for path in ("/x", "/usr/lib/x", "/python/bin/x", "/packages/numpy/x", "/sandbox/inside/x", "/dev/x", "/dev/shm/x",
             "/proc/x", "/etc/x"):
    attempt(path, lambda: open(path, "w"))
attempt("chmod", lambda: os.chmod("/python/bin/python3", 0o777))
attempt("unlink", lambda: os.unlink("/sandbox/inside/zygote.py"))
attempt("rename /tmp", lambda: os.rename("/tmp", "/tmp2"))
attempt("truncate", lambda: os.truncate(os.__file__, 0))
attempt("hard link", lambda: os.link(os.__file__, "/tmp/os.py"))
"""
_NETWORK = """
import socket
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, 16, 17, 38, 40):  # netlink, packet, crypto, vsock
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
        attempt(f"socket {family} {kind}", lambda: socket.socket(family, kind))
import urllib.request
try:
    urllib.request.urlopen("http://127.0.0.1:80", timeout=1)
    print("REACHED network")
except OSError as error:
    print(error)
"""
_FORKS = """
refused = 0
for _ in range(10000):
    try:
        if os.fork() == 0:
            print("REACHED fork", flush=True)
    except OSError as error:
        refused += 1
print("refused", refused)
import subprocess, multiprocessing
attempt("subprocess", lambda: subprocess.run(["/python/bin/python3", "-c", "print('REACHED')"]))
attempt("posix_spawn", lambda: os.posix_spawn("/python/bin/python3", ["python3"], {}))
attempt("clone", lambda: call("clone", 17, 0, 0, 0, 0))
attempt("clone with namespaces", lambda: call("clone", 17 | 0x10000000 | 0x40000000, 0, 0, 0, 0))
attempt("clone3", lambda: call("clone3", ctypes.create_string_buffer(88), 88))
attempt("exec", lambda: os.execv("/python/bin/python3", ["python3", "-c", "print('REACHED')"]))
attempt("exec of memory", lambda: call("execveat", -1, ctypes.c_char_p(b""), 0, 0, 0x1000))
"""
_DAEMON = """
import threading, time
def late():
    while True:
        time.sleep(0.05)
        open("/tmp/alive", "w").write(str(time.time()))
threading.Thread(target=late, daemon=True).start()
try:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            late()
        os._exit(0)
except OSError as error:
    print("daemon", error)
time.sleep(0.1)
"""
_SIGNALS = """
import signal
for target in (1, os.getppid(), -1, 0, 2, 3):
    for number in (0, signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
        attempt(f"kill {target} {number}", lambda: os.kill(target, number))
attempt("killpg", lambda: os.killpg(os.getpgid(1), signal.SIGKILL))
attempt("tgkill", lambda: call("tgkill", 1, 1, 9))
import fcntl
r, w = os.pipe()
attempt("signals by descriptor", lambda: fcntl.fcntl(r, 8, 1))
attempt("which signal", lambda: fcntl.fcntl(r, 10, 9))
"""
_PARENT = """
import resource
attempt("limits of the session", lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3)))
attempt("priority of the session", lambda: os.setpriority(os.PRIO_PROCESS, 1, 19))
attempt("cores of the session", lambda: os.sched_setaffinity(1, {0}))
for which in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE):
    attempt("raise a limit", lambda: resource.setrlimit(which, (resource.RLIM_INFINITY,) * 2))
attempt("dumpable", lambda: call("prctl", 4, 1, 0, 0, 0))
attempt("new filter", lambda: call("prctl", 22, 2, 0, 0, 0))
attempt("subreaper", lambda: call("prctl", 36, 1, 0, 0, 0))
attempt("uid", lambda: os.setuid(0))
attempt("session id", lambda: os.setsid())
"""
_PROC = """
attempt("list", lambda: os.listdir("/proc/self"))
for pid in range(0, 400):
    for name in ("", "/cmdline", "/environ", "/mem", "/fd", "/ns/mnt", "/root"):
        if os.path.lexists(f"/proc/{pid}{name}") and pid:
            print("REACHED", pid, name)
for path in ("/proc/sys/kernel/core_pattern", "/proc/mounts", "/proc/sysrq-trigger", "/proc/net/tcp"):
    attempt(path, lambda: open(path).read())
print(os.listdir("/proc") if os.path.isdir("/proc") else "no /proc")
"""
_LINKS = """
for name, target in (("passwd", "/etc/passwd"), ("root", "/proc/1/root"), ("up", "../../../etc"), ("out", "/proc/self/fd/1"),
                     ("main.py", "/sandbox/inside/zygote.py"), ("self", "/tmp/self"), ("kept2", "/dev/stdout")):
    os.symlink(target, name)
    attempt(name, lambda: open(name, "r+").read())
for name in ("numpy.py", "json.py", "sitecustomize.py", "zygote.py"):
    open(name, "w").write("print('REACHED', __file__)")
os.mkdir("deep")
for _ in range(200):
    os.mkdir("d" * 200), os.chdir("d" * 200)
os.chmod("/tmp/deep", 0)
os.chmod("/tmp", 0)
"""
_CHANNEL = """
import fcntl, resource
mine = []
for fd in range(0, 1024):
    try:
        fcntl.fcntl(fd, 1)
        mine.append(fd)
    except OSError:
        pass
print("open", mine, flush=True)
os.write(3, b"M" * 1000)
for fd in mine:
    try:
        os.write(fd, b'\\x00\\x00\\x00\\x02{}' * 3)
    except OSError as error:
        pass
if any(fd > 3 for fd in mine):
    print("REACHED", mine, flush=True)
attempt("write to standard input", lambda: os.write(0, b"x"))
for fd in mine:
    os.close(fd)
os.dup2(os.open("/tmp/log", os.O_RDWR | os.O_CREAT), 1)
raise RuntimeError("nobody hears this")
"""
_STATE = """
import builtins, sys, json, random, numpy, linecache, traceback, threading, atexit
builtins.print = builtins.open = builtins.len = None
sys.modules["json"] = sys.modules["math"] = None
sys.stdout = None
os.environ.clear()
numpy.linalg.solve = numpy.add = None
traceback.print_exception = threading._shutdown = atexit._run_exitfuncs = linecache.getline = None
os._exit = sys.exit = os.write = None
"""
_FILES = """
import itertools
def many():
    for number in itertools.count():
        open(f"/tmp/f{number}", "w").close()
def big():
    with open("/tmp/big", "wb") as file:
        while True:
            file.write(b"x" * (1 << 20))
def descriptors():
    opened = []
    try:
        while True:
            opened.append(os.open("/dev/null", os.O_RDONLY))
    finally:
        os.closerange(opened[0], opened[-1] + 1)
def more():
    for number in itertools.count():
        with open(f"/tmp/more{number}", "wb") as file:
            file.write(b"x" * (1 << 20))
for name, action in (("descriptors", descriptors), ("big file", big), ("many big files", more)):
    attempt(name, action)
def clear():
    for name in os.listdir("/tmp"):
        if name.startswith(("f", "big", "more")):
            os.unlink("/tmp/" + name)
clear()
attempt("many files", many)
clear()
"""
_SHARED = """
for name, number in (("shmget", {"x86_64": 29, "aarch64": 194}), ("msgget", {"x86_64": 68, "aarch64": 186}),
                     ("semget", {"x86_64": 64, "aarch64": 190}), ("mq_open", {"x86_64": 240, "aarch64": 180}),
                     ("memfd_create", {"x86_64": 319, "aarch64": 279}), ("inotify_init1", {"x86_64": 294, "aarch64": 26}),
                     ("personality", {"x86_64": 135, "aarch64": 92}), ("syslog", {"x86_64": 103, "aarch64": 116})):
    NR[name] = number[os.uname().machine]
    attempt(name, lambda: call(name, 0, 4096, 0o1600, 0))
from multiprocessing import shared_memory
attempt("shared_memory", lambda: shared_memory.SharedMemory(create=True, size=100))
"""
_THREADS = """
import threading, time
threading.stack_size(1 << 16)
started = 0
try:
    while True:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        started += 1
except RuntimeError as error:
    print(error, started)
"""
_I386 = """
import mmap
memory = mmap.mmap(-1, 4096, prot=7)
memory.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20 (getpid of i386); int 0x80; ret
print("REACHED", ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))())
"""


def _probes() -> Iterator[Probe]:
    mounts, filtered, limits = "mount namespace", "system call filter: EPERM", "rlimits"
    yield Probe(
        "read host files", _program(_READ), f"{mounts}: they do not exist", Status.OK, "No such file or directory"
    )
    yield Probe("write outside /tmp", _program(_WRITE), f"{mounts}: read-only", Status.OK, "Read-only file system")
    yield Probe(
        "network, all families", _program(_NETWORK), f"{filtered}; empty network namespace", Status.OK, "not permitted"
    )
    yield Probe("fork bomb, subprocess, exec", _program(_FORKS), filtered, Status.OK, "refused 10000")
    yield Probe("daemon that outlives the call", _program(_DAEMON), f"{filtered}; PID namespace", Status.OK, "daemon")
    yield Probe(
        "kill parent, all, by descriptor", _program(_SIGNALS), f"{filtered}; PID namespace", Status.OK, "kill -1"
    )
    yield Probe("change the session's limits", _program(_PARENT), filtered, Status.OK, "limits of the session")
    yield Probe("walk /proc", _program(_PROC), "no /proc is mounted", Status.OK, "No such file")
    yield Probe("symlinks, traps in /tmp, chmod 0", _program(_LINKS), "the session opens no path in /tmp", Status.OK)
    forged = "the session trusts what it sees, not what it is told"
    yield Probe("write to, then close all descriptors", _program(_CHANNEL), forged, Status.MEMORY, "open [0, 1, 2, 3]")
    yield Probe("spoil builtins, modules, os._exit", _program(_STATE), "a process per call", Status.EXIT)
    yield Probe(
        "fill /tmp, descriptors", _program(_FILES), "tmpfs size and inodes, rlimits", Status.OK, "No space left"
    )
    yield Probe(
        "shared memory, queues, memfd", _program(_SHARED), "system call filter: ENOSYS", Status.OK, "not implemented"
    )
    yield Probe(
        "thread bomb",
        _program(_THREADS),
        "threads counted by the session",
        Status.THREADS,
        "The program was stopped: it had more than",
    )
    yield Probe("memory bomb, list", "x = []\nwhile True: x.append('x' * 10**6)", limits, Status.MEMORY, "MemoryError")
    yield Probe("memory bomb, numpy", "import numpy\nx = numpy.ones(10**10)", limits, Status.MEMORY, "MemoryError")
    mapped = "import mmap\nx = []\nwhile True: x.append(mmap.mmap(-1, 1 << 26)); x[-1].write(b'x' * (1 << 26))"
    yield Probe("memory bomb, shared mappings", mapped, limits, Status.MEMORY, "MemoryError")
    yield Probe(
        "endless output",
        "while True: print('x' * 1000)",
        "output counted by the session",
        Status.OUTPUT,
        "The output was cut",
    )
    errors = "import sys\nwhile True: sys.stderr.write('x' * 10**6)"
    yield Probe("endless error output", errors, "output counted by the session", Status.OUTPUT, "error output was cut")
    yield Probe(
        "10 MB of output", "print('x' * 10**7)", "only the first part is kept", Status.OK, "of 9.54 MB are kept"
    )
    yield Probe("sleep", "print('begun'); import time; time.sleep(10**6)", "wall clock", Status.TIMEOUT, "begun")
    yield Probe("busy loop", "while True: pass", "wall clock", Status.TIMEOUT, "stopped after")
    yield Probe("busy in C", "print(len(str(10**10**8)))", "wall clock", Status.TIMEOUT, "stopped after")
    stubborn = (
        "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except OSError: pass\n"
    )
    yield Probe("busy with all signals ignored", stubborn + "while True: pass", "wall clock, SIGKILL", Status.TIMEOUT)
    end = "import atexit, threading, time\natexit.register(time.sleep, 999)\n"
    end += "threading.Thread(target=time.sleep, args=(999,)).start()"
    yield Probe("exit handler and thread that wait", end, "wall clock", Status.TIMEOUT)
    yield Probe(
        "standard input",
        "print(input()[::-1]); input()",
        "a sealed file, not the owner's",
        Status.ERROR,
        "olleh",
        "hello",
    )
    yield Probe("unicode", "print('π √2 \\u6570 \\U0001f600')", "-", Status.OK, "π √2 \u6570 \U0001f600")
    yield Probe("surrogates in output", "print('\\ud800')", "as in Python", Status.ERROR, "UnicodeEncodeError")
    yield Probe("surrogates in the program", "print('\ud800')", "as in Python", Status.ERROR, "UnicodeEncodeError")
    raw = "import sys; sys.stdout.buffer.write(b'ok \\xff\\x00\\x1b[2J\\n')"
    yield Probe("invalid bytes in output", raw, "decoded with replacement", Status.OK, "ok \ufffd")
    yield Probe("huge integer", "print(2**100000)", "as in Python", Status.ERROR, "Exceeds the limit")
    yield Probe(
        "import of a missing package", "import pandas", "nothing else is there", Status.MISSING, "No module 'pandas'"
    )
    yield Probe("exit code", "import sys; sys.exit(7)", "-", Status.EXIT, "exit code 7")
    yield Probe(
        "os._exit",
        "import os; print('lost', flush=True); os._exit(9)",
        "a process per call",
        Status.EXIT,
        "exit code 9",
    )
    yield Probe("abort", "import os; os.abort()", "a process per call", Status.CRASH, "SIGABRT")
    yield Probe(
        "segmentation fault", "import ctypes; ctypes.string_at(0)", "a process per call", Status.CRASH, "SIGSEGV"
    )
    deep = "import sys; sys.setrecursionlimit(10**9)\nclass A:\n    __add__ = lambda a, b: a + b\nA() + A()"
    yield Probe("endless recursion in C", deep, "a process per call", Status.CRASH, "SIGSEGV")
    suicide = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    yield Probe("kills itself", suicide, "a process per call", Status.CRASH, "SIGKILL")
    nasty = "class E(Exception):\n    def __str__(self): import os; os.abort()\nraise E"
    yield Probe("exception that cannot be printed", nasty, "a process per call", Status.CRASH)
    yield _killed("ptrace of the session", 'attempt("ptrace", lambda: call("ptrace", 16, 1, 0, 0))')
    yield _killed("read the session's memory", 'attempt("read", lambda: call("process_vm_readv", 1, 0, 0, 0, 0, 0))')
    yield _killed("mount", 'attempt("mount", lambda: libc.mount(b"proc", b"/tmp", b"proc", 0, None))')
    yield _killed("nested user namespace", 'attempt("unshare", lambda: call("unshare", 0x10000000))')
    yield _killed("enter a namespace", 'attempt("setns", lambda: call("setns", 0, 0))')
    yield _killed("keyctl", 'attempt("keyctl", lambda: call("keyctl", 0, -3, 1))')
    yield _killed("bpf", 'attempt("bpf", lambda: call("bpf", 0, 0, 0))')
    yield _killed(
        "io_uring", 'attempt("io_uring", lambda: call("io_uring_setup", 8, ctypes.create_string_buffer(120)))'
    )
    yield _killed("userfaultfd", 'attempt("userfaultfd", lambda: call("userfaultfd", 1))')
    yield _killed("perf_event_open", 'attempt("perf", lambda: call("perf_event_open", 0, 0, -1, -1, 0))')
    yield _killed("pidfd_open", 'attempt("pidfd", lambda: call("pidfd_open", 1, 0))')
    if platform.machine() == "x86_64":
        yield _killed("32-bit system call", _I386)
        yield _killed("x32 system call", 'attempt("x32", lambda: libc.syscall(0x40000000 + 39))')


PROBES = tuple(_probes())


def run(session: Session, probe: Probe, *, timeout_s: float | None = None) -> tuple[RunResult, bool]:
    """Run a probe between two honest calls; return its result, and whether it was contained and left the session sound.

    Raises:
        RuntimeError: the sandbox's self-test has not passed; nothing was run.
    """
    report = session.sandbox.report
    if not report or not all(finding.is_contained for finding in report):
        raise RuntimeError("Probes run in a sandbox whose self-test has passed, and nowhere else.")
    session.run(BEFORE, timeout_s=30.0)
    result = session.run(probe.code, probe.stdin, timeout_s=timeout_s)
    after = session.run(AFTER, timeout_s=30.0)
    return result, probe.is_contained(result) and after.status is Status.OK and after.stdout == "kept 42\n"
