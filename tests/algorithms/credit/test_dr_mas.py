"""Dr.MAS by hand."""

from collections.abc import Callable, Sequence
from math import sqrt

import pytest

from troupe.algorithms.credit.dr_mas import DrMas
from troupe.experience import Episode

Chain = Callable[..., Episode]
Advantages = Callable[[Sequence[Episode]], list[list[float | None]]]


def test_dr_mas_compares_an_agent_with_itself(chain: Chain, advantages: Advantages) -> None:
    episodes = [chain(1, ["tool", "plan"]), chain(0, ["tool", "plan", "plan"], sample=1)]
    DrMas(std_floor=0)(episodes)
    # tool: 1, 0: mean .5, std sqrt(.5).  plan: 1, 0, 0: mean 1/3, variance (4/9 + 2/9) / 2 = 1/3.
    tool, plan = 0.5 / sqrt(0.5), sqrt(1 / 3)
    assert advantages(episodes) == [
        pytest.approx([tool, 2 / 3 / plan], abs=1e-12),
        pytest.approx([-tool, -1 / 3 / plan, -1 / 3 / plan], abs=1e-12),
    ]
