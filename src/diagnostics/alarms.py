"""Alarms: what in the metrics of the last iterations says that a team does not learn as it should."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import median
from typing import Any, Literal

from ..evaluation.statistics import wilson
from .settings import AlarmSettings

Role = Literal["agent", "policy"]
State = dict[str, dict[str, Any]]
"""By alarm, metric and agent or policy: the last ``values``, and since when it is raised.  Plain data for JSON."""


@dataclass(frozen=True)
class AlarmRule:
    """An alarm on one metric: raised while the median over a window is ``beyond`` the threshold of the same name, so
    that a single iteration raises none.
    """

    alarm: str
    threshold: str
    """The key of :class:`.settings.AlarmSettings`."""
    metric: str
    """The key of the metric, with ``AGENT`` or ``POLICY``."""
    beyond: Literal["above", "below"]
    meaning: str
    to_start: bool = False
    """Whether the value is the ratio to the median over the run's first window."""
    unless_solved: bool = False
    """Whether a solved world would raise it, too."""
    rare: bool = False
    """Whether it is measured in some iterations only."""
    pairs: str = ""
    """The metric of how many pairs a share was counted over, where these are few: then the shares are pooled over up to
    :data:`POOLED` measurements, and the upper end of their 95 % Wilson interval must lie below the threshold.
    """
    success: tuple[str, ...] = ("rollout/success", "rollout/best_of_k_success")
    """The metric, the first of these that there is, that says whether the world is solved."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(re.escape(self.metric).replace("AGENT", "([^/]+)").replace("POLICY", "([^/]+)"))

    @property
    def role(self) -> Role:
        return "agent" if "AGENT" in self.metric else "policy"


POOLED = 10
"""Measurements, at the most, of a share that is counted over few pairs."""

RULES = (
    AlarmRule(
        *("nothing_learnt", "zero_variance", "diagnostics/AGENT/zero_variance", "above"),
        "of its groups have no difference to learn from",
        unless_solved=True,
    ),
    AlarmRule(
        *("nothing_learnt", "grad_norm", "train/POLICY/grad_norm", "below"),
        "is the norm of its gradient",
        unless_solved=True,
    ),
    AlarmRule(
        *("entropy_collapse", "entropy_ratio", "diagnostics/AGENT/entropy_nats", "below"),
        "of its first entropy is left",
        to_start=True,
        unless_solved=True,
    ),
    AlarmRule("length_explosion", "truncated", "diagnostics/AGENT/truncated", "above", "of its messages are cut off"),
    AlarmRule(
        *("length_explosion", "length_ratio", "rollout/AGENT/tokens_per_message", "above"),
        "times its first length",
        to_start=True,
    ),
    AlarmRule(
        *("role_dominance", "gradient_share", "diagnostics/AGENT/gradient_share", "above"),
        "of its policy's gradient is its own",
        unless_solved=True,
        rare=True,
    ),
    AlarmRule(
        *("role_dominance", "excess_weight", "diagnostics/AGENT/excess_weight", "above"),
        "of the weight in its policy's loss is its own, beyond its share of the messages",
    ),
    AlarmRule(
        *("lazy_agent", "influence", "diagnostics/AGENT/influence", "below"),
        "of its other messages change the outcome",
        unless_solved=True,
        rare=True,
        pairs="diagnostics/AGENT/influence_pairs",
        success=("diagnostics/probe_success",),
    ),
    AlarmRule(
        *("lazy_agent", "spread", "diagnostics/AGENT/spread", "below"),
        "of its other messages earn the team more or less",
        unless_solved=True,
    ),
    AlarmRule(
        *("mismatch", "mismatch_roundings", "mismatch/AGENT/roundings", "above"),
        "roundings of its model are engine and learner apart",
    ),
    AlarmRule(
        *("mismatch", "mismatch_ess_ratio", "mismatch/AGENT/ess_ratio", "below"),
        "is the effective sample size of its importance ratios",
    ),
    AlarmRule(
        *("staleness", "stale_ess_ratio", "train/POLICY/stale_ess_ratio", "below"),
        "is the effective sample size of the importance ratios of its older versions",
    ),
    AlarmRule("malformed", "malformed", "diagnostics/AGENT/malformed", "above", "of its messages cannot be read"),
)


@dataclass(frozen=True)
class Alarm:
    """An alarm that was raised after iteration ``since``'s window began, and not after ``until`` any more."""

    alarm: str
    role: Role
    name: str
    """Of the agent or policy."""
    policy: str
    metric: str
    value: float
    threshold: float
    beyond: Literal["above", "below"]
    setting: str
    meaning: str
    since: int
    """The first iteration of the window that raised it."""
    until: int | None = None
    """The last iteration in which it was raised; None while it is."""

    @property
    def title(self) -> str:
        """The alarm, the policy and the agent."""
        who = f"policy '{self.policy}'" + (f", agent '{self.name}'" if self.role == "agent" else "")
        return f"{self.alarm.replace('_', ' ')}, {who}"

    def __str__(self) -> str:
        end = "" if self.until is None else f" to {self.until}"
        return (
            f"{self.title}: {self.value:.3g} {self.meaning}, "
            f"{self.beyond} {self.setting}={self.threshold:g}, since iteration {self.since}{end}"
        )

    def record(self) -> dict[str, Any]:
        """For ``summary.json``."""
        left_out = ("meaning",)
        return {key: value for key, value in asdict(self).items() if key not in left_out} | {"text": str(self)}


def check(row: Mapping[str, Any], settings: AlarmSettings, state: State) -> None:
    """Add the metrics of the iteration ``row`` to ``state``."""
    for rule in RULES:
        solved = rule.unless_solved and _success(row, rule) >= settings.solved
        for key, value in row.items() if getattr(settings, rule.threshold) else ():
            if match := rule.pattern.fullmatch(key):
                entry = state.setdefault(
                    f"{rule.threshold}/{match[1]}", {"values": [], "start": None, "since": None, "until": None}
                )
                pairs = row.get(rule.pairs.replace("AGENT", match[1]), 0)
                measured = [] if solved else [*entry["values"], [row["iteration"], value, pairs]]
                entry["values"] = measured[-_length(rule, settings) :]
                _judge(entry, rule, row["iteration"], settings)


def _length(rule: AlarmRule, settings: AlarmSettings) -> int:
    """The measurements of a window."""
    if rule.pairs:
        return POOLED
    return settings.measurements if rule.rare else settings.window


def _judge(entry: dict[str, Any], rule: AlarmRule, iteration: int, settings: AlarmSettings) -> None:
    """Whether the values of ``entry`` raise the alarm after ``iteration``."""
    value = bound = _pooled(entry["values"]) if rule.pairs else _typical(entry, rule, settings)
    if rule.pairs and value is not None:
        pairs = int(sum(count for _, _, count in entry["values"]))
        bound = wilson(round(value * pairs), pairs)[1]
    threshold = getattr(settings, rule.threshold)
    raised = bound is not None and (bound > threshold if rule.beyond == "above" else bound < threshold)
    if raised:
        if entry["since"] is None or entry["until"] is not None:
            entry["since"] = entry["values"][0][0]
        entry |= {"value": value, "until": None}
    elif entry["since"] is not None and entry["until"] is None:
        entry["until"] = iteration - 1


def _typical(entry: dict[str, Any], rule: AlarmRule, settings: AlarmSettings) -> float | None:
    """The median of a full window, or its ratio to that of the first one; None before."""
    if len(entry["values"]) < _length(rule, settings):
        return None
    middle = median(value for _, value, _ in entry["values"])
    if not rule.to_start:
        return middle
    if entry["start"] is None:
        entry["start"] = middle
    return middle / entry["start"] if entry["start"] else 1.0


def _pooled(values: Sequence[tuple[int, float, int]]) -> float | None:
    """The share over all pairs; None where there are none."""
    pairs = sum(count for _, _, count in values)
    return sum(value * count for _, value, count in values) / pairs if pairs else None


def _success(row: Mapping[str, Any], rule: AlarmRule) -> float:
    return next((row[key] for key in rule.success if key in row), 0.0)


def alarms(state: State, settings: AlarmSettings, policy_of: Mapping[str, str]) -> Iterator[Alarm]:
    """Every alarm that was raised so far; ``policy_of`` each agent."""
    for rule in RULES:
        for key, entry in state.items():
            setting, _, name = key.partition("/")
            if setting == rule.threshold and entry["since"] is not None:
                yield Alarm(
                    alarm=rule.alarm,
                    role=rule.role,
                    name=name,
                    policy=policy_of.get(name, name) if rule.role == "agent" else name,
                    metric=rule.metric.replace(rule.role.upper(), name),
                    value=entry["value"],
                    threshold=getattr(settings, rule.threshold),
                    beyond=rule.beyond,
                    setting=f"diagnostics.alarms.{setting}",
                    meaning=rule.meaning,
                    since=entry["since"],
                    until=entry["until"],
                )
