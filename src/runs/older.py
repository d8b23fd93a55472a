"""Metric keys of runs that an older version wrote: one table from the old keys to those of today."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

RENAMED = {
    r"rollout/cut_off": "rollout/truncated_ratio",
    r"rollout/(.+)/tokens_a_message": r"rollout/\1/tokens_per_message",
    r"mismatch/(.+)/effective_share": r"mismatch/\1/ess_ratio",
}
"""Old key, a regular expression, to today's key."""


def with_current_keys(row: Mapping[str, Any]) -> dict[str, Any]:
    """``row`` of ``metrics.jsonl`` or ``summary.json`` under the keys of today."""
    return {current_key(key): value for key, value in row.items()}


@cache
def current_key(key: str) -> str:
    """Today's name of the metric ``key``, which is ``key`` itself where it was not renamed."""
    for old, new in RENAMED.items():
        if match := re.fullmatch(old, key):
            return match.expand(new)
    return key
