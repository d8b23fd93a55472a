"""A launcher's worker ends when the sweep that started it is gone, however that ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Thread


@contextmanager
def ending_with(sweep: int, *, local: bool) -> Iterator[None]:
    """A job of the process ``sweep``.  Where that is the parent of this one (``local``) and ends, this one is
    interrupted as by SIGTERM: a run writes its checkpoint, and then the process ends, which would wait for ever for
    another job.

    A launcher for other machines has its own way.
    """
    worker = local and sweep != os.getpid()
    if worker and os.getppid() != sweep:  # it ended while this one was starting
        os._exit(1)
    if worker:
        _watch(sweep)
    try:
        yield
    finally:
        if worker and os.getppid() != sweep:
            os._exit(1)


@cache
def _watch(sweep: int) -> None:
    Thread(target=_await_end, args=(sweep,), name="parent", daemon=True).start()


def _await_end(sweep: int) -> None:
    while os.getppid() == sweep:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)
