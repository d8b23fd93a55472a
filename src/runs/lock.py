"""A lock between processes, released at the latest when its owner's process ends."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import platform
import weakref
from pathlib import Path
from types import TracebackType
from typing import Self

log = logging.getLogger(__name__)

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of a file system without locks."""


class HeldError(ValueError):
    """Another owner, alive, holds the lock."""


class Lock:
    """The lock on ``thing``, by the file ``path``, which names the last owner; held until :meth:`release`.

    The operating system (``flock``) releases it when the owner's process ends; the file stays, and locks nobody out.
    Programs that the owner starts do not inherit it.  Where the file system has no locks a warning is logged, and
    nothing is locked.  Raises :class:`HeldError`, naming the owner, where this process or another one holds it.
    """

    def __init__(self, path: Path, thing: str) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)  # no link: its content is replaced
        self._close = weakref.finalize(self, os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            self.release()
            raise HeldError(f"{thing} is in use by {owner or 'another process'}") from error
        except OSError as error:
            if error.errno not in NO_LOCKS:
                self.release()
                raise OSError(error.errno, error.strerror, str(path)) from error
            log.warning("%s: this file system has no locks; see to it that nothing else uses %s", path, thing)
            return
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {platform.node()}\n".encode(), 0)

    def release(self) -> None:
        """Release it; a second call does nothing."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def is_held(path: Path) -> bool:
    """Whether a process holds the lock of the file ``path``; changes nothing."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
    return False
