"""Orders of two agents: stages and refusals."""

from typing import Any

import pytest

from troupe.envs.turns import stages_of


def test_stages() -> None:
    pair = ("ann", "ben")
    assert stages_of("world", "simultaneous", pair, 1) == (pair,)
    assert stages_of("world", "sequential", pair, 1) == (("ann",), ("ben",))
    assert stages_of("world", "discussion", pair, 2) == (pair,)
    assert stages_of("world", "simultaneous", ("solo",), 1) == (("solo",),)


@pytest.mark.parametrize(
    ("order", "agents", "horizon", "message"),
    [
        ("backwards", ("ann", "ben"), 1, r"env\.order=backwards is unknown; world knows simultaneous, sequential"),
        ("sequential", ("solo",), 1, r"env\.order=sequential is of two agents, and env\.team=solo has one"),
        ("discussion", ("ann", "ben"), 1, r"env\.order=discussion needs env\.horizon=2 at least"),
    ],
)
def test_what_is_refused(order: Any, agents: tuple[str, ...], horizon: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stages_of("world", order, agents, horizon)
