"""An adapter merged into its base: W + (alpha / r) B A in place of W, computed when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ..lora import Adapter


class Merged(Mapping[str, Tensor]):
    """``base``'s weights with ``adapter`` in them.  One tensor at a time exists; nothing is kept."""

    def __init__(self, base: Mapping[str, Tensor], adapter: Adapter) -> None:
        self._base, self._adapter = base, adapter

    @torch.no_grad()
    def __getitem__(self, name: str) -> Tensor:
        weight = self._base[name]
        path, _, leaf = name.rpartition(".")
        low = self._adapter.of(path) if leaf == "weight" and path in self._adapter.modules else None
        return weight if low is None else (weight.float() + low.up.float() @ low.down.float()).to(weight.dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self._base)

    def __len__(self) -> int:
        return len(self._base)
