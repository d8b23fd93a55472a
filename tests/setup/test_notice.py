"""What takes long is said, and nothing else."""

import logging
from threading import Event

import pytest

from troupe.setup.notice import notice


def test_what_takes_long_is_said(caplog: pytest.LogCaptureFixture) -> None:
    said = Event()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.set()

    logger, handler = logging.getLogger("troupe.setup.notice"), Handler()
    logger.addHandler(handler)
    with caplog.at_level(logging.INFO), notice("drawing tasks", after_s=0.0):
        assert said.wait(60)
    with caplog.at_level(logging.INFO), notice("nothing", after_s=3600.0):
        pass
    logger.removeHandler(handler)
    assert [record.getMessage() for record in caplog.records] == ["drawing tasks"]
