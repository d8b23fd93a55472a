"""The kernel's restrictions, called by ctypes: Landlock, seccomp, capabilities, prctl; and the number of threads."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import os
import stat
import struct
from collections.abc import Iterable
from typing import Any, Final

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _PR_SET_THP_DISABLE = 1, 4, 22, 38, 41
_SECCOMP_MODE_FILTER = 2
_SECCOMP: Final = {"x86_64": 317, "aarch64": 277}
_SECCOMP_SET_MODE_FILTER, _NEW_LISTENER = 1, 1 << 3
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # Landlock; the same numbers on every architecture
_RULESET_VERSION, _PATH_BENEATH = 1, 1
_CAPABILITY_VERSION_3 = 0x20080522

_WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 1, 1 << 2, 1 << 3, 1 << 14
_RIGHTS: Final = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Landlock version -> the number of rights over files that it knows."""


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


class _RulesetAttr(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"  # required for packed structures from Python 3.14 on
    _fields_ = (("access", ctypes.c_uint64), ("parent", ctypes.c_int32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def _checked(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def _prctl(option: int, value: int, what: str) -> None:
    zero = ctypes.c_ulong(0)
    _checked(_libc().prctl(ctypes.c_int(option), ctypes.c_ulong(value), zero, zero, zero), what)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends."""
    _prctl(_PR_SET_PDEATHSIG, 9, "PR_SET_PDEATHSIG")


def no_huge_pages() -> None:
    """Give this process and its children small pages only: of a huge page, all stays as long as a part is mapped."""
    _prctl(_PR_SET_THP_DISABLE, 1, "PR_SET_THP_DISABLE")


def lock_down() -> None:
    """No new privileges by exec, no capabilities, and no access to this process by others of the same user."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, "PR_SET_NO_NEW_PRIVS")
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _checked(_libc().capset(header, (ctypes.c_uint32 * 6)()), "capset")
    _prctl(_PR_SET_DUMPABLE, 0, "PR_SET_DUMPABLE")


def landlock_abi() -> int:
    """The version of this kernel's Landlock; 0 if it has none."""
    version: int = _libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_RULESET_VERSION))
    return max(version, 0)


class Landlock:
    """Rules that a process can apply to itself: read listed files, write to ``/dev/null``, access no other file.

    From version 4 on no TCP either, from version 6 on no abstract Unix socket of, and no signal to, other processes.
    """

    def __init__(self) -> None:
        self.abi = landlock_abi()
        if not self.abi:
            raise OSError("the kernel has no Landlock")
        self._handled = (1 << _RIGHTS[min(self.abi, 5)]) - 1
        rules = _RulesetAttr(self._handled, 3 if self.abi >= 4 else 0, 3 if self.abi >= 6 else 0)
        size = 8 if self.abi < 4 else 16 if self.abi < 6 else 24
        create = _libc().syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint32(0))
        self.fd = _checked(create, "landlock_create_ruleset")

    def allow(self, readable: Iterable[str]) -> None:
        """Allow reading files and whole folders, and ``/dev/null``; missing paths are skipped."""
        for path in readable:
            self._rule(path, _READ_FILE | _READ_DIR)
        self._rule("/dev/null", _READ_FILE | _WRITE_FILE | _TRUNCATE)

    def _rule(self, path: str, access: int) -> None:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            if not stat.S_ISDIR(os.fstat(fd).st_mode):
                access &= ~_READ_DIR
            rule = _PathBeneath(access & self._handled, fd)
            add = _libc().syscall(_ADD_RULE, self.fd, _PATH_BENEATH, ctypes.byref(rule), ctypes.c_uint32(0))
            _checked(add, f"landlock_add_rule({path})")
        finally:
            os.close(fd)


def landlock_restrict(fd: int) -> None:
    """Apply the rules of ``fd`` to this process; this cannot be undone."""
    _checked(_libc().syscall(_RESTRICT_SELF, fd, ctypes.c_uint32(0)), "landlock_restrict_self")


class Seccomp:
    """A filter of system calls; ``bpf`` is the output of libseccomp."""

    def __init__(self, bpf: bytes) -> None:
        self._code = ctypes.create_string_buffer(bpf, len(bpf))
        self._program = _Program(len(bpf) // 8, ctypes.addressof(self._code))

    def install(self) -> None:
        """Apply the filter to this process; this cannot be undone."""
        program = ctypes.byref(self._program)
        _checked(_libc().prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), program), "PR_SET_SECCOMP")

    def listen(self) -> int:
        """Apply the filter to this process and its children; returns a descriptor for the kernel's questions."""
        number, flags = _SECCOMP[os.uname().machine], ctypes.c_uint32(_NEW_LISTENER)
        fd = _libc().syscall(number, _SECCOMP_SET_MODE_FILTER, flags, ctypes.byref(self._program))
        return _checked(fd, "SECCOMP_FILTER_FLAG_NEW_LISTENER")


_RECEIVE, _SEND, _CONTINUE = 0xC0502100, 0xC0182101, 1  # SECCOMP_IOCTL_NOTIF_*, seccomp_unotify(2)
_QUESTION_BYTES: Final = 80
_ANSWER: Final = struct.Struct("<QqiI")  # id, value, error, flags


class ThreadGate:
    """Allows a program so many threads; a further one fails with EAGAIN, as at any limit of threads.

    One run asks at a time.  A thread that is about to start does not count yet, so that a program that starts some from
    all its threads at once may have up to twice as many.
    """

    def __init__(self, bpf: bytes) -> None:
        self.fd = Seccomp(bpf).listen()
        self.refused = False
        """Whether a thread was refused since this was last set."""

    def answer(self, pid: int, limit: int) -> None:
        """Answer one question of the process ``pid``, which may have ``limit`` threads."""
        question = bytearray(_QUESTION_BYTES)
        try:
            fcntl.ioctl(self.fd, _RECEIVE, question)
            number = int.from_bytes(question[:8], "little")
            granted = os.stat(f"/proc/{pid}/task").st_nlink - 2 < limit  # one link per thread
            error, flags = (0, _CONTINUE) if granted else (-errno.EAGAIN, 0)
            self.refused |= not granted
            fcntl.ioctl(self.fd, _SEND, bytearray(_ANSWER.pack(number, 0, error, flags)))
        except OSError as failure:
            if failure.errno not in (errno.ENOENT, errno.ESRCH):  # who asked has ended, or a signal interrupted it
                raise
