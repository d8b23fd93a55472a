"""Weights from the learner's process into the engine's, through vLLM's interface for weight transfer.

A back end of our own: a part of the weights is written as a safetensors file into shared memory, and the engine maps it
and loads it as it loads a checkpoint.  It needs no GPU and no process group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from vllm.distributed.weight_transfer import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

NAME = "troupe_shared_memory"
PART_BYTES = 512 << 20
"""How much lies in shared memory at a time, unless a single tensor is larger."""


@dataclass
class NoRendezvous(WeightTransferInitInfo):
    """Nothing is to be agreed on first."""


@dataclass
class Part(WeightTransferUpdateInfo):
    """Where some of the weights lie."""

    path: str


class SharedMemoryTransfer(WeightTransferEngine[NoRendezvous, Part]):
    """The engine's side."""

    init_info_cls = NoRendezvous
    update_info_cls = Part

    def init_transfer_engine(self, init_info: NoRendezvous) -> None:
        pass

    def start_weight_update(self) -> None:
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, str]) -> None:
        # The base class synchronises an accelerator afterwards, which a CPU has not; loading is synchronous there.
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: Part) -> None:
        self.model.load_weights(load_file(update_info.path).items())

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        pass


def register() -> None:
    """Make the back end known to vLLM in this process.  May be called twice."""
    if NAME not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(NAME, SharedMemoryTransfer)


def parts(weights: Mapping[str, Tensor], dtype: torch.dtype, folder: Path) -> Iterator[Path]:
    """Write ``weights`` in ``dtype``, part by part; a part is gone when the next one is asked for."""
    waiting: dict[str, Tensor] = {}
    size = 0
    for name, tensor in weights.items():
        waiting[name] = tensor.detach().to("cpu", dtype, copy=True).contiguous()
        size += waiting[name].nbytes
        if size >= PART_BYTES:
            yield from _written(waiting, folder)
            waiting, size = {}, 0
    if waiting:
        yield from _written(waiting, folder)


def _written(tensors: dict[str, Tensor], folder: Path) -> Iterator[Path]:
    path = folder / "part.safetensors"
    save_file(tensors, path)
    try:
        yield path
    finally:
        path.unlink()
