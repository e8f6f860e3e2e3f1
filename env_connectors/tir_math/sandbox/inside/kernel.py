"""The few kernel calls that Python 3.11 does not offer: namespaces, mounts, capabilities, the filter."""

from __future__ import annotations

import ctypes
import os

_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 4, 22, 38
_SECCOMP_MODE_FILTER = 2
_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWPID = 0x00020000, 0x08000000, 0x20000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 2, 4, 8, 0x4000, 0x40000
_MNT_DETACH = 2
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _prctl(option: int, value: int, pointer: object = 0) -> None:
    arguments = (ctypes.c_ulong(value), pointer or ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
    _checked(_libc.prctl(option, *arguments), f"prctl {option}")


def install_filter(code: bytes) -> None:
    """Install a seccomp filter for this thread; it stays for ever."""
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.addressof(buffer))
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program))


def forbid_dumps() -> None:
    """No core file, not even through a handler of the host, and no attaching."""
    _prctl(_PR_SET_DUMPABLE, 0)


def leave_namespaces() -> None:
    """New mount and IPC namespaces for this process; the next child is process 1 of a new PID namespace."""
    _checked(_libc.unshare(_CLONE_NEWNS | _CLONE_NEWIPC | _CLONE_NEWPID), "unshare")


def mount_private_tmp(size_mb: int, files: int) -> None:
    """An empty /tmp in memory that only this mount namespace sees, with room for `files` files and folders."""
    _checked(_libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "mount --make-rprivate /")
    options = f"size={size_mb}m,nr_inodes={files + 1},mode=0700".encode()
    _checked(_libc.mount(b"tmpfs", b"/tmp", b"tmpfs", _MS_NOSUID | _MS_NODEV, options), "mount tmpfs on /tmp")


def hide_proc() -> int | None:
    """Unmount every /proc; return a descriptor of this PID namespace's own, which no path leads to any more.

    None where the host does not allow a new /proc.
    """
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    descriptor = None
    if _libc.mount(b"proc", b"/proc", b"proc", flags, None) == 0:
        descriptor = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    while _libc.umount2(b"/proc", _MNT_DETACH) == 0:
        pass
    return descriptor


def drop_capabilities() -> None:
    """Give up every capability; nothing can bring them back, as no_new_privs is set."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")
