"""Something that is done again and again beside other work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread


@contextmanager
def every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """A context in which ``act`` is called every so many seconds, in a thread; not any more once it has ended."""
    over = Event()

    def watch() -> None:
        while not over.wait(seconds):
            act()

    thread = Thread(target=watch, name="periodic", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
