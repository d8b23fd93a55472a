"""Signals around vLLM's process: it ends with the one that started it, and a Ctrl-C ends its start."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1
"""Of Linux' ``prctl``: the signal that a process gets when the thread that started it has ended."""


def end_with(parent: int) -> None:
    """End this process together with process ``parent``, which has started it, even where that one is killed.

    On Linux alone; else it does nothing.  Called in the process itself: between fork and exec, or once it runs.
    """
    if _LIBC is None:
        return
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # which has ended already
        os.kill(os.getpid(), signal.SIGKILL)


def follow_parent() -> None:
    """In a process of vLLM's: leave the signals of the terminal to the learner (or a server's process), which still
    needs its engine to end in good order, and end with the process that has started this one.
    """
    if (parent := multiprocessing.parent_process()) is not None:
        os.setpgid(0, 0)
        end_with(parent.pid or 0)


class _Interrupted(BaseException):
    """A Ctrl-C, by a name that vLLM does not know."""


@contextmanager
def interruptible() -> Iterator[None]:
    """A Ctrl-C ends the start of vLLM inside, which would swallow the first, and wait minutes for a process that the
    same Ctrl-C may have ended.  Threads other than the main one get none.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise _Interrupted

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except _Interrupted as interrupted:
        raise KeyboardInterrupt from interrupted
    finally:
        signal.signal(signal.SIGINT, handler)
