"""What the torch engine's settings may be."""

from __future__ import annotations

from .dtypes import check_dtype

GIB = 1 << 30


def check_settings(
    max_batch_rows: int, lockstep: bool, dtype: str | None, in_flight: bool, prefix_cache_gib: float
) -> None:
    """Raise ``ValueError``, naming the key, for settings that the engine cannot run with."""
    if max_batch_rows < 1:
        raise ValueError(f"engine.max_batch_rows must be at least 1, got {max_batch_rows}")
    check_dtype(dtype)
    if in_flight and lockstep:
        raise ValueError(
            "engine.in_flight=true with engine.lockstep=true: the token at which weights come depends on time; give "
            "loop.lockstep=false"
        )
    if isinstance(prefix_cache_gib, bool) or not isinstance(prefix_cache_gib, int | float) or not prefix_cache_gib >= 0:
        raise ValueError(f"engine.prefix_cache_gib must be at least 0 (0: off), got {prefix_cache_gib!r}")
