"""What the torch engine's settings may be, checked without transformers, whose models take seconds to import."""

from __future__ import annotations

import torch

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def check_dtype(dtype: str | None) -> None:
    """Raise ``ValueError`` for a dtype that the engine does not have."""
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"engine.dtype={dtype}: the torch engine has {', '.join(DTYPES)} and null, that of the models")


GIB = 1 << 30


def check_settings(
    max_batch_rows: int,
    lockstep: bool,
    dtype: str | None,
    in_flight: bool = False,
    prefix_cache_gib: float = 0,
    max_cache_gib: float | None = None,
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
    if not (_is_number(prefix_cache_gib) and prefix_cache_gib >= 0):
        raise ValueError(f"engine.prefix_cache_gib must be at least 0 (0: off), got {prefix_cache_gib!r}")
    if max_cache_gib is not None and not (_is_number(max_cache_gib) and max_cache_gib > 0):
        raise ValueError(f"engine.max_cache_gib must be above 0, or null (no limit), got {max_cache_gib!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
