"""What runs of an older version have otherwise: the keys of their metrics, and of their configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

RENAMED = {
    r"rollout/(.+)/team_reward": r"rollout/\1/outcome_reward",
    r"rollout/cut_off": "rollout/truncated_ratio",
    r"rollout/canary_nats": "rollout/probe_nats",
    r"rollout/(.+)/tokens_a_message": r"rollout/\1/tokens_per_message",
    r"mismatch/(.+)/effective_share": r"mismatch/\1/ess_ratio",
}
"""Old key, a regular expression, to today's key."""
GONE = ("algorithm.update.alarm_kl_nats", "algorithm.update.alarm_ess_ratio", "diagnostics.alarms.mismatch_nats")
"""Keys of the configuration that no figure of a run depended on, and that are no more."""


def with_current_keys(row: Mapping[str, Any]) -> dict[str, Any]:
    """``row`` of ``metrics.jsonl`` or ``summary.json`` under the keys of today."""
    return {current_key(key): value for key, value in row.items()}


def with_current_config(config: dict[str, Any]) -> dict[str, Any]:
    """``config`` under the keys of today.

    ``algorithm.reward.team`` was ``algorithm.sampler.lookahead``: without it a message was judged by its own outcome,
    with it by one answer of the agents that act next.  ``strategy.float32_matmul``, new, has no effect on a CPU, where
    the runs of before were made.  Classes of strategies have moved.  :data:`GONE` are left out.
    """
    algorithm, strategy = config.get("algorithm"), config.get("strategy")
    sampler = algorithm.get("sampler") if isinstance(algorithm, dict) else None
    if isinstance(algorithm, dict) and isinstance(sampler, dict) and "lookahead" in sampler:
        reward = {"team": "global" if sampler["lookahead"] else "own"}
        sampler = {key: value for key, value in sampler.items() if key != "lookahead"}
        config = {**config, "algorithm": {**algorithm, "sampler": sampler, "reward": reward}}
    if isinstance(strategy, dict):
        config = {**config, "strategy": {"float32_matmul": "high", **strategy}}
        if isinstance(sharded := strategy.get("strategy"), dict) and isinstance(target := sharded.get("_target_"), str):
            target = target.replace("troupe.models.strategies.", "troupe.models.pools.strategies.")
            config["strategy"]["strategy"] = {**sharded, "_target_": target}
    policies = config.get("policies")
    own = [f"policies.{name}.{key}" for name in (policies if isinstance(policies, dict) else ()) for key in GONE]
    for key in (*GONE, *own):
        config = _without(config, *key.split("."))
    return config


def _without(config: dict[str, Any], name: str, *names: str) -> dict[str, Any]:
    """``config`` without the key below ``name`` and ``names``; ``config`` itself where there is none."""
    if name not in config:
        return config
    if not names:
        return {key: value for key, value in config.items() if key != name}
    below = config[name]
    rest = _without(below, *names) if isinstance(below, dict) else below
    return config if rest is below else {**config, name: rest}


@cache
def current_key(key: str) -> str:
    """Today's name of the metric ``key``, which is ``key`` itself where it was not renamed."""
    for old, new in RENAMED.items():
        if match := re.fullmatch(old, key):
            return match.expand(new)
    return key
