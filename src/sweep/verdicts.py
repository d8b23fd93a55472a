"""Claims with thresholds that were fixed before the runs, and the verdicts of the runs on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ..evaluation.statistics import t_interval
from .rows import METRICS, TableRow


@dataclass(frozen=True)
class Claim:
    """The success ``metric`` of ``setting`` exceeds ``over_metric`` of ``over``, seed by seed.

    Without ``over`` the two metrics are those of the same runs; without ``over_metric`` the metric is the same.  The
    mean of the differences must be ``at_least``; where ``low_above`` is given, the lower end of their 95 % t-interval
    must be above it.
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
            if value not in METRICS:
                raise ValueError(f"{key}={value} is unknown. Known: {', '.join(METRICS)}")
        if self._sides[0] == self._sides[1]:
            raise ValueError(f"claim '{self.claim}' compares {self.setting} with itself: give over or over_metric")

    @property
    def _sides(self) -> tuple[tuple[str, str], tuple[str, str]]:
        return (self.setting, self.metric), (self.over or self.setting, self.over_metric or self.metric)

    @property
    def threshold(self) -> str:
        bound = f", lower end above {self.low_above:g}" if self.low_above is not None else ""
        return f"at least {self.at_least:g}{bound}"

    def settings(self) -> tuple[str, ...]:
        return tuple(side[0] for side in self._sides)


def claims_of(entries: Iterable[Mapping[str, Any]], settings: Sequence[str]) -> list[Claim]:
    """The claims that a sweep's yaml lists under ``verdicts``.  Raises ``ValueError`` naming the entry and the key that
    is wrong."""
    claims = []
    for number, entry in enumerate(entries):
        key = f"verdicts[{number}]"
        try:
            claim = Claim(**entry)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{key}: {error}") from error
        for setting in claim.settings():
            if setting not in settings:
                raise ValueError(f"{key}: setting '{setting}' is unknown. Known: {', '.join(settings)}")
        claims.append(claim)
    return claims


def judge(claims: Iterable[Claim], rows: Sequence[TableRow]) -> list[TableRow]:
    """The verdicts, one row per claim and variant.

    *met*: both thresholds hold.  *not met*: the mean difference is too small and, where ``low_above`` is given, the
    whole interval lies below ``at_least``.  *undecided*: anything between, too few seeds for an interval, missing runs.
    """
    variants = dict.fromkeys(row["variant"] for row in rows)
    return [_judge(claim, variant, rows) for claim in claims for variant in variants]


def _judge(claim: Claim, variant: str, rows: Sequence[TableRow]) -> TableRow:
    one, other = (_by_seed(rows, variant, *side) for side in claim._sides)
    pairs = [(one[seed], other[seed]) for seed in one if seed in other]
    finished = [(a[0], b[0]) for a, b in pairs if a[0] is not None and b[0] is not None]
    differences = [a - b for a, b in finished]
    interval = t_interval(differences)
    result: TableRow = {"claim": claim.claim, "variant": variant, "threshold": claim.threshold, "n": len(differences)}
    result["difference"] = fmean(differences) if differences else None
    result["difference_low"], result["difference_high"] = interval or (None, None)
    result["verdict"], result["why"] = _decide(claim, differences, interval, max(len(one), len(other)))
    stale = sum(a[1] or b[1] for a, b in pairs)
    result["why"] += f"{'; ' if result['why'] else ''}{stale} of {len(pairs)} pairs hold a stale run" if stale else ""
    return result


def _decide(
    claim: Claim, differences: Sequence[float], interval: tuple[float, float] | None, pairs: int
) -> tuple[str, str]:
    """The verdict, and the reason where it is not *met*."""
    if not differences or len(differences) < pairs:
        return "undecided", f"{len(differences)} of {pairs} pairs finished"
    # Rounded: 0.95 - 0.9 is slightly below 0.05 in floating point, which no threshold means.
    large = round(fmean(differences) - claim.at_least, 9) >= 0
    if claim.low_above is None:
        return ("met", "") if large else ("not met", "the mean difference is too small")
    if interval is None:
        return "undecided", "one seed gives no interval"
    if interval[1] < claim.at_least:
        return "not met", "the whole interval is too small"
    if large and interval[0] > claim.low_above:
        return "met", ""
    return "undecided", "the interval reaches too low" if large else "the mean is too small, the interval is not"


def _by_seed(rows: Sequence[TableRow], variant: str, setting: str, metric: str) -> dict[int, tuple[float | None, bool]]:
    """Seed -> (value or None, stale) of one side."""
    matching = [row for row in rows if row["setting"] == setting and row["variant"] == variant]
    return {row["seed"]: (row[metric], bool(row["stale"])) for row in matching}
