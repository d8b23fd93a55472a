"""The number of a program's threads: the kernel asks the worker before each new one.

RLIMIT_NPROC cannot do this: it does not hold for root, and it counts all processes of a user.  A program's own memory
does not bound its threads either, because they may share one stack.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from typing import Final

from .kernel import Seccomp

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
