"""The plain policy gradient by hand."""

import math

import pytest

from troupe.algorithms.objectives import PolicyGradient

from .conftest import near, one_completion, outcome


def test_the_plain_gradient_of_a_sequence() -> None:
    # -A (ln 0.5 + ln 0.25), and -A a token; neither old nor behaviour log-probabilities matter.
    objective = PolicyGradient(normalisation="sequence_sum")
    given = one_completion([0.5, 0.25], advantage=2, old=[0.1, 0.9], behaviour=[0.3, 0.4])
    assert outcome(objective, given) == (pytest.approx(2 * math.log(8), abs=1e-12), near(-2, -2), 0)
