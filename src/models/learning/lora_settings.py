"""The settings of an adapter; nothing here imports torch until a model is given, so that they are checked at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import AboveZero, Positive, check_fields

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel

ALL_LINEAR = "all-linear"
"""Every linear layer but the output layer."""


class AdapterError(ValueError):
    """An adapter that cannot be put on its base; the message names the key."""


@dataclass(frozen=True, kw_only=True)
class LoraSettings:
    """A policy's adapter: W x becomes W x + (``alpha`` / ``r``) B A x in every layer of ``targets``.

    ``targets`` are names of linear layers (``q_proj``), or ``all-linear``.
    """

    r: Positive
    alpha: AboveZero
    targets: str | Sequence[str] = ALL_LINEAR

    def __post_init__(self) -> None:
        check_fields(self, error=AdapterError)
        if not self.targets or (isinstance(self.targets, str) and self.targets != ALL_LINEAR):
            raise AdapterError(f"targets must be {ALL_LINEAR} or a list of linear layers, got {self.targets!r}")

    @property
    def scale(self) -> float:
        return self.alpha / self.r

    def layers(self, model: PreTrainedModel) -> list[str]:
        """``targets`` as names.

        Raises :class:`AdapterError` naming one that is no linear layer of ``model``, and those that there are.
        """
        head = model.get_output_embeddings()
        linear = [name for name, m in _linear(model) if m is not head]
        known = list(dict.fromkeys(name.rpartition(".")[2] for name in linear))
        if not known:
            raise AdapterError(f"targets: {type(model).__name__} has no linear layers within")
        if isinstance(self.targets, str):
            return known
        for target in self.targets:
            if not any(name == target or name.endswith(f".{target}") for name in linear):
                listed = ", ".join([*known, ALL_LINEAR])
                raise AdapterError(f"targets: {type(model).__name__} has no linear layer '{target}'. Known: {listed}")
        return list(self.targets)

    def parameters(self, model: PreTrainedModel) -> int:
        """How many numbers an adapter on ``model`` has.  Raises as :meth:`layers`."""
        ends = tuple(f".{name}" for name in self.layers(model))
        linear = [m for name, m in _linear(model) if f".{name}".endswith(ends)]
        return sum(self.r * (layer.in_features + layer.out_features) for layer in linear)


def _linear(model: PreTrainedModel) -> Iterator[tuple[str, nn.Linear]]:
    from torch import nn

    return ((name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear))
