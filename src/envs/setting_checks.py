"""Checks of settings, splits and actions that worlds share; each raises ``ValueError``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import get_args

from ..experience import Split


def check_choice(world: str, key: str, value: str, choices: Sequence[str]) -> None:
    """The setting ``env.KEY`` is one of ``choices``."""
    if value not in choices:
        raise ValueError(f"env.{key}={value} is unknown; {world} knows {', '.join(choices)}")


def check_at_least(key: str, value: int, minimum: int) -> None:
    """The setting ``env.KEY`` is at least ``minimum``."""
    if value < minimum:
        raise ValueError(f"env.{key} must be at least {minimum}, got {value}")


def check_fraction(key: str, value: float) -> None:
    """The setting ``env.KEY`` is in [0, 1]."""
    if not 0 <= value <= 1:
        raise ValueError(f"env.{key} must be in [0, 1], got {value}")


def check_split(world: str, split: str) -> None:
    """``split`` is one of the three."""
    if split not in get_args(Split):
        raise ValueError(f"{world} has the splits {', '.join(get_args(Split))}, not {split}")


def check_agent(world: str, agents: Sequence[str], agent: str) -> None:
    """``agent`` is one of the team."""
    if agent not in agents:
        raise ValueError(f"{world} has the agents {', '.join(agents)}, not {agent}")


def check_actions(world: str, acting: Sequence[str], actions: Collection[str]) -> None:
    """There is a text of each agent that acts now, and of no other."""
    if not acting or set(actions) != set(acting):
        expected = f"a message of {' and '.join(acting)}" if acting else "no message: the episode is over or not begun"
        raise ValueError(f"{world} expects {expected}, got one of {', '.join(actions) or 'nobody'}")


def reward_bounds(bounds: Sequence[float]) -> tuple[float, float]:
    """The setting ``env.reward_bounds``: two numbers, the lower first."""
    if len(bounds) != 2 or not bounds[0] < bounds[1]:
        raise ValueError(f"env.reward_bounds must be two numbers, the lower first, got {bounds}")
    return bounds[0], bounds[1]


def split_ranges(key: str, ends: Mapping[str, Sequence[int]]) -> dict[Split, range]:
    """The setting ``env.KEY``: of each split a range, from its first number up to, but not including, the second; no
    two overlap."""
    for name in ends:
        check_split(f"env.{key}", name)
    ranges: dict[Split, range] = {}
    for split in get_args(Split):
        match ends.get(split, ()):
            case [int(first), int(end)] if 0 <= first < end:
                ranges[split] = range(first, end)
            case given:
                raise ValueError(f"env.{key}.{split} must be two whole numbers from 0 on, the lower first, got {given}")
    for (one, each), (other, more) in combinations(ranges.items(), 2):
        if max(each.start, more.start) < min(each.stop, more.stop):
            raise ValueError(f"env.{key}.{one} and env.{key}.{other} overlap: a task would be in both splits")
    return ranges
