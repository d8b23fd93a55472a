"""What worlds refuse in the same words, with ``ValueError``: settings, strangers, and whoever speaks out of turn."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def check_choice(world: str, key: str, value: str, known: Sequence[str]) -> None:
    """A setting that is one of a few words."""
    if value not in known:
        raise ValueError(f"env.{key}={value} is unknown; {world} knows {', '.join(known)}")


def check_least(key: str, value: int, least: int) -> None:
    """A setting with a lower bound."""
    if value < least:
        raise ValueError(f"env.{key} must be at least {least}, got {value}")


def check_share(key: str, value: float) -> None:
    """A setting that is a part of something."""
    if not 0 <= value <= 1:
        raise ValueError(f"env.{key} must be in [0, 1], got {value}")


def check_agent(world: str, agents: Sequence[str], agent: str) -> None:
    """Who is to be told something is one of the team."""
    if agent not in agents:
        raise ValueError(f"{world} has the agents {', '.join(agents)}, not {agent}")


def check_speakers(world: str, acting: Sequence[str], speakers: Collection[str]) -> None:
    """Exactly those speak who are to act now."""
    if not acting or set(speakers) != set(acting):
        expected = f"a message of {' and '.join(acting)}" if acting else "no message: the episode is over or not begun"
        raise ValueError(f"{world} expects {expected}, got one of {', '.join(speakers) or 'nobody'}")
