"""LoRA adapters (arXiv 2106.09685) in the engine: policies on one model, each with low-rank additions of its own.

A linear layer W with an adapter gives W x + (alpha / r) B A x.  The model's own weights are never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...kernels.products import linear
from .weights import load_into

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

PREFIX, A, B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"
"""Parts of the names in a peft checkpoint, around a module's name."""


@dataclass(frozen=True)
class Adapted:
    """A policy that is an adapter on ``model``, which other policies may share.

    ``weights`` are the adapter's by the names of a peft checkpoint; ``scale`` is alpha / r.
    """

    model: PreTrainedModel
    weights: Mapping[str, Tensor]
    scale: float

    @property
    def config(self) -> PretrainedConfig:
        return self.model.config


@dataclass(frozen=True)
class LowRank:
    """An addition to a linear layer's output: ``down`` (r, in) and ``up`` (out, r), the latter times the scale."""

    down: Tensor
    up: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return linear(linear(x, self.down), self.up)


class Adapter:
    """The engine's own copy of one policy's adapter, in its model's dtype and on its device.

    Raises ``ValueError``, naming policy and weight, for weights that do not belong to a linear layer of the model.
    """

    def __init__(self, policy: str, source: Adapted) -> None:
        self.policy, self.model, self.scale = policy, source.model, source.scale
        self._weights = {
            name: tensor.detach().to(self.model.device, self.model.dtype, copy=True)
            for name, tensor in source.weights.items()
        }
        self.modules = {
            name.removeprefix(PREFIX).removesuffix(A): self._linear(name) for name in self._weights if name.endswith(A)
        }
        expected = {f"{PREFIX}{module}{end}" for module in self.modules for end in (A, B)}
        if stray := sorted(expected ^ self._weights.keys()):
            raise ValueError(f"policy '{policy}': the adapter's weight {stray[0]} has no counterpart")

    def _linear(self, name: str) -> nn.Linear:
        path = name.removeprefix(PREFIX).removesuffix(A)
        module = dict(self.model.named_modules()).get(path)
        if not name.startswith(PREFIX) or not isinstance(module, nn.Linear):
            raise ValueError(f"policy '{self.policy}': the adapter's weight {name} belongs to no linear layer")
        return module

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Copy ``weights``.  Raises ``ValueError`` for weights that do not fit; nothing is changed then."""
        load_into(self.policy, self._weights, weights)

    def of(self, path: str) -> LowRank | None:
        """The addition to the output of module ``path``; None where it has no adapter."""
        if path not in self.modules:
            return None
        return LowRank(self._weights[f"{PREFIX}{path}{A}"], self._weights[f"{PREFIX}{path}{B}"] * self.scale)

    def joined(self, paths: Sequence[str], widths: Sequence[int]) -> LowRank | None:
        """The additions to modules that read one input and write ``widths`` outputs side by side, as one addition.

        The modules' ``down`` lie one below the other, their ``up`` are the blocks of a block-diagonal matrix: two
        products instead of two per module.
        """
        parts = [self.of(path) for path in paths]
        present = [part for part in parts if part is not None]
        if not present:
            return None
        down = torch.cat([part.down for part in present])
        up = down.new_zeros(sum(widths), len(down))
        row = column = 0
        for part, width in zip(parts, widths, strict=True):
            if part is not None:
                rank = len(part.down)
                up[row : row + width, column : column + rank] = part.up
                column += rank
            row += width
        return LowRank(down, up)

    @torch.no_grad()
    def merged(self, name: str, weight: Tensor) -> Tensor:
        """W + (alpha / r) B A in place of ``weight`` W, the model's ``name``; W itself where it has no adapter."""
        path, _, leaf = name.rpartition(".")
        if leaf != "weight" or (low := self.of(path)) is None:
            return weight
        return (weight.float() + low.up.float() @ low.down.float()).to(weight.dtype)

    @contextmanager
    def applied(self, dtype: torch.dtype | None = None) -> Iterator[None]:
        """Within, the model's linear layers add this adapter's additions, rounded to ``dtype``; None: as they are."""
        with ExitStack() as stack:
            for path, module in self.modules.items():
                low = self.of(path)
                assert low is not None  # every module of an adapter has its weights
                if dtype is not None:
                    low = LowRank(low.down.to(dtype), low.up.to(dtype))
                stack.callback(module.register_forward_hook(_adding(low)).remove)
            yield


def _adding(low: LowRank) -> Callable[..., Tensor]:
    def hook(module: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
        return output + LowRank(low.down.to(output.dtype), low.up.to(output.dtype))(arguments[0])

    return hook
