"""When alarms are raised, when they are over, and what they say."""

import json
from typing import Any

import pytest

from troupe.diagnostics.alarms import RULES, State, check
from troupe.diagnostics.settings import AlarmSettings

from .conftest import Raised

SAMPLES = {
    "zero_variance": (0.5, 1.0, {"diagnostics/plan/zero_variance"}),
    "grad_norm": (0.5, 0.0, {"train/plan/grad_norm"}),
    "entropy_ratio": (1.0, 0.01, {"diagnostics/plan/entropy_nats"}),
    "truncated": (0.0, 0.9, {"diagnostics/plan/truncated"}),
    "length_ratio": (10.0, 90.0, {"rollout/plan/tokens_per_message"}),
    "gradient_share": (0.5, 0.99, {"diagnostics/plan/gradient_share"}),
    "excess_weight": (0.0, 0.5, {"diagnostics/plan/excess_weight"}),
    "spread": (0.4, 0.0, {"diagnostics/plan/spread"}),
    "mismatch_roundings": (0.5, 40.0, {"mismatch/plan/roundings"}),
    "mismatch_ess_ratio": (1.0, 0.1, {"mismatch/plan/ess_ratio"}),
    "stale_ess_ratio": (0.95, 0.1, {"train/plan/stale_ess_ratio"}),
    "malformed": (0.01, 0.9, {"diagnostics/plan/malformed"}),
}
"""By threshold: a healthy value and one that is not, and the metric."""


@pytest.mark.parametrize("rule", [rule for rule in RULES if not rule.pairs], ids=lambda rule: rule.threshold)
def test_a_lasting_value_raises_its_alarm_and_a_short_one_does_not(rule: Any, raised: Raised) -> None:
    healthy, ill, (metric,) = SAMPLES[rule.threshold]
    rows = [{metric: healthy}] * 8
    assert raised(rows) == []
    assert raised([*rows[:4], {metric: (healthy + ill) / 2}, *rows]) == [], "one iteration"
    (alarm,) = raised(rows + [{metric: ill}] * 8)
    assert (alarm.alarm, alarm.name, alarm.metric, alarm.until) == (rule.alarm, "plan", metric, None)
    assert alarm.since > 8 - AlarmSettings().window
    assert raised(rows + [{metric: ill}] * 8, **{rule.threshold: 0}) == [], "0: never"


@pytest.mark.parametrize("rule", [r for r in RULES if r.unless_solved and not r.pairs], ids=lambda rule: rule.threshold)
def test_a_solved_world_raises_none(rule: Any, raised: Raised) -> None:
    healthy, ill, (metric,) = SAMPLES[rule.threshold]
    first, then = {metric: healthy}, {metric: ill, rule.success[-1]: 0.95}
    assert raised([first] * 8 + [then] * 20) == []
    assert raised([first] * 8 + [then | {rule.success[-1]: 0.5}] * 20)


def test_a_share_over_few_pairs_is_pooled_until_it_is_certain(raised: Raised) -> None:
    """0 of n pairs: the upper end of Wilson's interval is 3.84 / (n + 3.84), below 0.05 from 73 pairs on."""
    rows = [{"diagnostics/plan/influence": 0.0, "diagnostics/plan/influence_pairs": 16.0}] * 5
    assert raised(rows[:4]) == []
    (alarm,) = raised(rows)
    assert (alarm.alarm, alarm.since, alarm.value) == ("lazy_agent", 1, 0)
    some = {"diagnostics/plan/influence": 1 / 8, "diagnostics/plan/influence_pairs": 16.0}
    assert raised([some, *rows]) == []
    solved = {"diagnostics/probe_success": 1.0}
    assert raised([row | solved for row in rows]) == []


def test_an_alarm_that_is_over_says_how_long_it_was(raised: Raised) -> None:
    good, bad = ({"diagnostics/plan/malformed": share} for share in (0.0, 1.0))
    (alarm,) = raised([good] * 5 + [bad] * 5 + [good] * 5, {"plan": "both"})
    # Of iterations 4 to 8, and of 8 to 12, three are malformed; of those before and after at most two.
    assert (alarm.since, alarm.until) == (4, 12)
    assert str(alarm) == (
        "malformed, policy 'both', agent 'plan': 1 of its messages cannot be read, above "
        "diagnostics.alarms.malformed=0.5, since iteration 4 to 12"
    )


def test_the_record_is_plain_data_with_the_line(raised: Raised) -> None:
    (alarm,) = raised([{"train/both/grad_norm": 0.0}] * 5)
    record = json.loads(json.dumps(alarm.record()))
    assert record["text"] == str(alarm) and "\n" not in record["text"]
    assert (record["role"], record["policy"], record["value"], record["since"]) == ("policy", "both", 0.0, 1)


def test_a_continued_run_goes_on_with_the_state_of_the_checkpoint() -> None:
    rows = [{"iteration": i, "diagnostics/plan/entropy_nats": 1 / i} for i in range(1, 30)]
    whole: State = {}
    halves: State = {}
    for row in rows:
        check(row, AlarmSettings(), whole)
        halves = json.loads(json.dumps(halves))
        check(row, AlarmSettings(), halves)
    assert halves == whole


@pytest.mark.parametrize(
    ("key", "value"), [("window", 0), ("measurements", 1.5), ("solved", -1.0), ("malformed", -0.1)]
)
def test_thresholds_out_of_range_are_refused(key: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"diagnostics\.alarms\.{key} must be .*{value}"):
        AlarmSettings(**{key: value})
