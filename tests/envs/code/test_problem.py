"""Problems and their parts."""

import pytest

from troupe.envs.code.problem import Problem


def test_problems_without_tests_cannot_be() -> None:
    with pytest.raises(ValueError, match="problem p has no hidden tests"):
        Problem("p", "", ())
    with pytest.raises(ValueError, match="problem p has a test script, which needs"):
        Problem("p", "", (), script="def check(candidate): pass")
