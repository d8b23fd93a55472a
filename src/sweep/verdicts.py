"""The verdicts of runs on claims, whose thresholds were fixed before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from ..evaluation.statistics import Estimate, holm, seeds_estimate
from .claims import Claim
from .measures import MEASURES, READINGS
from .outcomes import difference_over_seeds, with_readings
from .rows import TableRow

LEVEL = 0.05
"""The probability of one or more wrong verdicts on a page, at most."""


@dataclass(frozen=True)
class ClaimTest:
    """A claim in one part and variant: the differences of its pairs of runs, and why there is no estimate, if there is
    none.

    ``budget``: in completions, tokens or steps, where the metric is one at equal budgets.
    """

    claim: Claim
    part: str
    variant: str
    why: str
    differences: Sequence[float] = ()
    estimate: Estimate | None = None
    budget: float | None = None
    stale: str = ""

    @property
    def p_values(self) -> tuple[float, float] | None:
        """Of the hypotheses that the claim's difference is at most ``low_above``, and that it is at least ``at_least``;
        None where nothing is tested.
        """
        if self.estimate is None or self.claim.low_above is None:
            return None
        return self.estimate.p_at_most(self.claim.low_above), self.estimate.p_at_least(self.claim.at_least)


def judge(
    claims: Iterable[Claim], rows: Sequence[TableRow], reason: Callable[[Claim, str], str] = lambda claim, part: ""
) -> list[TableRow]:
    """The verdicts, one row per claim, part and variant; ``reason`` says why a claim is not tested in a part.

    A claim with ``low_above`` tests two hypotheses, each one-sided: that the difference is at most ``low_above``, and
    that it is at least ``at_least``.  All tests of a page are corrected together by Shaffer's procedure, so that the
    probability of one or more wrong rejections on it is at most :data:`LEVEL`: the two hypotheses of a claim exclude
    each other where its thresholds differ, so that at most one of them is true.  *met*: the first is rejected, and the
    mean difference is ``at_least``.  *not met*: the second is rejected.  *undecided*: neither; one seed, missing runs.
    A claim without ``low_above`` compares the mean alone.
    """
    places = dict.fromkeys((row.get("part", ""), row["variant"]) for row in rows)
    tests = [
        ClaimTest(claim, part, variant, why)
        if (why := claim.not_tested or reason(claim, part))
        else _compare(claim, part, variant, rows)
        for claim in claims
        for part, variant in places
        if not claim.parts or part in claim.parts
    ]
    tested = [test for test in tests if test.p_values]
    most_true = sum(test.claim.most_true for test in tested)
    adjusted = iter(holm([p for each in tested for p in each.p_values or ()], most_true))
    return [_verdict(each, (next(adjusted), next(adjusted)) if each.p_values else None) for each in tests]


def _compare(claim: Claim, part: str, variant: str, rows: Sequence[TableRow]) -> ClaimTest:
    (setting, metric), (over, over_metric) = claim.sides
    own = [
        row
        for row in rows
        if (row.get("part", ""), row["variant"]) == (part, variant) and row["setting"] in (setting, over)
    ]
    budget = None
    if axis := READINGS.get(metric):
        own, budgets = with_readings(own, None)
        budget = budgets.get(variant, {}).get(axis)
    one, other = ({row["seed"]: row for row in own if row["setting"] == side} for side in (setting, over))
    pairs = [(one[seed], other[seed]) for seed in one if seed in other]
    finished = [(a, b) for a, b in pairs if _has(a, metric) and _has(b, over_metric)]
    stale = sum(bool(a["stale"] or b["stale"]) for a, b in pairs)
    note = f"{stale} of {len(pairs)} pairs hold a stale run" if stale else ""
    differences = [a[metric] - b[over_metric] for a, b in finished]
    estimate, why, expected = None, "", max(len(one), len(other))
    if not finished or len(finished) < expected:
        why = f"{len(finished)} of {expected} pairs finished"
    elif claim.low_above is not None:
        results = [(a["outcomes"].get(metric), b["outcomes"].get(over_metric)) for a, b in finished]
        known = [(a, b) for a, b in results if a is not None and b is not None]
        if metric in MEASURES:
            estimate = seeds_estimate(differences)
        elif len(known) == len(finished):
            estimate = difference_over_seeds(known)
        else:
            why = f"the results by task are missing in {len(finished) - len(known)} of {len(finished)} pairs"
        if estimate is None and not why:
            why = f"{'one seed gives' if len(differences) == 1 else 'all seeds are equal, which gives'} no interval"
    return ClaimTest(claim, part, variant, why, differences, estimate, budget, note)


def _has(row: TableRow, metric: str) -> bool:
    """Whether the run counts, as in the means over seeds: where a run that was to replace it has failed it does not."""
    return row["status"] == "finished" and row.get(metric) is not None


def _verdict(test: ClaimTest, adjusted: tuple[float, float] | None) -> TableRow:
    claim, differences, estimate = test.claim, test.differences, test.estimate
    result: TableRow = {"claim": claim.claim, "part": test.part, "metric": claim.metric, "budget": test.budget}
    result |= {"variant": test.variant, "paper": claim.paper, "threshold": claim.threshold, "n": len(differences)}
    result["difference"] = fmean(differences) if differences else None
    result["difference_low"], result["difference_high"] = estimate.interval if estimate else (None, None)
    result["p_above"], result["p_below"] = adjusted or (None, None)
    result["most_true"] = claim.most_true
    result["verdict"], why = _decide(test, adjusted)
    return result | {"why": "; ".join(part for part in (why, test.stale) if part)}


def _decide(test: ClaimTest, adjusted: tuple[float, float] | None) -> tuple[str, str]:
    """The verdict, and the reason where it is not *met*."""
    claim = test.claim
    if test.why:
        return "undecided", test.why
    # Rounded: 0.95 - 0.9 is slightly below 0.05 in floating point, which no threshold means.
    large = round(fmean(test.differences) - claim.at_least, 9) >= 0
    if adjusted is None:
        return ("met", "") if large else ("not met", "the mean difference is too small")
    p_above, p_below = adjusted
    if p_below <= LEVEL:
        return "not met", "surely too small"
    if large and p_above <= LEVEL:
        return "met", ""
    return "undecided", "large, but not surely" if large else "too small, but not surely"
