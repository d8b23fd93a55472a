"""The section ``faults``, and the share of lost episodes."""

import pickle

import pytest

from troupe.errors import LostEpisodesError
from troupe.experience import Failure
from troupe.runs.faults import FaultSettings, Observers

GONE = Failure("world", "gone", KeyError("gone"))


@pytest.mark.parametrize("wrong", [{"world": "ignore"}, {"logger": None}, {"max_lost_share": 1.5}])
def test_values_that_do_not_exist_are_named(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=rf"faults\.{next(iter(wrong))} must be"):
        FaultSettings(**wrong)  # type: ignore[arg-type]


def test_a_share_is_exceeded_only_above_it() -> None:
    settings = FaultSettings(max_lost_share=0.1)
    settings.check([GONE], 10)
    settings.check([], 1, 9, 10)  # those before have been checked
    for failures, episodes, before in (([GONE], 9, (0, 0)), ([GONE], 10, (1, 9)), ([GONE], 1, (0, 100))):
        with pytest.raises(LostEpisodesError, match="first: gone"):
            settings.check(failures, episodes, *before)
    FaultSettings(max_lost_share=1).check([GONE], 2)
    with pytest.raises(LostEpisodesError):
        FaultSettings(max_lost_share=0).check([GONE], 1000)


def test_kinds_stop_alone() -> None:
    FaultSettings(sandbox="stop").raise_if_stopping(GONE)
    with pytest.raises(KeyError):
        FaultSettings(world="stop").raise_if_stopping(GONE)


def test_they_stop_too_where_another_process_has_the_exception() -> None:
    """As an actor of worlds has."""
    failure = pickle.loads(pickle.dumps(GONE))
    FaultSettings(sandbox="stop").raise_if_stopping(failure)
    with pytest.raises(LostEpisodesError, match=r"faults\.world=stop: gone"):
        FaultSettings(world="stop").raise_if_stopping(failure)


# ---- observers fail without the run, and loudly ----------------------------------------------------------------------


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
