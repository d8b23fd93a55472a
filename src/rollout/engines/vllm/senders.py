"""The learner's side of a weight transfer: all weights of a model, by one of three ways, to one process of vLLM's.

``shared_memory`` is Troupe's back end (:mod:`.transfer`).  ``ipc`` (a GPU that learner and engine share) and ``nccl``
(two GPUs) are vLLM's own; its helpers on the learner's side are blocking, and run in a thread.
"""

from __future__ import annotations

import asyncio
import base64
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from .placement import Placement

PART_BYTES = 512 << 20
"""Of the buffer in GPU memory that ``ipc`` and ``nccl`` pack weights into, unless a single tensor is larger."""


@dataclass(frozen=True)
class Load:
    """What is to be sent: each call of ``weights`` begins anew.  ``tied`` has the further names of weights that are
    sent once, ``dtype`` is the engine's.  Iterated, the tensors come in it and on ``device``, or where they are.
    """

    weights: Callable[[], Iterator[tuple[str, Tensor]]]
    tied: Mapping[str, str]
    dtype: torch.dtype
    device: torch.device | None = None

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        for name, tensor in self.weights():
            yield name, tensor.detach().to(self.device or tensor.device, self.dtype).contiguous()

    @property
    def shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(name, tuple(tensor.shape)) for name, tensor in self.weights()]

    @property
    def buffer_bytes(self) -> int:
        """Room for the largest tensor at the least."""
        return max(PART_BYTES, *(torch.Size(shape).numel() * self.dtype.itemsize for _, shape in self.shapes))


class Line(Protocol):
    """The control of a transfer at the process that receives.  Every call raises :class:`.server.EngineDiedError` where
    the process ends meanwhile.
    """

    async def prepare(self, info: dict[str, Any]) -> None: ...

    async def begin(self) -> None: ...

    async def receive(self, info: dict[str, Any]) -> None: ...

    async def finish(self) -> None: ...


class Sender(ABC):
    """One way to one process, for as long as it lives.  ``backend`` is vLLM's name for the other side."""

    backend: ClassVar[str]

    def __init__(self, line: Line) -> None:
        self.line = line

    @abstractmethod
    async def send(self, load: Load) -> None:
        """All of ``load``; on return the process has it.  Nothing may be under way there."""


class SharedMemory(Sender):
    """Part by part through a file in ``folder``, which both processes map."""

    backend = "troupe_shared_memory"

    def __init__(self, line: Line, folder: Path) -> None:
        super().__init__(line)
        self.folder = folder

    async def send(self, load: Load) -> None:
        from .transfer import parts

        await self.line.begin()
        files = parts(load.weights(), load.dtype, self.folder)
        while (file := await asyncio.to_thread(next, files, None)) is not None:
            await self.line.receive({"path": str(file), "tied": dict(load.tied)})
        await self.line.finish()


class Client:
    """A :class:`Line` for vLLM's helpers, which call it from a thread: ``VLLMWeightSyncClient`` in vLLM 0.32.

    ``lost`` is called where the process is gone or refuses a part, since the other half of a collective operation would
    wait for ever.
    """

    def __init__(self, line: Line, loop: asyncio.AbstractEventLoop) -> None:
        self._line, self._loop = line, loop
        self.lost: Callable[[], None] = lambda: None

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self._asked(self._line.prepare(init_info))

    def start_weight_update(self) -> None:
        self._asked(self._line.begin())

    def update_weights(self, update_info: dict[str, Any]) -> None:
        with ExitStack() as failed:
            failed.callback(self.lost)
            self._asked(self._line.receive(portable(update_info)))
            failed.pop_all()

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._asked(self._line.finish())

    def _asked(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()


def portable(info: Mapping[str, Any]) -> dict[str, Any]:
    """``info`` as it can go from process to process: handles of GPU memory pickled, as vLLM reads them."""
    if (handles := info.get("ipc_handles")) is None:
        return dict(info)
    rest = {key: value for key, value in info.items() if key != "ipc_handles"}
    return rest | {"ipc_handles_pickled": base64.b64encode(pickle.dumps(handles)).decode()}


class Blocking(Sender):
    """From the memory of GPU ``gpu``, by one of vLLM's helpers, in a thread."""

    def __init__(self, line: Line, gpu: int) -> None:
        super().__init__(line)
        self.gpu = gpu

    async def send(self, load: Load) -> None:
        client = Client(self.line, asyncio.get_running_loop())
        await asyncio.to_thread(lambda: self._send(client, ready(load, self.gpu)))

    @abstractmethod
    def _send(self, client: Client, load: Load) -> None:
        """All of ``load``, which is on this thread's GPU."""


class Ipc(Blocking):
    """Through a buffer in the GPU's memory, which both processes map."""

    backend = "ipc"

    def _send(self, client: Client, load: Load) -> None:
        from .compat import send_by_ipc

        send_by_ipc(client, load)


class Nccl(Blocking):
    """By broadcast to the GPU of the process.  Both meet at the first :meth:`send`."""

    backend = "nccl"

    def __init__(self, line: Line, gpu: int) -> None:
        super().__init__(line, gpu)
        self._group: Any = None

    def _send(self, client: Client, load: Load) -> None:
        from .compat import NcclGroup

        if self._group is None:
            self._group = NcclGroup(client, load)
        client.lost = self._group.abort
        self._group.send(client, load)


def ready(load: Load, gpu: int) -> Load:
    """``load`` on ``gpu``, which becomes this thread's; the last update is over, since packing has its own stream."""
    torch.cuda.set_device(gpu)
    torch.cuda.synchronize()
    return replace(load, device=torch.device("cuda", gpu))


def sender(line: Line, placement: Placement, learner: torch.device, folder: Path) -> Sender:
    """The one that ``placement`` asks for; the learner's weights lie on ``learner``."""
    if placement.transfer == "shared_memory":
        return SharedMemory(line, folder)
    way = Ipc if placement.transfer == "ipc" else Nccl
    return way(line, learner.index or 0)


BACKENDS = {"shared_memory": SharedMemory.backend, "ipc": Ipc.backend, "nccl": Nccl.backend}
"""vLLM's names."""
