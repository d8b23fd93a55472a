"""A worker of vLLM's, one process of which computes with something else than it was given."""

from typing import Any

from vllm.distributed import get_tp_group

from troupe.rollout.engines.vllm.worker import WorkerExtension


class SpoilingExtension(WorkerExtension):
    """In place of Troupe's own, in tests."""

    def spoil(self, rank: int, path: str, first: int = 0, last: int | None = None) -> None:
        """In process ``rank``, the layer ``path`` gives other outputs from ``first`` to ``last``."""
        if get_tp_group().rank_in_group != rank:
            return
        module: Any = self.model_runner.get_model().get_submodule(path)
        if module.weight.numel():
            module.weight.data[1] *= 1.001  # the first row of a vocabulary may be 0
            return
        inner = module.cpu_linear

        def spoilt(*given: Any) -> Any:
            output = inner(*given).clone()
            output[..., first:last] *= 1.001
            return output

        module.cpu_linear = spoilt

    def spoil_adapter(self, rank: int, path: str, part: int) -> None:
        """In process ``rank``, both matrices of slot 1's adapter are others, of a ``part`` of layer ``path``."""
        if get_tp_group().rank_in_group == rank:
            module = self._adapters.modules[path]
            for stacked in (module.lora_a_stacked, module.lora_b_stacked):
                stacked[part][self._adapters.lora_index_to_id.index(1), 0, 0, 0] += 0.01

    def lose_adapter(self, rank: int) -> None:
        """Process ``rank`` has nothing in slot 1."""
        if get_tp_group().rank_in_group == rank:
            self._adapters.lora_index_to_id = [None if slot == 1 else slot for slot in self._adapters.lora_index_to_id]

    @property
    def _adapters(self) -> Any:
        return self.model_runner.lora_manager._adapter_manager


class ListeningExtension(WorkerExtension):
    """In place of Troupe's own: where vLLM would receive weights by ``ipc``, for which it needs a GPU, it reads them as
    its receiver does, and keeps the handles."""

    def listen(self) -> None:
        from vllm.distributed.weight_transfer.ipc_engine import IPCWeightTransferEngine

        receiver = IPCWeightTransferEngine.__new__(IPCWeightTransferEngine)  # its set-up needs a model on a GPU
        self.update_weights = lambda info: setattr(self, "received", receiver.parse_update_info(dict(info)))

    def heard(self) -> str:
        return repr(self.received.ipc_handles)

    received: Any
