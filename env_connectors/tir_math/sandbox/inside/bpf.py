"""The system call filter as a classic BPF program, assembled here: no libseccomp, x86_64 and aarch64.

An allow-list. What a plain script on numbers needs is allowed; what an honest program may try (subprocesses, sockets) fails
with EPERM so that Python raises PermissionError; what only an attack needs kills the process; a call that is not listed
does not exist (ENOSYS). Calls of another architecture (32-bit, x32) kill the process: their numbers mean other calls.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable

from .syscalls import ARCHITECTURES, numbers

ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _JUMP_EQ, _JUMP_GE, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_NUMBER_AT, _ARCH_AT, _ARGS_AT = 0, 4, 16
_X32_BIT = 0x40000000
_CLONE_THREAD = 0x00010000
_CLONE_NEW = 0x7E020000  # the flags that ask for a namespace


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ALLOWED = _names("""
    read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 close close_range lseek open openat
    creat fstat stat lstat newfstatat statx statfs fstatfs access faccessat faccessat2 readlink readlinkat getdents
    getdents64 getcwd chdir fchdir mkdir mkdirat rmdir rename renameat renameat2 link linkat unlink unlinkat symlink
    symlinkat chmod fchmod fchmodat umask utime utimes utimensat truncate ftruncate fallocate fadvise64 flock fsync
    fdatasync sendfile copy_file_range dup dup2 dup3 pipe pipe2 eventfd2 select pselect6 poll ppoll epoll_create1
    epoll_ctl epoll_wait epoll_pwait mmap mprotect munmap mremap madvise msync mincore brk membarrier futex
    set_robust_list get_robust_list set_tid_address rseq sched_yield sched_getaffinity sched_getparam
    sched_getscheduler sched_get_priority_max sched_get_priority_min rt_sigaction rt_sigprocmask rt_sigreturn
    rt_sigpending rt_sigsuspend rt_sigtimedwait sigaltstack pause alarm getitimer setitimer nanosleep
    clock_nanosleep clock_gettime clock_getres gettimeofday time times getpid getppid gettid getuid geteuid getgid
    getegid getpgid getpgrp getsid getgroups getrlimit getrusage getpriority uname sysinfo getcpu capget getrandom
    exit exit_group restart_syscall wait4 waitid sendto recvfrom shutdown getsockopt getsockname
""")
REFUSED = ("fork", "vfork", "execve", "execveat", "socket")
KILLED = _names("""
    ptrace process_vm_readv process_vm_writev kcmp pidfd_open pidfd_getfd pidfd_send_signal bpf io_uring_setup
    io_uring_enter io_uring_register keyctl add_key request_key mount umount2 pivot_root chroot move_mount open_tree
    fsopen fsmount mount_setattr setns unshare init_module finit_module kexec_load kexec_file_load userfaultfd
    perf_event_open reboot open_by_handle_at fanotify_init
""")
# Allowed for these values of one argument only. fcntl and ioctl can send signals to other processes, prctl can undo
# protections, prlimit64 can change another process.
_ONE_OF: dict[str, tuple[int, tuple[int, ...]]] = {
    "fcntl": (1, (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032)),  # duplicate, flags, locks, pipe size
    "ioctl": (1, (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)),  # isatty, window size, FIONREAD, FIONBIO, CLOEXEC
    "prctl": (0, (3, 15, 16, 0x53564D41)),  # dumpable?, thread names, names of anonymous memory
    "prlimit64": (0, (0,)),  # the process itself
    "socketpair": (0, (1,)),  # AF_UNIX; asyncio wants one
}
ITSELF = 0x7FFFFFFE
"""Stands for the process that is filtered, the only one that it may send signals to; larger than any process id."""
Instruction = tuple[int, int, int, int]
_INSTRUCTION = struct.Struct("<HBBI")


def _return(action: int, number: int = 0) -> Instruction:
    return (_RETURN, 0, 0, action | number)


def _one_of(argument: int, values: Iterable[int]) -> list[Instruction]:
    body: list[Instruction] = [(_LOAD, 0, 0, _ARGS_AT + 8 * argument)]  # low half: both machines are little-endian
    for value in values:
        body += [(_JUMP_EQ, 0, 1, value), _return(ALLOW)]
    return [*body, _return(ERRNO, errno.EPERM)]


def for_process(template: bytes, pid: int) -> bytes:
    """Return the filter of `program` for one process."""
    return template.replace(_INSTRUCTION.pack(_JUMP_EQ, 0, 1, ITSELF), _INSTRUCTION.pack(_JUMP_EQ, 0, 1, pid))


def program(machine: str, *, threads: bool = True) -> bytes:
    """Return the filter of calls, an array of `struct sock_filter` for `for_process` to finish.

    Args:
        machine: As `uname -m` says it.
        threads: Whether it may start threads; it never may start processes.

    Raises:
        ValueError: no table for this machine.
    """
    table = numbers(machine)
    code: list[Instruction] = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_JUMP_EQ, 1, 0, ARCHITECTURES[machine][1]),
        _return(KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    if machine == "x86_64":
        code += [(_JUMP_GE, 0, 1, _X32_BIT), _return(KILL)]
    refuse = [_return(ERRNO, errno.EPERM)]
    bodies: dict[str, list[Instruction]] = {name: [_return(ALLOW)] for name in ALLOWED}
    bodies |= {name: refuse for name in REFUSED}
    bodies |= {name: [_return(KILL)] for name in KILLED}
    bodies |= {name: _one_of(*rule) for name, rule in _ONE_OF.items()}
    bodies["kill"] = bodies["tgkill"] = _one_of(0, (ITSELF,))
    only_threads: list[Instruction] = [
        (_LOAD, 0, 0, _ARGS_AT),
        (_AND, 0, 0, _CLONE_THREAD | _CLONE_NEW),
        (_JUMP_EQ, 0, 1, _CLONE_THREAD),
        _return(ALLOW),
        *refuse,
    ]
    bodies["clone"] = only_threads if threads else refuse
    # clone3 has its flags in memory, where a filter cannot look: glibc takes clone when there is no clone3.
    bodies["clone3"] = [_return(ERRNO, errno.ENOSYS)]
    for name, body in bodies.items():
        if name in table:
            code += [(_JUMP_EQ, 0, len(body), table[name]), *body]
    code.append(_return(ERRNO, errno.ENOSYS))
    return b"".join(_INSTRUCTION.pack(*instruction) for instruction in code)
