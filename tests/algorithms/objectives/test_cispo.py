"""CISPO by hand."""

import math

import pytest

from troupe.algorithms.objectives import Cispo

from .conftest import near, one_completion, outcome


def test_cispo() -> None:
    # Weights min(8, 5) = 5 and 0.5, A = 2, mean of two: loss -(5 ln 8 + 0.5 ln 0.5); every token keeps a gradient.
    loss, gradient, clipped = outcome(Cispo(), one_completion([8, 0.5], advantage=2))
    assert loss == pytest.approx(-(5 * math.log(8) + 0.5 * math.log(0.5)), abs=1e-12)
    assert (gradient, clipped) == (near(-5, -0.5), 1)
    assert outcome(Cispo(ratio_floor=0.75), one_completion([0.5], advantage=2))[1:] == (near(-1.5), 1)
