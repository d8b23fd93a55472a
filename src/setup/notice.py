"""Tell a user what takes long."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

log = logging.getLogger(__name__)


@contextmanager
def notice(text: str, after_s: float = 3.0) -> Iterator[None]:
    """A context that logs ``text`` where it lasts longer than ``after_s``."""
    timer = Timer(after_s, log.info, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
