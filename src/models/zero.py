"""DeepSpeed's ZeRO below Lightning's strategy: what the strategy does not do by itself for a pool, also on CPUs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.fabric.plugins.precision.amp import MixedPrecision
from lightning.fabric.strategies.deepspeed import DeepSpeedStrategy
from torch import Tensor, nn
from torch.optim import Optimizer


class ZeroStrategy(DeepSpeedStrategy):
    """Lightning's DeepSpeedStrategy, on CPUs too, whose gradients are sums over the processes and of several passes.

    DeepSpeed's step clips and learns at once, and knows the gradient's norm then: it is taken where Fabric clips.
    """

    def __init__(self, stage: int, *, cpu_offload: bool, on_cpu: bool) -> None:
        if on_cpu:
            os.environ["DS_ACCELERATOR"] = "cpu"
        offload = {"device": "cpu" if cpu_offload else "none"}
        zero = {"stage": stage, "offload_optimizer": offload}
        super().__init__(
            config={
                "zero_optimization": zero | ({"offload_param": offload} if stage == 3 else {}),
                "zero_allow_untested_optimizer": True,
                "zero_force_ds_cpu_optimizer": False,
                "managed_gradient_accumulation": False,  # a step ends where we say so, after any number of passes
                "train_micro_batch_size_per_gpu": 1,  # which DeepSpeed asks for, and uses for its own reports alone
            }
        )

    def setup_environment(self) -> None:
        super(DeepSpeedStrategy, self).setup_environment()  # Lightning would refuse what is not CUDA

    def _setup_distributed(self) -> None:
        import deepspeed

        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # which would be compiled, for CPUs
        self._set_world_ranks()
        self._init_deepspeed_distributed()
        self._config_initialized = True

    def _initialize_engine(self, model: nn.Module, optimizer: Optimizer | None = None, scheduler: Any = None) -> Any:
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


@contextmanager
def torch_optimizer(optimizer: Any) -> Iterator[Optimizer]:
    """The optimizer itself below Fabric's wrapper and DeepSpeed's, whose parameters are this process's shards."""
    inner: Any = getattr(optimizer, "optimizer", optimizer)
    if not hasattr(inner, "refresh_fp32_params"):
        yield optimizer
        return
    yield inner.optimizer
