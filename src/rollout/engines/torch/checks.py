"""What the torch engine's settings may be, checked without transformers, whose models take seconds to import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from ....errors import AboveZero, NotNegative, Positive, check_fields

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
GIB = 1 << 30


@dataclass(frozen=True)
class TorchSettings:
    """See :class:`.engine.TorchEngine`.  Raises ``ValueError``, naming the key, for what the engine cannot run with."""

    max_batch_rows: Positive = 256
    lockstep: bool = True
    dtype: Literal["float32", "bfloat16"] | None = None
    in_flight: bool = False
    prefix_cache_gib: NotNegative = 0
    max_cache_gib: AboveZero | None = None

    def __post_init__(self) -> None:
        check_fields(self, "engine.")
        if self.in_flight and self.lockstep:
            raise ValueError(
                "engine.in_flight=true with engine.lockstep=true: the token at which weights come depends on time; "
                "give loop.lockstep=false"
            )
