"""A process that another has started ends with it, even where that one is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1
"""Of Linux' ``prctl``: the signal that a process gets when the thread that started it has ended."""


def end_with(parent: int) -> None:
    """End this process together with process ``parent``, which has started it.  On Linux alone; else it does nothing.

    Called in the process itself: between fork and exec, or once it runs.
    """
    if _LIBC is None:
        return
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # which has ended already
        os.kill(os.getpid(), signal.SIGKILL)
