"""What a sweep or a publication claims, with thresholds that are fixed before the runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError, nearest
from .measures import MEASURES, METRICS, READINGS


@dataclass(frozen=True)
class Claim:
    """The success ``metric`` of ``setting`` exceeds ``over_metric`` of ``over``, seed by seed.

    Without ``over`` the two metrics are those of the same runs; without ``over_metric`` the metric is the same.  The
    mean of the differences must be ``at_least``; where ``low_above`` is given, it must be above it beyond the chance of
    seeds and tasks, see :func:`.verdicts.judge`.  Success at equal budgets is that at the largest budget that the runs
    of the two settings reach: a third setting that ends early does not shorten the comparison.

    Of a publication, ``paper`` is what it reports, ``parts`` are the worlds that the claim is about (all, if none is
    named), and ``not_tested`` is the reason why there is no setting.
    """

    claim: str
    setting: str = ""
    at_least: float = 0.0
    over: str = ""
    metric: str = "after"
    over_metric: str = ""
    low_above: float | None = None
    paper: str = ""
    parts: Sequence[str] = ()
    not_tested: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        where, metrics = f"claim '{self.claim}'", (self.metric, self.over_metric or self.metric)
        if bool(self.setting) == bool(self.not_tested):
            raise ConfigError(f"{where} has a setting, or says why it is not tested")
        check_known(f"{where}: metric", metrics, (*METRICS, *READINGS, *MEASURES))
        if len({value in MEASURES for value in metrics}) > 1:
            raise ConfigError(f"{where}: metric={self.metric} and over_metric={self.over_metric} are of two kinds")
        for key, number in (("at_least", self.at_least), ("low_above", self.low_above)):
            if number is not None and not math.isfinite(number):
                raise ConfigError(f"{where}: {key} must be a finite number, got {number}")
        if self.low_above is not None and self.low_above > self.at_least:
            raise ConfigError(f"{where}: low_above={self.low_above:g} must not be above at_least={self.at_least:g}")
        if self.setting and self.sides[0] == self.sides[1]:
            raise ConfigError(f"{where} compares {self.setting} with itself: give over or over_metric")

    @property
    def sides(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """(Setting, metric) that is to be the larger one, and that it is compared with."""
        return (self.setting, self.metric), (self.over or self.setting, self.over_metric or self.metric)

    @property
    def threshold(self) -> str:
        bound = f", surely above {self.low_above:g}" if self.low_above is not None else ""
        return f"at least {self.at_least:g}{bound}" if self.setting else ""

    @property
    def most_true(self) -> int:
        """How many of its two hypotheses can be true together: both where the difference may be the one threshold."""
        return 2 if self.low_above == self.at_least else 1


def check_known(where: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raise :class:`ConfigError` for one of ``names`` that is not ``known``; "" is none."""
    for name in names:
        if name and name not in known:
            raise ConfigError(f"{where}: '{name}' is unknown{nearest(name, list(known))}")


def claim_entries(key: str, entries: Any) -> Any:
    """The entries of a yaml as keys of :class:`Claim`: one whose ``metric`` is a list is one per metric.  Raises
    :class:`ConfigError`, naming ``key``, for one without a threshold."""
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        return entries  # refused by its kind
    for number, entry in enumerate(entries):
        if "setting" in entry and not {"at_least", "low_above"} & entry.keys():
            raise ConfigError(f"{key}[{number}] has no threshold: at_least, or low_above")
    lists = [own if isinstance(own := entry.get("metric", "after"), list) else [own] for entry in entries]
    pairs = zip(entries, lists, strict=True)
    return [{**entry, "metric": metric} for entry, metrics in pairs for metric in metrics]


def check_claims(key: str, claims: Sequence[Claim], settings: Collection[str], metrics: Collection[str]) -> None:
    """Raise :class:`ConfigError`, naming ``key``, for a setting that is not one of ``settings``, and a metric that is
    not one of ``metrics``."""
    for claim in claims:
        check_known(f"{key}: claim '{claim.claim}': setting", (claim.setting, claim.over), settings)
        check_known(f"{key}: claim '{claim.claim}': metric", (claim.metric, claim.over_metric), metrics)
    names = [(claim.claim, claim.metric, part) for claim in claims for part in claim.parts or ("",)]
    if twice := next((each[0] for each in names if names.count(each) > 1), ""):
        raise ConfigError(f"{key}: claim '{twice}' is there twice")
