"""A Ctrl-C while vLLM starts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Interrupted(BaseException):
    """A Ctrl-C, by a name that vLLM does not know."""


@contextmanager
def interruptible() -> Iterator[None]:
    """A Ctrl-C ends what stands inside: vLLM's start would swallow its first, and wait minutes for a process that the
    same Ctrl-C may have ended.  Other threads get none.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return

    def told(number: int, frame: object) -> None:
        raise _Interrupted

    signal.signal(signal.SIGINT, told)
    try:
        yield
    except _Interrupted as interrupted:
        raise KeyboardInterrupt from interrupted
    finally:
        signal.signal(signal.SIGINT, before)
