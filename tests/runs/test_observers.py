"""Observers fail without the run, and loudly."""

import pytest

from troupe.runs.faults import Observers


def fails(*, reason: str = "") -> int:
    raise KeyError(reason)


def test_a_failure_is_named_once_with_its_place_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    observers = Observers()
    assert observers.run("logger.near", lambda: 7) == 7
    assert [observers.run(name, fails, reason="no such key") for name in ("logger.far", "logger.far", "display")] == [
        None
    ] * 3
    far, display = caplog.messages
    for name, message in (("logger.far", far), ("display", display)):
        assert message.startswith(f"{name} failed: KeyError: 'no such key'; the run goes on")
        assert f"({__file__}:" in message
    assert observers.drain() == {"logger": 2, "display": 1}
    assert not observers.drain()
    caplog.clear()


def test_under_stop_it_is_raised() -> None:
    with pytest.raises(KeyError):
        Observers("stop").run("display", fails)


def test_an_interrupt_is_no_failure() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Observers().run("display", interrupted)
