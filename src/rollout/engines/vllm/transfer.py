"""Weights from the learner's process into the engine's, through vLLM's interface for weight transfer.

A back end of our own: a part of the weights is written as a safetensors file into shared memory, and the engine maps it
and loads it as it loads a checkpoint.  It needs no GPU and no process group.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from vllm.distributed.weight_transfer import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from .senders import SharedMemory

NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
"""Of dtypes in a safetensors file."""
PART_BYTES = 512 << 20
"""How much lies in shared memory at a time, unless a single tensor is larger."""


@dataclass
class NoRendezvous(WeightTransferInitInfo):
    """Nothing is to be agreed on first."""


@dataclass
class Part(WeightTransferUpdateInfo):
    """Where some of the weights lie.  ``tied`` maps further names to that under which a weight is sent."""

    path: str
    tied: dict[str, str]


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

    def receive_weights(self, update_info: Part, load_weights: Callable[..., Any] | None = None) -> None:
        sent = load_file(update_info.path)
        # A tied output layer is loaded too: on a CPU it computes with a packed copy of its own.
        also = {name: sent[first] for name, first in update_info.tied.items() if first in sent}
        (load_weights or self.model.load_weights)(list((sent | also).items()))

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        pass

    @staticmethod
    def trainer_send_weights(iterator: Any, trainer_args: Any) -> None:
        """Abstract in vLLM 0.22, so that a back end must have it; nothing calls it.  Raises ``NotImplementedError``."""
        raise NotImplementedError(f"{SharedMemory.backend}: the learner's side is troupe's senders.SharedMemory")


def register() -> None:
    """Make the back end known to vLLM in this process.  May be called twice."""
    if SharedMemory.backend not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(SharedMemory.backend, SharedMemoryTransfer)


def parts(weights: Iterable[tuple[str, Tensor]], dtype: torch.dtype, folder: Path) -> Iterator[Path]:
    """Write ``weights`` in ``dtype``, part by part; a part is gone when the next one is asked for.

    Each number is written once, from where it lies into shared memory.  Raises ``OSError``, naming the file, where
    there is no room for a part.
    """
    waiting: dict[str, Tensor] = {}
    size = 0
    for name, tensor in weights:
        waiting[name] = tensor.detach()
        size += tensor.numel() * dtype.itemsize
        if size >= PART_BYTES:
            yield from _written(waiting, dtype, folder)
            waiting, size = {}, 0
    if waiting:
        yield from _written(waiting, dtype, folder)


def _written(tensors: dict[str, Tensor], dtype: torch.dtype, folder: Path) -> Iterator[Path]:
    path = folder / "part.safetensors"
    try:
        _write(tensors, dtype, path)
        yield path
    finally:
        path.unlink(missing_ok=True)


def _write(tensors: Mapping[str, Tensor], dtype: torch.dtype, path: Path) -> None:
    """A safetensors file, whose tensors are filled in where it is mapped."""
    header: dict[str, Any] = {}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.numel() * dtype.itemsize
        header[name] = {"dtype": NAMES[dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("w+b") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        size = 8 + len(text) + end
        try:
            os.posix_fallocate(file.fileno(), 0, size)  # a mapped page without room would end this process by SIGBUS
        except OSError as error:
            why = f"no room for {size:,} bytes of weights: {error.strerror}"
            raise OSError(error.errno, why, str(path)) from error
        with mmap(file.fileno(), size) as mapped:
            for name, tensor in tensors.items():
                if tensor.numel():
                    offset = 8 + len(text) + header[name]["data_offsets"][0]
                    place = torch.frombuffer(mapped, dtype=dtype, count=tensor.numel(), offset=offset)
                    place.view(tensor.shape).copy_(tensor)
                    del place  # or the file could not be closed
