"""The system calls that a program may make: an allow-list, compiled by libseccomp for the kernel.

A program is one process that computes.  It may read the files that Landlock allows, write to its descriptors, and use
memory, threads, clocks and signals that it raises itself.  Calls that create processes, reach a network or look into
other processes kill the program, so that the kernel reports the attempt; calls that only change the surroundings fail
with EPERM; every other call does not exist (ENOSYS), as on an older kernel.  Calls are not allowed either if a program
holds memory by them that no limit counts (locks on records, shared memory without a file), or if it can wait in them
and looks busy (``membarrier``).
"""

from __future__ import annotations

import errno
import functools
import os
import platform
from typing import Any, Final

from .jobs import SandboxUnavailable

MACHINES: Final = ("x86_64", "aarch64")

ALLOWED: Final = """
read readv pread64 preadv preadv2 write writev pwrite64 pwritev pwritev2 close lseek
mprotect munmap mremap brk msync
fstat stat lstat newfstatat statx fstatfs access faccessat faccessat2 readlink readlinkat getcwd getdents getdents64
dup dup2 dup3 futex futex_waitv set_robust_list get_robust_list rseq set_tid_address
exit exit_group restart_syscall gettid getpid getppid getuid geteuid getgid getegid getresuid getresgid getgroups
getpgid getpgrp getsid sched_yield sched_getaffinity sched_getparam sched_getscheduler sched_get_priority_max
sched_get_priority_min getpriority getrlimit getrusage sysinfo getcpu uname times time gettimeofday clock_gettime
clock_getres clock_nanosleep nanosleep getrandom umask
sigaltstack rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend pause alarm
setitimer getitimer poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
eventfd2 pipe pipe2 shutdown getsockopt getsockname recvfrom recvmsg
""".split()

REFUSED: Final = """
kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo setsid setpgid setpriority
setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups capset setrlimit seccomp personality
chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes utimensat futimesat
setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr
symlink symlinkat link linkat mkdir mkdirat mknod mknodat unlink unlinkat rmdir rename renameat renameat2
truncate ftruncate fallocate chdir fchdir memfd_create memfd_secret sched_setaffinity sched_setscheduler sched_setparam
mlock mlock2 mlockall sendmsg sendmmsg setsockopt
""".split()

FATAL: Final = """
fork vfork execve execveat socket connect bind listen accept accept4
ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_open pidfd_getfd pidfd_send_signal
io_uring_setup io_uring_enter io_uring_register io_setup io_submit bpf perf_event_open userfaultfd
add_key request_key keyctl mount umount2 move_mount open_tree fsopen fsconfig fsmount fspick mount_setattr pivot_root
chroot unshare setns init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff
acct settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname quotactl syslog iopl ioperm
open_by_handle_at name_to_handle_at fanotify_init landlock_create_ruleset landlock_add_rule landlock_restrict_self
shmget shmat shmctl msgget msgsnd msgrcv msgctl semget semop semctl semtimedop mq_open mq_unlink
""".split()

_FCNTL: Final = (0, 1, 2, 3, 4, 1030, 1032, 1034)  # descriptors, flags, sizes, seals; no locks, no signals
_IOCTL: Final = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # terminal? its size, FIONREAD, FIONBIO, cloexec
_PRCTL: Final = (3, 15, 16, 0x53564D41)  # dumpable?, a thread's name, names of mappings (malloc)
_MADVISE: Final = (0, 1, 2, 3, 4, 8, 14, 15, 16, 17, 18, 102, 103)
"""What allocators and thread stacks ask for.  Other advice works for the kernel's threads, whose time nobody counts
(merging equal pages), moves pages to the swap or out of the cache that programs share, or is the administrator's."""
_CLONE_THREAD, _PTHREAD = 0x10000, 0x3D0F00
"""``clone`` makes a thread of any kind with the first flag; pthread_create(3) passes exactly the second set."""
_SHARED, _ANONYMOUS, _HUGETLB, _CLOSE_RANGE_UNSHARE = 0x1, 0x20, 0x40000, 0x2
_AF_UNIX, _SOCK_STREAM, _SOCK_TYPE, _MSG_OOB = 1, 1, 0xF, 0x1


def unavailable() -> str | None:
    """The reason why no filter can be compiled here; ``None`` if it can."""
    if platform.machine() not in MACHINES:
        return f"the seccomp policy is written for {' and '.join(MACHINES)}, not for {platform.machine()}"
    try:
        import pyseccomp  # noqa: F401
    except (ImportError, RuntimeError, OSError) as error:
        return f"pyseccomp with the system library libseccomp2 is needed: {error}"
    return None


def _library() -> Any:
    reason = unavailable()
    if reason:
        raise SandboxUnavailable(reason)
    import pyseccomp

    return pyseccomp


@functools.cache
def compiled(landlock_abi: int) -> bytes:
    """The filter as BPF; if Landlock's version is below 3, opening with O_TRUNC is refused, too.

    Raises :class:`SandboxUnavailable` if it cannot be compiled.
    """
    pyseccomp = _library()
    rules = _Rules(pyseccomp, pyseccomp.ERRNO(errno.ENOSYS))
    for name in ALLOWED:
        rules.add(pyseccomp.ALLOW, name)
    for name in REFUSED:
        rules.add(pyseccomp.ERRNO(errno.EPERM), name)
    for name in FATAL:
        rules.add(pyseccomp.KILL_PROCESS, name)
    # A filter cannot see the flags of clone3, so that it stays at ENOSYS; libc then uses clone.  A thread with its own
    # descriptors is outside of RLIMIT_NOFILE, and one with CLONE_VFORK suspends its parent, which then looks busy.
    rules.add(pyseccomp.ALLOW, "clone", pyseccomp.Arg(0, pyseccomp.EQ, _PTHREAD))
    rules.add(pyseccomp.KILL_PROCESS, "clone", pyseccomp.Arg(0, pyseccomp.NE, _PTHREAD))
    rules.by_flag(pyseccomp.ALLOW, pyseccomp.ERRNO(errno.EPERM), "close_range", 2, _CLOSE_RANGE_UNSHARE)
    rules.mapping()
    rules.only("fcntl", 1, _FCNTL)
    rules.only("ioctl", 1, _IOCTL)
    rules.only("prctl", 0, _PRCTL)
    rules.only("madvise", 2, _MADVISE)
    rules.opening(landlock_abi)
    rules.sockets()
    return rules.export()


@functools.cache
def asking_for_threads() -> bytes:
    """The filter of the worker itself, as BPF: the kernel asks the worker before a program makes a thread.

    Raises :class:`SandboxUnavailable` if it cannot be compiled.
    """
    pyseccomp = _library()
    rules = _Rules(pyseccomp, pyseccomp.ALLOW)
    rules.add(pyseccomp.NOTIFY, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, _CLONE_THREAD, _CLONE_THREAD))
    return rules.export()


class _Rules:
    """Collects libseccomp's rules; ``otherwise`` is the action for every other call."""

    def __init__(self, seccomp: Any, otherwise: int) -> None:
        self._seccomp = seccomp
        self._filter = seccomp.SyscallFilter(otherwise)
        self._filter.set_attr(seccomp.Attr.ACT_BADARCH, seccomp.KILL_PROCESS)  # 32-bit and x32 calls

    def add(self, action: int, name: str, *conditions: Any) -> None:
        """Add a rule; a call that the architecture or this libseccomp does not know stays at ENOSYS."""
        number = self._seccomp.resolve_syscall(self._seccomp.Arch.NATIVE, name)
        if number >= 0:
            self._filter.add_rule(action, number, *conditions)

    def only(self, name: str, argument: int, values: tuple[int, ...]) -> None:
        """Allow ``name`` if the lower 32 bits of the argument are one of ``values``."""
        for value in values:
            self.add(self._seccomp.ALLOW, name, self._seccomp.Arg(argument, self._seccomp.MASKED_EQ, 0xFFFFFFFF, value))

    def by_flag(self, absent: int, present: int, name: str, argument: int, flag: int) -> None:
        """One action if ``flag`` is set in the argument, another if it is not."""
        for action, value in ((absent, 0), (present, flag)):
            self.add(action, name, self._seccomp.Arg(argument, self._seccomp.MASKED_EQ, flag, value))

    def opening(self, landlock_abi: int) -> None:
        """Landlock decides which files may be opened; before version 3 it does not know that opening may truncate."""
        for name, argument in (("open", 1), ("openat", 2)):
            if landlock_abi >= 3:
                self.add(self._seccomp.ALLOW, name)
            else:
                self.by_flag(self._seccomp.ALLOW, self._seccomp.ERRNO(errno.EACCES), name, argument, os.O_TRUNC)

    def mapping(self) -> None:
        """Refuse shared memory without a file: all of it stays as long as one page of it is mapped, uncounted.  And
        pages that an administrator has set aside for others.
        """
        both = _SHARED | _ANONYMOUS
        for value in (0, _SHARED, _ANONYMOUS, both):
            action = self._seccomp.ERRNO(errno.EPERM) if value == both else self._seccomp.ALLOW
            self.add(action, "mmap", self._seccomp.Arg(3, self._seccomp.MASKED_EQ, both | _HUGETLB, value))
        reserved = self._seccomp.Arg(3, self._seccomp.MASKED_EQ, _HUGETLB, _HUGETLB)
        self.add(self._seccomp.ERRNO(errno.EPERM), "mmap", reserved)
        # The kernel remembers calls that are always allowed; of the others this is by far the most frequent.
        self._filter.syscall_priority("mmap", 255)

    def sockets(self) -> None:
        """Allow pairs of stream sockets, which asyncio needs and which lead nowhere, and reading one's own limits."""
        seccomp, arg = self._seccomp, self._seccomp.Arg
        kind = arg(1, seccomp.MASKED_EQ, _SOCK_TYPE, _SOCK_STREAM)
        self.add(seccomp.ALLOW, "socketpair", arg(0, seccomp.EQ, _AF_UNIX), kind)
        self.add(seccomp.ALLOW, "sendto", arg(4, seccomp.EQ, 0), arg(3, seccomp.MASKED_EQ, _MSG_OOB, 0))  # no address
        self.add(seccomp.ALLOW, "prlimit64", arg(0, seccomp.EQ, 0), arg(2, seccomp.EQ, 0))  # read one's own
        self.add(seccomp.ERRNO(errno.EPERM), "prlimit64", arg(2, seccomp.NE, 0))

    def export(self) -> bytes:
        fd = os.memfd_create("seccomp", os.MFD_CLOEXEC)
        with open(fd, "w+b") as file:
            self._filter.export_bpf(file)
            file.seek(0)
            return file.read()
