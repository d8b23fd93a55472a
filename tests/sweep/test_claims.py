"""What a yaml may claim, and how mistakes are answered."""

import math
from typing import Any

import pytest

from troupe.errors import ConfigError
from troupe.sweep.claims import Claim
from troupe.sweep.sweep_file import SweepFile, typed

CLAIM: dict[str, Any] = {"claim": "a beats b", "setting": "a", "over": "b", "at_least": 0.05, "low_above": 0.0}


def read(*claims: dict[str, Any]) -> SweepFile:
    settings: dict[str, list[str]] = {"a": [], "b": []}
    return typed(SweepFile, {"question": "?", "settings": settings, "seeds": [0], "verdicts": list(claims)})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"metric": "sucess"}, "metric: 'sucess' is unknown"),
        ({"over": "c"}, "setting: 'c' is unknown. Known: a, b"),
        ({"over": "a"}, "compares a with itself"),
        ({"atleast": 1}, r"verdicts\[0\].atleast is an unknown key; did you mean at_least"),
        ({"at_least": "x"}, r"verdicts\[0\].at_least: it must be a valid number, got 'x'"),
        ({"at_least": 0.0, "low_above": 0.1}, "low_above=0.1 must not be above at_least=0"),
        ({"metric": "rollout_s"}, "metric: 'rollout_s' is unknown"),
        ({"metric": "turns_after", "over_metric": "after"}, "are of two kinds"),
        ({"not_tested": "it is not there"}, "has a setting, or says why it is not tested"),
    ],
)
def test_a_mistake_is_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        read(CLAIM | changes)


@pytest.mark.parametrize("changes", [{"at_least": math.nan}, {"low_above": -math.inf}])
def test_thresholds_are_finite(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be a finite number"):
        Claim(**CLAIM | changes)


def test_a_claim_is_made_once() -> None:
    assert len(read(CLAIM, CLAIM | {"metric": "best"}).verdicts) == 2
    with pytest.raises(ConfigError, match=f"verdicts: claim '{CLAIM['claim']}' is there twice"):
        read(CLAIM, CLAIM)
