"""Seeds that depend on what is sampled, never on when or where."""

from __future__ import annotations

from hashlib import blake2b


def derive(*parts: int | str) -> int:
    """A 63-bit seed from (run, iteration, task, agent, turn, node, ...)."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
