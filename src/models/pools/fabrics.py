"""Lightning Fabric of a strategy's settings, and the processes of a run."""

from __future__ import annotations

import logging
import os
from typing import Any

import lightning as L
import torch
from lightning.fabric.accelerators.cpu import CPUAccelerator
from lightning.fabric.plugins.precision.amp import MixedPrecision
from lightning.fabric.plugins.precision.double import DoublePrecision
from lightning.fabric.plugins.precision.half import HalfPrecision
from lightning.fabric.plugins.precision.precision import Precision
from lightning.fabric.strategies.ddp import DDPStrategy
from lightning.fabric.strategies.model_parallel import ModelParallelStrategy
from lightning.fabric.strategies.parallel import ParallelStrategy
from lightning.fabric.strategies.single_device import SingleDeviceStrategy
from lightning.fabric.strategies.strategy import Strategy
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import nn

from ..learning.ranks import Ranks
from ..learning.zero import ZeroStrategy
from .strategies import DeviceError, Sharded, StrategyError, StrategySettings


class Bfloat16Weights(HalfPrecision):
    """Lightning's bf16-true, but for buffers and inputs, which stay as they are: rotary frequencies in bfloat16 would
    turn far positions by wrong angles, and a batch's log-probabilities would be wrong by up to 0.4 %.
    """

    def __init__(self) -> None:
        super().__init__("bf16-true")

    def convert_module(self, module: nn.Module) -> nn.Module:
        for parameter in module.parameters():
            parameter.data = parameter.data.bfloat16()
        return module

    def convert_input(self, data: Any) -> Any:
        return data


def fabric_of(settings: StrategySettings) -> L.Fabric:
    """Raises :class:`StrategyError` for a package, :class:`DeviceError` for hardware that this machine lacks."""
    own = settings.strategy
    strategy: Strategy | str = own.build(on_gpu=settings.on_gpu) if isinstance(own, Sharded) else own
    if strategy == "ddp":
        # Buffers are constants, equal in all processes.  To broadcast them in a forward pass would have a process
        # wait that repeats the pass after it has run out of memory.
        strategy = DDPStrategy(broadcast_buffers=False)
    plugin: Precision | None = Bfloat16Weights() if settings.precision == "bf16-true" else None
    if isinstance(strategy, ModelParallelStrategy) and settings.precision == "64-true":
        plugin = DoublePrecision()  # as a plugin, since Lightning's list of what that strategy can do lacks it
    if isinstance(strategy, ZeroStrategy) and settings.precision == "bf16-mixed":
        plugin = MixedPrecision("bf16-mixed", "cuda" if settings.on_gpu else "cpu")  # Lightning's has no autocast
    if settings.on_gpu:  # before Fabric, which would ask for it
        torch.set_float32_matmul_precision(settings.float32_matmul)
    devices = settings.devices
    try:
        fabric = L.Fabric(
            accelerator=settings.accelerator,
            strategy=strategy,
            devices=list(devices) if isinstance(devices, tuple) else devices,  # type: ignore[arg-type]
            num_nodes=settings.num_nodes,
            precision=None if plugin else settings.precision,
            plugins=[plugin] if plugin else None,
        )
    except (RuntimeError, ImportError, TypeError, MisconfigurationException) as error:
        raise DeviceError(f"strategy: {error}") from error
    cores = os.cpu_count() or 1
    if isinstance(fabric.accelerator, CPUAccelerator) and getattr(settings.strategy, "cpu_offload", False):
        raise DeviceError("strategy.strategy.cpu_offload=true: the weights are on the CPU already; it is for GPUs")
    if isinstance(fabric.accelerator, CPUAccelerator) and isinstance(devices, int) and devices > cores:
        raise DeviceError(f"strategy.devices={devices}: so many processes on a machine with {cores} CPU cores")
    return fabric


def process_count(fabric: L.Fabric) -> int:
    """Of ``fabric`` on this machine, launched or not."""
    return int(getattr(fabric.strategy, "num_processes", 1))


def launch(fabric: L.Fabric) -> Ranks:
    """The processes of ``fabric``; those that are not running are started, each with the same command.

    Processes other than the first log only errors.
    """
    if not isinstance(fabric.strategy, ParallelStrategy):
        return Ranks()
    fabric.launch()
    ranks = Ranks(fabric.global_rank, fabric.world_size)
    if not ranks.first:
        logging.disable(logging.WARNING)
    return ranks


def trainable_fabric(settings: StrategySettings) -> L.Fabric:
    """The Fabric of a strategy that pools can train with.

    Raises :class:`StrategyError` for one that no pool can, whatever this machine has, before :class:`DeviceError`.
    """
    fabric = fabric_of(settings)
    # ZeroStrategy is a DDPStrategy, by Lightning's inheritance.
    if not isinstance(fabric.strategy, SingleDeviceStrategy | DDPStrategy | ModelParallelStrategy):
        raise StrategyError(
            f"strategy: {type(fabric.strategy).__name__} is not one that pools train with; these are single_device, "
            "ddp, fsdp2 and DeepSpeed's"
        )
    return fabric
