"""Alarms: what in the metrics of the last iterations says that a team does not learn as it should."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Literal

from .settings import AlarmSettings

Role = Literal["agent", "policy"]
State = dict[str, dict[str, Any]]
"""By alarm, metric and agent or policy: the last ``values``, and since when it is raised.  Plain data for JSON."""


@dataclass(frozen=True)
class Rule:
    """An alarm on one metric: raised while the mean over a window is ``beyond`` the threshold of the same name."""

    alarm: str
    threshold: str
    """The key of :class:`.settings.AlarmSettings`."""
    metric: str
    """The key of the metric, with ``AGENT`` or ``POLICY``."""
    beyond: Literal["above", "below"]
    meaning: str
    to_start: bool = False
    """Whether the value is the ratio to the mean over the run's first window."""
    unless_solved: bool = False
    """Whether a solved world would raise it, too."""
    rare: bool = False
    """Whether it is measured in some iterations only."""
    success: tuple[str, ...] = ("rollout/success", "rollout/best_of_k_success")
    """The metric, the first of these that there is, that says whether the world is solved."""

    @property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(re.escape(self.metric).replace("AGENT", "([^/]+)").replace("POLICY", "([^/]+)"))

    @property
    def role(self) -> Role:
        return "agent" if "AGENT" in self.metric else "policy"


RULES = (
    Rule(
        *("nothing_learnt", "zero_variance", "diagnostics/AGENT/zero_variance", "above"),
        "of its groups have no difference to learn from",
        unless_solved=True,
    ),
    Rule(
        *("nothing_learnt", "grad_norm", "train/POLICY/grad_norm", "below"),
        "is the norm of its gradient",
        unless_solved=True,
    ),
    Rule(
        *("entropy_collapse", "entropy_ratio", "diagnostics/AGENT/entropy_nats", "below"),
        "of its first entropy is left",
        to_start=True,
        unless_solved=True,
    ),
    Rule("length_explosion", "truncated", "diagnostics/AGENT/truncated", "above", "of its messages are cut off"),
    Rule(
        *("length_explosion", "length_ratio", "rollout/AGENT/tokens_per_message", "above"),
        "times its first length",
        to_start=True,
    ),
    Rule(
        *("role_dominance", "gradient_share", "diagnostics/AGENT/gradient_share", "above"),
        "of its policy's gradient is its own",
        rare=True,
    ),
    Rule(
        *("lazy_agent", "influence", "diagnostics/AGENT/influence", "below"),
        "of its other messages change the outcome",
        unless_solved=True,
        rare=True,
        success=("diagnostics/probe_success",),
    ),
    Rule(
        *("mismatch", "mismatch_nats", "mismatch/AGENT/k3_nats", "above"),
        "nats is the divergence of engine and learner",
    ),
    Rule(
        *("mismatch", "mismatch_ess_ratio", "mismatch/AGENT/ess_ratio", "below"),
        "is the effective sample size of its importance ratios",
    ),
    Rule("malformed", "malformed", "diagnostics/AGENT/malformed", "above", "of its messages cannot be read"),
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
                entry = state.setdefault(f"{rule.threshold}/{match[1]}", {"values": [], "start": None, "since": None})
                _add(entry, rule, row["iteration"], value, settings, solved)


def _add(
    entry: dict[str, Any], rule: Rule, iteration: int, value: float, settings: AlarmSettings, solved: bool
) -> None:
    """Add one measurement to the ``entry`` of a rule and an agent or policy."""
    length = settings.measurements if rule.rare else settings.window
    entry["values"] = [] if solved else [*entry["values"], [iteration, value]][-length:]
    full, raised = len(entry["values"]) == length, False
    if full:
        mean = fmean(each for _, each in entry["values"])
        if rule.to_start:
            if entry["start"] is None:
                entry["start"] = mean
            mean = mean / entry["start"] if entry["start"] else 1.0
        threshold = getattr(settings, rule.threshold)
        raised = mean > threshold if rule.beyond == "above" else mean < threshold
        if raised:
            if entry["since"] is None or entry.get("until") is not None:
                entry["since"] = entry["values"][0][0]
            entry |= {"value": mean, "until": None}
    if not raised and entry["since"] is not None and entry.get("until") is None:
        entry["until"] = iteration - 1


def _success(row: Mapping[str, Any], rule: Rule) -> float:
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
