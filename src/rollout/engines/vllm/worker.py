"""What Troupe adds to vLLM's worker, the process that holds the model or, tensor parallel, a shard of it.  vLLM imports
this module there.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, distributed
from vllm.config import set_current_vllm_config
from vllm.distributed import get_tp_group
from vllm.model_executor.layers import vocab_parallel_embedding
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.platforms import current_platform

from . import heads
from .checkpoint_names import WHOLE, Shards, adapter_tensors, model_tensors
from .digest import Digests, digests
from .signals import follow_parent
from .versions import is_0_22

Stack = Sequence[Tensor]


class WorkerExtension:
    """Mixed into vLLM's worker; called by ``collective_rpc``."""

    model_runner: Any
    vllm_config: Any
    update_weights: Callable[[Mapping[str, Any]], None]

    def troupe_digests(self, slot: int | None, rank: int) -> Digests:
        """Of every tensor that the model (``slot`` is None) or an adapter computes with, by its checkpoint name.

        Tensor parallel, each process answers for all tensors: for the whole of those that are divided, with its own
        copy of what several processes have.
        """
        group = get_tp_group()
        shards = Shards(group.rank_in_group, partial(gather, group)) if group.world_size > 1 else WHOLE
        if slot is None:
            tensors = model_tensors(self.model_runner.get_model(), shards)
        else:
            tensors = adapter_tensors(self.model_runner.lora_manager._adapter_manager, slot, rank, shards)
        return digests(tensors, self.model_runner.model_config.dtype)

    def troupe_clear_adapters(self) -> None:
        """Leave no adapter in any slot, whatever the buffers hold."""
        manager = self.model_runner.lora_manager._adapter_manager
        manager.remove_all_adapters()
        for module in manager.modules.values():
            for index in range(manager.lora_slots):
                module.reset_lora(index)

    # ---- the other side of transfer.Transfer ------------------------------------------------------------------------

    def troupe_update_weights(self, info: Mapping[str, Any], handles: bytes) -> None:
        """Some weights by ``ipc``, from the learner's process alone; ``handles`` of its GPU memory are a pickle.

        vLLM reads such pickles only where it may read any, and its process then adds to every result of a call a type
        that the learner's process, which may not, refuses.
        """
        self.update_weights({**info, "ipc_handles": pickle.loads(handles)})

    def troupe_start_update(self) -> None:
        """Parts of all weights are to follow."""
        with self._loading() as model:
            initialize_layerwise_reload(model)

    def troupe_load_part(self, path: str, tied: Mapping[str, str]) -> None:
        """Some weights, of which those in ``tied`` have other names too."""
        weights = load_file(path)
        # A tied output layer is loaded too: on a CPU it computes with a packed copy of its own.
        weights |= {name: weights[first] for name, first in tied.items() if first in weights}
        with self._loading() as model:
            model.load_weights(list(weights.items()))
        if self.model_runner.device.type != "cpu":
            torch.accelerator.synchronize()

    def troupe_finish_update(self) -> None:
        """All parts are there."""
        with self._loading() as model:
            finalize_layerwise_reload(model, self.model_runner.model_config)

    @contextmanager
    def _loading(self) -> Iterator[Any]:
        """The model.  While it loads, vLLM 0.32.0 asks for its configuration, and 0.22.1 for the default device."""
        device = torch.device(self.model_runner.device) if is_0_22() else nullcontext()
        with set_current_vllm_config(self.vllm_config), device:
            yield self.model_runner.get_model()


def gather(group: Any, shard: Tensor) -> Tensor:
    """(Processes, ...): the ``shard`` of every process of a ``group`` of vLLM's, in their order."""
    shards = shard.new_empty(group.world_size, *shard.shape)
    distributed.all_gather(list(shards), shard, group=group.device_group)
    return shards


@torch.no_grad()
def add_by_adapter(
    wrapper: Any, y: Tensor, x: Tensor, down: Stack, up: Stack, scale: float, widths: Sequence[int], **_: Any
) -> None:
    """Add to ``y`` (tokens, out) what each token's adapter makes of ``x`` (tokens, in); ``down`` (slots, 1, r, in) and
    ``up`` (slots, 1, out, r) are those of the parts of a fused layer, ``widths`` wide.
    """
    slots = wrapper.token_lora_indices[: len(x)]
    for slot in slots.unique().tolist():
        if slot < 0:  # no adapter
            continue
        rows = (slots == slot).nonzero()[:, 0]
        inputs, start = x[rows].float(), 0
        for a, b, width in zip(down, up, widths, strict=True):
            low = (inputs @ a[slot, 0].float().t() * scale).to(y.dtype)
            y[:, start : start + width].index_add_(0, rows, low @ b[slot, 0].t())
            start += width


if current_platform.is_cpu():
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU
    from vllm.utils import torch_utils

    # 0.32.0 and 0.22.1 gather a copy of an adapter's matrices for every token, which takes seven times as long at the
    # laptop's size.  Not needed once vLLM has a kernel for adapters on a CPU.
    PunicaWrapperCPU.add_lora_linear = add_by_adapter
    if is_0_22():  # which pins memory for adapters: that needs a GPU's driver.  Not needed by 0.32.0
        torch_utils.async_tensor_h2d.__defaults__ = (False,)
    heads.install()
    # Compiled, which takes 20 s at the first token of a tensor parallel model, it would be no faster.
    look_up = vocab_parallel_embedding.get_masked_input_and_mask
    vocab_parallel_embedding.get_masked_input_and_mask = getattr(look_up, "_torchdynamo_orig_callable", look_up)
follow_parent()
