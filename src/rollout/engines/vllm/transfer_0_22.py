"""What sends weights between GPUs to vLLM 0.22.1, as :class:`TrainerWeightTransferEngine` does to 0.32.0.

0.22.1 has functions that only send; the calls of its worker around them are made here.  Goes when 0.22.1 does.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import torch


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
