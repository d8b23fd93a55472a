"""Run a training loop to its end, from a command, a script or a notebook, and write its report."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

from ..cluster.actors import LostActorError
from ..errors import number_of
from ..loop import TrainLoop
from ..reports.report import write_report
from ..runs.files import REPORT
from ..setup.assembly import reassemble


def train(loop: TrainLoop) -> dict[str, Any]:
    """Train and show it; returns the summary.

    However it ends, the run's report is written, and its directory is released.  SIGTERM interrupts as Ctrl-C
    does: ``KeyboardInterrupt``.  It may be called where an event loop is running (a notebook), which waits.

    Where an actor is lost with what only it held (execution=ray), the run goes on from its last checkpoint with new
    actors, ``loop.rebuilds`` times at most: a continued run is bit for bit the uninterrupted one.
    """
    rebuilds, lost = loop.rebuilds, False
    while True:
        try:
            if lost:
                loop = reassemble(loop.directory.path)
            return _train(loop)
        except LostActorError as error:
            if not rebuilds:
                raise
            rebuilds, lost = rebuilds - 1, True
            loop.display.say(f"{error}; the run goes on from its last checkpoint with new actors")


def _train(loop: TrainLoop) -> dict[str, Any]:
    done = f", after {number_of(loop.progress.iteration, 'iteration')}" if loop.progress.iteration else ""
    loop.display.say(f"{loop.display.title}, seed {loop.seed}: {loop.directory.path}{done}")
    with loop.display:
        try:
            return _run_in_thread(loop) if _event_loop_is_running() else asyncio.run(_run_until_signal(loop))
        except asyncio.CancelledError as error:
            raise KeyboardInterrupt from error
        finally:
            try:
                loop.observers.run("report", _report, loop)
            finally:
                loop.directory.release()


def _report(loop: TrainLoop) -> None:
    if not loop.ranks.first:
        return
    write_report(loop.directory.path)
    loop.display.say(f"report: {loop.directory.path / REPORT}")


async def _run_until_signal(loop: TrainLoop) -> dict[str, Any]:
    """Run ``loop``; a signal cancels it."""
    task, events = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None  # a coroutine runs in one
    if threading.current_thread() is threading.main_thread():
        numbers = [signal.SIGTERM] if loop.ranks.world == 1 else [signal.SIGINT, signal.SIGTERM]  # asyncio has SIGINT
        for number in numbers:
            events.add_signal_handler(number, _stop, loop, task)
    return await loop.run()


def _stop(loop: TrainLoop, task: asyncio.Task[Any]) -> None:
    """Several processes stop where they next meet, so that none waits for another that has ended."""
    if loop.ranks.world == 1:
        if not task.cancelling():  # a second signal does not interrupt the closing
            task.cancel()
    else:
        loop.ranks.stop_requested = True


def _event_loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run_in_thread(loop: TrainLoop) -> dict[str, Any]:
    """Run ``loop`` in an event loop of its own in another thread: that of this thread cannot run a second one."""
    events = asyncio.new_event_loop()
    task = events.create_task(loop.run())
    with (
        _on_signals(lambda: events.call_soon_threadsafe(_stop, loop, task)),
        ThreadPoolExecutor(1) as thread,  # leaving it waits
    ):
        # A notebook shows the output of a thread below the cell that the thread's context names.
        thread.submit(copy_context().run, _complete, events, task).result()
    return task.result()


def _complete(events: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    try:
        events.run_until_complete(asyncio.wait([task]))
    finally:
        events.run_until_complete(events.shutdown_asyncgens())
        events.run_until_complete(events.shutdown_default_executor())
        events.close()


@contextmanager
def _on_signals(action: Callable[[], object]) -> Iterator[None]:
    """SIGINT and SIGTERM call ``action``, and raise nothing in the main thread; in other threads nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: action()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
