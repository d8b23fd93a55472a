"""All weights of a model from the learner's process into vLLM's: through shared memory, or from GPU to GPU.

``shared_memory`` writes part after part as a safetensors file, which :mod:`.worker` loads as it loads a checkpoint.
``ipc`` (a GPU that learner and engine share) and ``nccl`` (two GPUs) are vLLM's own.
"""

from __future__ import annotations

import asyncio
import json
import math
import pickle
import shutil
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partialmethod
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from .placement import Placement
from .settings import GIB
from .versions import is_0_22

Call = Callable[..., Coroutine[Any, Any, Any]]
"""``await call(method, *arguments)`` is the result of a method of vLLM's worker."""
PART_BYTES = 512 << 20
"""How much lies in shared memory, or in the buffer of a GPU, at a time, unless a single tensor is larger."""


@dataclass(frozen=True)
class WeightSource:
    """What is to be sent; vLLM 0.32.0 has a class of this name.  Each call of ``weights`` begins anew.

    ``tied`` maps the other names of weights that are sent once to the name that is sent; ``dtype`` is the engine's.
    Iterated, the tensors come in it and on ``device``, or where they are.
    """

    weights: Callable[[], Iterable[tuple[str, Tensor]]]
    tied: Mapping[str, str]
    dtype: torch.dtype
    device: torch.device | None = None

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        for name, tensor in self.weights():
            yield name, tensor.detach().to(self.device or tensor.device, self.dtype).contiguous()

    def metadata(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=name, dtype=self.dtype, shape=tensor.shape) for name, tensor in self.weights()]

    @property
    def buffer_bytes(self) -> int:
        """At least as many as the largest tensor has."""
        return max(PART_BYTES, *(math.prod(info.shape) * self.dtype.itemsize for info in self.metadata()))


class Transfer:
    """To one process, from a learner whose weights lie on device ``learner``; ``folder`` lies in shared memory.

    To vLLM's senders it is the worker, for a thread beside the event loop: a ``VLLMWeightSyncClient``.
    """

    def __init__(self, call: Call, placement: Placement, learner: torch.device, folder: Path) -> None:
        self._call, self._way, self._gpu, self._folder = call, placement.transfer, learner.index or 0, folder
        self._loop: asyncio.AbstractEventLoop
        self._sender: Any = None

    async def send(self, source: WeightSource) -> None:
        """On return the process has all of ``source``.  Raises as :func:`check_disk_space`."""
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._share if self._way == "shared_memory" else self._send, source)

    def _share(self, source: WeightSource) -> None:
        self.call("troupe_start_update")
        for path in parts(source, self._folder):
            self.call("troupe_load_part", str(path), dict(source.tied))
        self.call("troupe_finish_update")

    def _send(self, source: WeightSource) -> None:
        """By vLLM's sender of one of its back ends, which lives as long as the process."""
        torch.cuda.set_device(self._gpu)
        torch.cuda.synchronize()  # the last update is over, since packing has its own stream
        source = replace(source, device=torch.device("cuda", self._gpu))
        self._sender = self._sender or gpu_sender(self._way, self, source)
        self._sender.source = source
        self._sender.send_weights()

    def call(self, method: str, *arguments: Any) -> None:
        asyncio.run_coroutine_threadsafe(self._call(method, *arguments), self._loop).result()

    init_weight_transfer_engine = partialmethod(call, "init_weight_transfer_engine")
    start_weight_update = partialmethod(call, "start_weight_update")

    def update_weights(self, update_info: dict[str, Any]) -> None:
        info = dict(update_info)
        handles = info.pop("ipc_handles", None)
        try:
            if handles is None:
                self.call("update_weights", info)
            else:  # which can go from process to process as a pickle only
                self.call("troupe_update_weights", info, pickle.dumps(handles))
        except BaseException:  # the other half of a collective operation would wait for ever
            self._sender.shutdown()
            raise

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self.call("finish_weight_update")


def gpu_sender(way: str, client: Transfer, source: WeightSource) -> Any:
    """vLLM's ``TrainerWeightTransferEngine`` for this thread's GPU."""
    from vllm.utils.network_utils import get_open_port

    packing = {"packed": True, "packed_buffer_size_bytes": source.buffer_bytes}
    meeting = {"master_address": "127.0.0.1", "master_port": get_open_port(), "world_size": 2}
    if is_0_22():
        return IpcSender(client, source) if way == "ipc" else NcclSender(client, source, meeting, packing)
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
    from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

    info = IPCTrainerInitInfo(rank=0, **packing) if way == "ipc" else NCCLTrainerInitInfo(rank=0, **meeting, **packing)
    return WeightTransferTrainerFactory.trainer_init(info, client=client, source=source)


# ---- files in shared memory -----------------------------------------------------------------------------------------


def parts(source: WeightSource, folder: Path) -> Iterator[Path]:
    """Write ``source``, part by part; a part is gone when the next one is asked for.  Raises ``OSError``."""
    path, size = folder / "part.safetensors", 0
    part: dict[str, Tensor] = {}
    for name, tensor in chain(source.weights(), [(None, torch.empty(0))]):  # the last one writes what is left
        if name is not None:
            part[name], size = tensor.detach(), size + tensor.numel() * source.dtype.itemsize
        if not part or (name is not None and size < PART_BYTES):
            continue
        check_disk_space(size, folder)
        try:
            save_file({name: tensor.to(source.dtype).contiguous() for name, tensor in part.items()}, path)
            yield path
        finally:
            path.unlink(missing_ok=True)
        part, size = {}, 0


@contextmanager
def saved_adapter(folder: Path, rank: int, tensors: Mapping[str, Tensor]) -> Iterator[Path]:
    """An adapter with its scale in B as a peft checkpoint in ``folder``, gone afterwards."""
    with TemporaryDirectory(dir=folder) as path:
        config = {"r": rank, "lora_alpha": rank, "target_modules": []}
        Path(path, "adapter_config.json").write_text(json.dumps(config))
        save_file(dict(tensors), Path(path, "adapter_model.safetensors"))
        yield Path(path)


def check_disk_space(needed: int, folder: Path) -> None:
    """Raise ``OSError``, saying how much is needed, where ``folder`` has no space for ``needed`` bytes of weights."""
    if needed > (free := shutil.disk_usage(folder).free):
        raise OSError(
            f"weights go to vLLM's process by way of {folder.parent}, which has {free / GIB:.3g} GiB left and would "
            f"need {needed / GIB:.3g}; a container is given more with --shm-size"
        )


class IpcSender:
    """From this thread's GPU to the process on the same GPU, which maps the tensors."""

    def __init__(self, client: Any, source: Any) -> None:
        self.client, self.source = client, source

    def send_weights(self) -> None:
        """All of ``source``.  Not packed: 0.22.1 would never free a buffer that it has used for several parts."""
        from vllm.distributed.weight_transfer import ipc_engine  # needs ray, which may be missing

        tensors = list(self.source)  # kept until the last layer is loaded, which may be after the last part
        arguments = ipc_engine.IPCTrainerSendWeightsArgs(lambda info: self.client.update_weights(asdict(info)))
        self.client.start_weight_update()
        ipc_engine.IPCWeightTransferEngine.trainer_send_weights(iter(tensors), arguments)
        self.client.finish_weight_update()

    def shutdown(self) -> None:
        """Nobody waits."""


class NcclSender:
    """By broadcast from this thread's GPU to that of the process; ``meeting`` is where they meet."""

    def __init__(self, client: Any, source: Any, meeting: dict[str, Any], packing: dict[str, Any]) -> None:
        from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferEngine

        self.client, self.source, self._packing = client, source, packing
        with ThreadPoolExecutor(1) as pool:  # both sides wait for each other
            other = pool.submit(client.init_weight_transfer_engine, meeting | {"rank_offset": 1})
            self._group = NCCLWeightTransferEngine.trainer_init(meeting)
            other.result()

    def send_weights(self) -> None:
        """All of ``source``."""
        from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerSendWeightsArgs, NCCLWeightTransferEngine

        metadata = self.source.metadata()
        info: dict[str, Any] = {
            "names": [each.name for each in metadata],
            "dtype_names": [str(each.dtype).rpartition(".")[2] for each in metadata],
            "shapes": [list(each.shape) for each in metadata],
        }
        self.client.start_weight_update()
        pool = ThreadPoolExecutor(1)  # not awaited where the broadcast fails: it would wait for ever
        try:
            other = pool.submit(self.client.update_weights, info | self._packing)
            arguments = NCCLTrainerSendWeightsArgs(group=self._group, **self._packing)
            NCCLWeightTransferEngine.trainer_send_weights(iter(self.source), arguments)
            other.result()
        finally:
            pool.shutdown(wait=False)
        self.client.finish_weight_update()
        torch.cuda.synchronize()

    def shutdown(self) -> None:
        """0.22.1 has nothing that ends what waits for the other side."""
