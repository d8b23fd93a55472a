"""What vLLM 0.32.0 and 0.22.1 do differently.  Nothing else in Troupe asks which of them it is.

0.32.0 has helpers for the learner's side of a weight transfer that make all calls themselves, and a back end does all
of a transfer.  In 0.22.1 the helpers only send, and vLLM's worker reloads layer by layer around the back end.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from vllm.distributed.weight_transfer import base, nccl_engine
from vllm.platforms import current_platform
from vllm.utils.network_utils import get_open_port

from .senders import Client, Load

NEW = hasattr(base, "TrainerWeightTransferEngine")
"""Whether the learner's side has an interface of its own, as in 0.32.0."""
HOST, PROCESSES = "127.0.0.1", 2


def in_worker() -> None:
    """Once, in the process that holds the model: on a CPU, 0.22.1 does not name the device onto which it reloads
    weights, and pins memory for adapters, which needs a GPU's driver.
    """
    if NEW or not current_platform.is_cpu():
        return
    from vllm.utils import torch_utils
    from vllm.v1.worker.cpu_worker import CPUWorker

    known = CPUWorker.init_device

    def init_device(worker: Any) -> None:
        known(worker)
        worker.device = torch.device("cpu")

    CPUWorker.init_device = init_device
    torch_utils.async_tensor_h2d.__defaults__ = (False,)  # pin_memory


def source(load: Load) -> Any:
    """``load`` as the helpers of 0.32.0 take it."""

    class Source(base.WeightSource):
        def metadata(self) -> list[Any]:
            return [base.ParamMeta(name, load.dtype, shape) for name, shape in load.shapes]

        def __iter__(self) -> Iterator[tuple[str, Tensor]]:
            return iter(load)

    return Source()


def send_by_ipc(client: Client, load: Load) -> None:
    """All of ``load`` from this thread's GPU to the process on the same GPU."""
    from vllm.distributed.weight_transfer import ipc_engine  # 0.22.1 imports ray for it, which may be missing

    if NEW:
        info = ipc_engine.IPCTrainerInitInfo(rank=0, packed=True, packed_buffer_size_bytes=load.buffer_bytes)
        given = {"client": client, "source": source(load)}
        ipc_engine.IPCTrainerWeightTransferEngine.trainer_init(info, **given).send_weights()
        return
    # Not packed: 0.22.1 would never free a buffer that it has used for several parts.
    kept = list(load)  # until the last layer is loaded, which may be after the last part
    arguments = ipc_engine.IPCTrainerSendWeightsArgs(lambda info: client.update_weights(asdict(info)))
    client.start_weight_update()
    ipc_engine.IPCWeightTransferEngine.trainer_send_weights(iter(kept), arguments)
    client.finish_weight_update()


class NcclGroup:
    """This thread's GPU and that of the process, for as long as the process lives."""

    def __init__(self, client: Client, load: Load) -> None:
        self._room = {"packed": True, "packed_buffer_size_bytes": load.buffer_bytes}
        where = {"master_address": HOST, "master_port": get_open_port(), "world_size": PROCESSES}
        if NEW:
            info = nccl_engine.NCCLTrainerInitInfo(**where, **self._room, rank=0)
            given = {"client": client, "source": source(load)}
            self._engine = nccl_engine.NCCLTrainerWeightTransferEngine.trainer_init(info, **given)
            return
        with ThreadPoolExecutor(1) as pool:  # both sides wait for each other
            there = pool.submit(client.init_weight_transfer_engine, where | {"rank_offset": 1})
            self._group = nccl_engine.NCCLWeightTransferEngine.trainer_init(where)
            there.result()

    def send(self, client: Client, load: Load) -> None:
        """All of ``load``."""
        if NEW:
            self._engine.client, self._engine.source = client, source(load)
            self._engine.send_weights()
            return
        told: dict[str, Any] = {
            "names": [name for name, _ in load.shapes],
            "dtype_names": [str(load.dtype).rpartition(".")[2]] * len(load.shapes),
            "shapes": [list(shape) for _, shape in load.shapes],
        }
        arguments = nccl_engine.NCCLTrainerSendWeightsArgs(group=self._group, **self._room)
        client.start_weight_update()
        pool = ThreadPoolExecutor(1)  # not awaited where the broadcast fails: it would wait for ever
        try:
            there = pool.submit(client.update_weights, told | self._room)
            nccl_engine.NCCLWeightTransferEngine.trainer_send_weights(iter(load), arguments)
            there.result()
        finally:
            pool.shutdown(wait=False)
        client.finish_weight_update()
        torch.cuda.synchronize()

    def abort(self) -> None:
        """End what waits for the other side, which is gone."""
        if NEW:
            self._engine.shutdown()
