"""From ``strategy=`` to Fabric: how each pool is run, and the processes of the run."""

from __future__ import annotations

import importlib.util
import logging
from typing import Any

import lightning as L
import torch
from lightning.fabric.strategies.ddp import DDPStrategy
from lightning.fabric.strategies.deepspeed import DeepSpeedStrategy
from lightning.fabric.strategies.model_parallel import ModelParallelStrategy
from lightning.fabric.strategies.parallel import ParallelStrategy
from lightning.fabric.strategies.single_device import SingleDeviceStrategy
from lightning.fabric.strategies.strategy import Strategy
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard

from .policy import PolicyModule
from .ranks import Ranks


class StrategyError(ValueError):
    """A strategy that cannot run here; the message names the key."""


def fsdp2(*, cpu_offload: bool = False) -> Strategy:
    """Weights, gradients and optimizer states of each layer sharded over the processes (``fully_shard``).

    Raises :class:`StrategyError` where there is no GPU.
    """
    _need_gpu("fsdp2")
    policy = CPUOffloadPolicy() if cpu_offload else OffloadPolicy()

    def shard(module: PolicyModule, mesh: DeviceMesh) -> PolicyModule:
        for layer in module.model.model.layers:
            fully_shard(layer, mesh=mesh["data_parallel"], offload_policy=policy)
        fully_shard(module, mesh=mesh["data_parallel"], offload_policy=policy)
        return module

    return ModelParallelStrategy(parallelize_fn=shard, tensor_parallel_size=1)


def deepspeed(*, stage: int, cpu_offload: bool = False) -> Strategy:
    """DeepSpeed ZeRO ``stage`` 2 (optimizer states and gradients sharded) or 3 (weights too).

    Raises :class:`StrategyError` where DeepSpeed is not installed or there is no GPU.
    """
    if stage not in (2, 3):
        raise StrategyError(f"strategy.strategy.stage must be 2 or 3, got {stage!r}")
    if importlib.util.find_spec("deepspeed") is None:
        raise StrategyError(f"strategy=deepspeed_zero{stage} needs DeepSpeed: pip install 'troupe[deepspeed]'")
    _need_gpu(f"deepspeed_zero{stage}")
    return DeepSpeedStrategy(stage=stage, offload_optimizer=cpu_offload, offload_parameters=cpu_offload and stage == 3)


def build_fabric(*, strategy: Strategy | str = "auto", **arguments: Any) -> L.Fabric:
    """Fabric as ``configs/strategy`` describes it.  Raises :class:`StrategyError` for hardware that is not here."""
    try:
        return L.Fabric(strategy=strategy, **arguments)
    except (RuntimeError, ImportError) as error:
        raise StrategyError(f"strategy: {error}") from error


def launch(fabric: L.Fabric) -> Ranks:
    """The processes that ``fabric`` asks for; where nobody has started them, the command is started again for each.

    Processes other than the first say nothing but errors.
    """
    if not isinstance(fabric.strategy, ParallelStrategy):
        return Ranks()
    fabric.launch()
    ranks = Ranks(fabric.global_rank, fabric.world_size)
    if not ranks.first:
        logging.disable(logging.WARNING)
    return ranks


def check_trainable(fabric: L.Fabric) -> None:
    """Raises :class:`StrategyError` for strategies that can be set up, but that a pool cannot train with."""
    if not isinstance(fabric.strategy, SingleDeviceStrategy | DDPStrategy) or isinstance(
        fabric.strategy, DeepSpeedStrategy
    ):
        raise StrategyError(
            f"strategy: {type(fabric.strategy).__name__} shards weights or optimizer states, and pools do not gather "
            "them for engines and checkpoints; strategy=ddp and strategy=single_device train"
        )


def _need_gpu(name: str) -> None:
    if not torch.cuda.is_available():
        raise StrategyError(f"strategy={name} needs a GPU, and there is none; strategy=ddp runs on CPUs too")
