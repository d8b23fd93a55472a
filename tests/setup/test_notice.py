"""What takes long is said, and nothing else."""

import logging
from threading import Event

from troupe.setup.notice import notice


def test_what_takes_long_is_said() -> None:
    messages: list[str] = []
    said = Event()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())
            said.set()

    logger, handler = logging.getLogger("troupe.setup.notice"), Handler()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with notice("drawing tasks", after_s=0.0):
            assert said.wait(60)
        with notice("nothing", after_s=3600.0):
            pass
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert messages == ["drawing tasks"]
