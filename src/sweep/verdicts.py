"""Claims with thresholds that were fixed before the runs, and the verdicts of the runs on them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ..evaluation.statistics import Estimate, holm, seeds_estimate
from ..setup.arguments import check_arguments
from .measures import MEASURES
from .outcomes import Outcomes, difference_over_seeds
from .readings import with_readings
from .rows import METRICS, READINGS, TableRow
from .shapes import check_shapes

LEVEL = 0.05
"""The probability of one or more wrong verdicts on a page, at most."""


@dataclass(frozen=True)
class Claim:
    """The success ``metric`` of ``setting`` exceeds ``over_metric`` of ``over``, seed by seed.

    Without ``over`` the two metrics are those of the same runs; without ``over_metric`` the metric is the same.  The
    mean of the differences must be ``at_least``; where ``low_above`` is given, it must be above it beyond the chance of
    seeds and tasks, see :func:`judge`.  Success at equal budgets is that at the largest budget that the runs of the two
    settings reach: a third setting that ends early does not shorten the comparison.
    """

    claim: str
    setting: str
    at_least: float
    over: str = ""
    metric: str = "after"
    over_metric: str = ""
    low_above: float | None = None

    def __post_init__(self) -> None:
        for key, value in (("metric", self.metric), ("over_metric", self.over_metric or self.metric)):
            if value not in (*METRICS, *READINGS, *MEASURES):
                raise ValueError(f"{key}={value} is unknown. Known: {', '.join((*METRICS, *READINGS, *MEASURES))}")
        if len({value in MEASURES for value in (self.metric, self.over_metric or self.metric)}) > 1:
            raise ValueError(f"metric={self.metric} and over_metric={self.over_metric} are of two kinds")
        for key, number in (("at_least", self.at_least), ("low_above", self.low_above)):
            if number is not None and not math.isfinite(number):
                raise ValueError(f"claim '{self.claim}': {key} must be a finite number, got {number}")
        if self.low_above is not None and self.low_above > self.at_least:
            raise ValueError(f"low_above={self.low_above:g} must not be above at_least={self.at_least:g}")
        if self._sides[0] == self._sides[1]:
            raise ValueError(f"claim '{self.claim}' compares {self.setting} with itself: give over or over_metric")

    @property
    def _sides(self) -> tuple[tuple[str, str], tuple[str, str]]:
        return (self.setting, self.metric), (self.over or self.setting, self.over_metric or self.metric)

    @property
    def threshold(self) -> str:
        bound = f", surely above {self.low_above:g}" if self.low_above is not None else ""
        return f"at least {self.at_least:g}{bound}"

    def settings(self) -> tuple[str, ...]:
        return tuple(side[0] for side in self._sides)


def claims_of(entries: Iterable[Mapping[str, Any]], settings: Sequence[str]) -> list[Claim]:
    """The claims that a sweep's yaml lists under ``verdicts``; an entry whose ``metric`` is a list is one per metric.
    Raises ``ValueError`` naming the entry and the key that is wrong."""
    claims = []
    for number, entry in enumerate(entries):
        key = f"verdicts[{number}]"
        try:
            metrics = entry.get("metric", "after")
            parts = [{**entry, "metric": one} for one in metrics] if isinstance(metrics, list) else [entry]
            for part in parts:
                check_arguments("", Claim, part)
                check_shapes(Claim, part)
            claims += (own := [Claim(**part) for part in parts])
            if name := next((claim.metric for claim in own if claim.metric in MEASURES), ""):
                raise ValueError(f"metric={name} is one of tables of publications, not of sweeps")
        except (TypeError, ValueError) as error:
            raise ValueError(f"{key}: {error}") from error
        for setting in claims[-1].settings() if claims else ():
            if setting not in settings:
                raise ValueError(f"{key}: setting '{setting}' is unknown. Known: {', '.join(settings)}")
    if twice := next((claim for (claim, _), n in Counter((c.claim, c.metric) for c in claims).items() if n > 1), ""):
        raise ValueError(f"verdicts: claim '{twice}' is there twice")
    return claims


@dataclass(frozen=True)
class ClaimTest:
    """A claim in one variant: the differences of its pairs of runs, and why there is no estimate, if there is none.

    ``budget``: in completions, tokens or steps, where the metric is one at equal budgets.
    """

    claim: Claim
    variant: str
    budget: float | None
    differences: Sequence[float]
    estimate: Estimate | None
    why: str
    stale: str

    @property
    def p_values(self) -> tuple[float, float] | None:
        """Of the hypotheses that the claim's difference is at most ``low_above``, and that it is at least ``at_least``;
        None where nothing is tested.
        """
        if self.estimate is None or self.claim.low_above is None:
            return None
        return self.estimate.p_at_most(self.claim.low_above), self.estimate.p_at_least(self.claim.at_least)


def judge(claims: Iterable[Claim], rows: Sequence[TableRow]) -> list[TableRow]:
    """The verdicts, one row per claim and variant.

    A claim with ``low_above`` tests two hypotheses, each one-sided: that the difference is at most ``low_above``, and
    that it is at least ``at_least``.  All tests of a page are corrected together by Holm's procedure, so that the
    probability of one or more wrong rejections on it is at most :data:`LEVEL`.  *met*: the first is rejected, and the
    mean difference is ``at_least``.  *not met*: the second is rejected.  *undecided*: neither; one seed, missing runs.
    A claim without ``low_above`` compares the mean alone.
    """
    variants = dict.fromkeys(row["variant"] for row in rows)
    comparisons = [_compare(claim, variant, rows) for claim in claims for variant in variants]
    tested = [comparison.p_values for comparison in comparisons]
    adjusted = iter(holm([p for pair in tested if pair for p in pair]))
    return [_verdict(each, (next(adjusted), next(adjusted)) if each.p_values else None) for each in comparisons]


def _compare(claim: Claim, variant: str, rows: Sequence[TableRow]) -> ClaimTest:
    own = [row for row in rows if row["variant"] == variant and row["setting"] in claim.settings()]
    metric, over_metric = (side[1] for side in claim._sides)
    budget = None
    if axis := READINGS.get(metric):
        own, budgets = with_readings(own, None)
        budget = budgets.get(variant, {}).get(axis)
    one, other = (_by_seed(own, setting) for setting in claim.settings())
    pairs = [(one[seed], other[seed]) for seed in one if seed in other]
    finished = [(a, b) for a, b in pairs if _has(a, metric) and _has(b, over_metric)]
    stale = sum(bool(a["stale"] or b["stale"]) for a, b in pairs)
    note = f"{stale} of {len(pairs)} pairs hold a stale run" if stale else ""
    differences = [a[metric] - b[over_metric] for a, b in finished]
    estimate, expected = None, max(len(one), len(other))
    if not finished or len(finished) < expected:
        why = f"{len(finished)} of {expected} pairs finished"
    elif claim.low_above is None:
        why = ""
    elif metric in MEASURES:
        estimate = seeds_estimate(differences)
        why = "" if estimate else _no_interval(differences)
    else:
        results: list[tuple[Outcomes | None, Outcomes | None]] = [
            (a["outcomes"].get(metric), b["outcomes"].get(over_metric)) for a, b in finished
        ]
        known = [(a, b) for a, b in results if a is not None and b is not None]
        if len(known) < len(finished):
            why = f"the results by task are missing in {len(finished) - len(known)} of {len(finished)} pairs"
        else:
            estimate = difference_over_seeds(known)
            why = "" if estimate else _no_interval(differences)
    return ClaimTest(claim, variant, budget, differences, estimate, why, note)


def _has(row: TableRow, metric: str) -> bool:
    """Whether the run counts, as in the means over seeds: where a run that was to replace it has failed it does not."""
    return row["status"] == "finished" and row.get(metric) is not None


def _no_interval(differences: Sequence[float]) -> str:
    return "one seed gives no interval" if len(differences) == 1 else "all seeds are equal, which gives no interval"


def _verdict(comparison: ClaimTest, adjusted: tuple[float, float] | None) -> TableRow:
    claim, differences, estimate = comparison.claim, comparison.differences, comparison.estimate
    result: TableRow = {"claim": claim.claim, "metric": claim.metric, "budget": comparison.budget}
    result |= {"variant": comparison.variant, "threshold": claim.threshold, "n": len(differences)}
    result["difference"] = fmean(differences) if differences else None
    result["difference_low"], result["difference_high"] = estimate.interval if estimate else (None, None)
    result["p_above"], result["p_below"] = adjusted or (None, None)
    result["verdict"], why = _decide(comparison, adjusted)
    return result | {"why": "; ".join(part for part in (why, comparison.stale) if part)}


def _decide(comparison: ClaimTest, adjusted: tuple[float, float] | None) -> tuple[str, str]:
    """The verdict, and the reason where it is not *met*."""
    claim = comparison.claim
    if comparison.why:
        return "undecided", comparison.why
    # Rounded: 0.95 - 0.9 is slightly below 0.05 in floating point, which no threshold means.
    large = round(fmean(comparison.differences) - claim.at_least, 9) >= 0
    if adjusted is None:
        return ("met", "") if large else ("not met", "the mean difference is too small")
    p_above, p_below = adjusted
    if p_below <= LEVEL:
        return "not met", "surely too small"
    if large and p_above <= LEVEL:
        return "met", ""
    return "undecided", "large, but not surely" if large else "too small, but not surely"


def _by_seed(rows: Sequence[TableRow], setting: str) -> dict[int, TableRow]:
    return {row["seed"]: row for row in rows if row["setting"] == setting}
