"""DeepSpeed's ZeRO below Lightning's strategy: what the strategy does not do by itself for a pool, also on CPUs."""

from __future__ import annotations

import argparse
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from io import StringIO
from typing import Any

import torch
from lightning.fabric.plugins.precision.amp import MixedPrecision
from lightning.fabric.strategies.deepspeed import DeepSpeedStrategy
from torch import Tensor
from torch.optim import Optimizer


class ZeroStrategy(DeepSpeedStrategy):
    """Lightning's DeepSpeedStrategy, on CPUs too, whose gradients are sums over the processes and of several passes.

    DeepSpeed's step clips and learns at once, and knows the gradient's norm then: it is taken where Fabric clips.
    """

    def __init__(self, stage: int, *, cpu_offload: bool, on_cpu: bool) -> None:
        if on_cpu:
            os.environ["DS_ACCELERATOR"] = "cpu"
        offload = {"device": "cpu" if cpu_offload else "none"}
        zero: dict[str, Any] = {"stage": stage, "offload_optimizer": offload}
        if stage == 3:
            zero |= {"offload_param": offload, "stage3_param_persistence_threshold": 0}
        config = {
            "zero_optimization": zero,
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            "managed_gradient_accumulation": False,  # a step ends where we say so, after any number of passes
            "train_micro_batch_size_per_gpu": 1,  # which DeepSpeed asks for, and uses for its own reports alone
        }
        with redirect_stdout(StringIO()):  # the import tries the compiler, and prints what it tries
            super().__init__(config=config, logging_level=logging.ERROR)

    def setup_environment(self) -> None:
        super(DeepSpeedStrategy, self).setup_environment()  # Lightning would refuse what is not CUDA

    def _setup_distributed(self) -> None:
        import deepspeed

        # DeepSpeed's own calls.
        warnings.filterwarnings("ignore", "`torch.distributed.* is deprecated", FutureWarning)
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # which would be compiled, for CPUs
        self._set_world_ranks()
        if not torch.distributed.is_initialized():
            self._init_deepspeed_distributed()
        self._config_initialized = True

    def _initialize_engine(self, model: Any, optimizer: Optimizer | None = None, scheduler: Any = None) -> Any:
        import deepspeed

        device = {} if self.root_device.index is None else {"device_rank": self.root_device.index}
        engine, zero, *_ = deepspeed.initialize(
            args=argparse.Namespace(**device),
            config=self.config,
            model=model,
            model_parameters=[parameter for parameter in model.parameters() if parameter.requires_grad],
            optimizer=optimizer,
            dist_init_required=False,
        )
        if isinstance(self.precision, MixedPrecision):
            # Else DeepSpeed ends the autocast around it; said earlier, it would also send gradients in bfloat16.
            engine._config.torch_autocast_enabled, engine._config.torch_autocast_dtype = True, torch.bfloat16
        if self.zero_stage_3:
            # What is outside of the layers stays whole once it was gathered: the gradient of the head is computed
            # before the backward pass, and tied weights are used in two places.
            layers = [part for part in model.modules() if type(part).__name__ in model.layer_classes]
            sharded = {parameter for layer in layers for parameter in layer.parameters()}
            for parameter in model.parameters():
                if parameter not in sharded and not parameter.ds_persist:
                    parameter.ds_persist = True
                    zero.persistent_parameters.append(parameter)
        return engine, zero, None

    def backward(self, tensor: Tensor, module: Any, *args: Any, **kwargs: Any) -> None:
        module.backward(tensor * self.world_size)  # DeepSpeed takes means over the processes

    def clip_gradients_norm(
        self,
        module: Any,
        optimizer: Any,
        max_norm: float,
        norm_type: float = 2.0,
        error_if_nonfinite: bool = True,
    ) -> Tensor:
        """Take the step; the norm is infinite where it was left out for that."""
        optimizer.clip_grad = max_norm
        module.step()
        return torch.as_tensor(optimizer._global_grad_norm)

    def optimizer_step(self, optimizer: Any, **kwargs: Any) -> None:
        """Taken already."""


def in_zero3(value: Any) -> bool:
    """Whether ``value`` is a parameter that ZeRO 3 has divided, and that is empty but while a pass needs it."""
    return hasattr(value, "ds_id")


def whole_shape(tensor: Any) -> torch.Size:
    """The shape of ``tensor`` without shards."""
    return torch.Size(tensor.ds_shape if in_zero3(tensor) else tensor.shape)


def zero3_gathered(tensor: Tensor) -> AbstractContextManager[Any]:
    """In it a parameter of ZeRO 3 is whole; what the first process writes into it stays."""
    if not in_zero3(tensor):
        return nullcontext()
    import deepspeed

    gathered: AbstractContextManager[Any] = deepspeed.zero.GatheredParameters([tensor], modifier_rank=0)
    return gathered


@contextmanager
def torch_optimizer(optimizer: Any) -> Iterator[Optimizer]:
    """The optimizer whose states are stored: below DeepSpeed's, the one of this process's shards.

    DeepSpeed's own copies of the weights are then those that the module has by now.
    """
    zero: Any = getattr(optimizer, "optimizer", optimizer)
    if not hasattr(zero, "refresh_fp32_params"):
        yield optimizer
        return
    zero.refresh_fp32_params()
    stage3 = hasattr(zero, "fp16_groups")  # which shows the shards to its optimizer in its own steps alone
    if stage3:
        zero._set_fp32_optimizer_param_groups()
    try:
        yield zero.optimizer
    finally:
        if stage3:
            zero._clear_fp32_optimizer_param_groups()
