"""The filter's program, run on paper: a small interpreter for the instructions that it uses."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from env_connectors.tir_math.sandbox.inside import bpf, syscalls

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386, ARM = 0x40000003, 0x40000028
ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
PID = 4242


def _run(code: bytes, arch: int, number: int, *arguments: int) -> int:
    """Return what the kernel would: seccomp_data is number, architecture, instruction pointer, six arguments."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", number, arch, 0, *(value & (2**64 - 1) for value in padded))
    at, accumulator = 0, 0
    instructions = list(struct.iter_unpack("<HBBI", code))
    assert len(instructions) < 4096  # the kernel's limit
    while True:
        operation, if_true, if_false, k = instructions[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, k)
        elif operation == 0x54:
            accumulator &= k
        elif operation in (0x15, 0x35):
            at += if_true if (accumulator == k if operation == 0x15 else accumulator >= k) else if_false
        else:
            assert operation == 0x06
            return k


@pytest.fixture(params=sorted(ARCHITECTURES))
def machine(request: pytest.FixtureRequest) -> str:
    """Both architectures, whatever this machine is."""
    return request.param


def test_listed_calls_are_allowed_refused_or_deadly(machine: str) -> None:
    code, table = bpf.for_process(bpf.program(machine), PID), syscalls.numbers(machine)
    arch = ARCHITECTURES[machine]
    for names, verdict in ((bpf.ALLOWED, ALLOW), (bpf.REFUSED, EPERM), (bpf.KILLED, KILL)):
        present = [name for name in names if name in table]
        assert present and {_run(code, arch, table[name]) for name in present} == {verdict}


def test_every_other_number_does_not_exist(machine: str) -> None:
    code, known = bpf.for_process(bpf.program(machine), PID), set(syscalls.numbers(machine).values())
    others = [number for number in range(600) if number not in known]
    assert len(others) > 250
    assert {_run(code, ARCHITECTURES[machine], number) for number in others} == {ENOSYS}


def test_another_architectures_call_kills(machine: str) -> None:
    code, arch = bpf.for_process(bpf.program(machine), PID), ARCHITECTURES[machine]
    for other in {I386, ARM, 0, *ARCHITECTURES.values()} - {arch}:
        assert {_run(code, other, number) for number in range(500)} == {KILL}
    if machine == "x86_64":
        assert _run(code, arch, 0x40000000) == _run(code, arch, 0x40000000 + 39) == _run(code, arch, 0xFFFFFFFF) == KILL


def test_arguments_decide(machine: str) -> None:
    code, table, arch = bpf.for_process(bpf.program(machine), PID), syscalls.numbers(machine), ARCHITECTURES[machine]

    def verdict(name: str, *arguments: int) -> int:
        return _run(code, arch, table[name], *arguments)

    assert verdict("kill", PID, 9) == verdict("tgkill", PID, 7, 6) == ALLOW
    assert {verdict("kill", pid, 9) for pid in (1, 0, -1, -PID, PID + 1, bpf.ITSELF)} == {EPERM}
    assert {verdict("tgkill", pid, pid, 9) for pid in (1, PID + 1, bpf.ITSELF)} == {EPERM}
    thread = 0x3D0F00  # what pthread_create asks for
    assert verdict("clone", thread) == ALLOW
    assert {verdict("clone", flags) for flags in (17, 0, 0x4111, thread & ~0x10000)} == {EPERM}
    for bit in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert verdict("clone", thread | bit) == EPERM
    assert verdict("clone3") == ENOSYS
    assert verdict("prlimit64", 0) == ALLOW and verdict("prlimit64", 1) == EPERM
    assert verdict("prctl", 15) == ALLOW and {verdict("prctl", option) for option in (1, 4, 8, 22, 36, 38)} == {EPERM}
    assert verdict("fcntl", 5, 2) == ALLOW and {verdict("fcntl", 5, c) for c in (8, 10, 15, 1024, 1026)} == {EPERM}
    assert verdict("ioctl", 0, 0x5401) == ALLOW and {verdict("ioctl", 0, c) for c in (0x5412, 0x8901, 0x540E)} == {
        EPERM
    }
    assert verdict("socketpair", 1) == ALLOW and verdict("socketpair", 2) == EPERM


def test_no_call_is_in_two_lists_and_all_have_numbers() -> None:
    lists = [*bpf.ALLOWED, *bpf.REFUSED, *bpf.KILLED, *bpf._ONE_OF, "kill", "tgkill", "clone", "clone3"]
    assert len(lists) == len(set(lists)) and set(lists) == set(syscalls.NUMBERS)


def test_threads_can_be_forbidden(machine: str) -> None:
    code = bpf.for_process(bpf.program(machine, threads=False), PID)
    assert _run(code, ARCHITECTURES[machine], syscalls.numbers(machine)["clone"], 0x3D0F00) == EPERM


def test_unknown_machine_has_no_filter() -> None:
    with pytest.raises(ValueError, match="riscv64"):
        bpf.program("riscv64")


@pytest.mark.parametrize(
    ("machine_name", "header", "pattern"),
    [
        ("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", r"__NR_(\w+)\s+(\d+)"),
        ("aarch64", "/usr/include/asm-generic/unistd.h", r"__NR(?:3264)?_(\w+)\s+(\d+)"),
    ],
)
def test_numbers_are_those_of_the_kernels_headers(machine_name: str, header: str, pattern: str) -> None:
    if not Path(header).is_file():
        pytest.skip(f"{header} is not installed")
    known = {match[1]: int(match[2]) for match in re.finditer(pattern, Path(header).read_text())}
    known.setdefault("newfstatat", known.get("fstatat", -1))
    for name, number in syscalls.numbers(machine_name).items():
        assert known.get(name, number) == number, name
    assert len(known.keys() & syscalls.numbers(machine_name).keys()) > 150
