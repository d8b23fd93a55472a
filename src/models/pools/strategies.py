"""From ``strategy=`` to Fabric: how each pool is run, and the processes of the run."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Literal

import lightning as L
import torch
from lightning.fabric.accelerators.cpu import CPUAccelerator
from lightning.fabric.accelerators.cuda import CUDAAccelerator
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
from torch.distributed.device_mesh import DeviceMesh

from ...errors import AbsentError, Positive, check_fields
from ..learning.policy import PolicyModule
from ..learning.ranks import Ranks
from ..learning.sharding import Gathering, shard
from ..learning.zero import ZeroStrategy

PRECISIONS = {"32-true": 4, "64-true": 8, "bf16-mixed": 4, "bf16-true": 2, "16-mixed": 4}
"""Names of ``strategy.precision``, with the bytes of a stored number.

There is no 16-true: next to a weight of 1 half precision rounds an update below 5e-4 to nothing.
"""


MATMULS = ("highest", "high", "medium")
"""Names of ``strategy.float32_matmul``: torch's, for products in float32 on a GPU's tensor cores."""


class StrategyError(ValueError):
    """A strategy that cannot run; the message names the key."""


class DeviceError(StrategyError, AbsentError):
    """Devices that this machine does not have."""


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


@dataclass(frozen=True)
class Sharded(ABC):
    """A strategy that divides ``shards`` (some of weights, gradients, optimizer) among the processes, and keeps
    ``offloads`` of them in the host's memory.
    """

    @property
    @abstractmethod
    def shards(self) -> tuple[str, ...]: ...

    @property
    @abstractmethod
    def offloads(self) -> tuple[str, ...]: ...

    @abstractmethod
    def build(self, *, on_gpu: bool) -> Strategy:
        """Lightning's strategy.  Raises :class:`DeviceError` for a package that this machine lacks."""


@dataclass(frozen=True)
class Fsdp2(Sharded):
    """Weights, gradients and optimizer states of each layer sharded over the processes (``fully_shard``).

    ``checkpoints`` says how optimizer states are written: ``sharded``, each process its own, or ``gathered`` in the
    first process, in the files that one process alone writes.
    """

    cpu_offload: bool = False
    checkpoints: Literal["sharded", "gathered"] = "sharded"

    def __post_init__(self) -> None:
        check_fields(self, "strategy.strategy.", StrategyError)

    @property
    def shards(self) -> tuple[str, ...]:
        return ("weights", "gradients", "optimizer")

    @property
    def offloads(self) -> tuple[str, ...]:
        return self.shards if self.cpu_offload else ()

    def build(self, *, on_gpu: bool) -> Strategy:
        def parallelize(module: nn.Module, mesh: DeviceMesh) -> nn.Module:
            assert isinstance(module, PolicyModule)
            shard(module, module.layer_classes, module.adapter_parameters(), mesh, offload=self.cpu_offload)
            return Gathering(module)

        # A parameter that is offloaded is gathered from the host.
        backend = "cpu:gloo,cuda:nccl" if self.cpu_offload else None
        return ModelParallelStrategy(parallelize_fn=parallelize, process_group_backend=backend)


@dataclass(frozen=True)
class DeepSpeed(Sharded):
    """DeepSpeed ZeRO ``stage`` 2 (optimizer states and gradients sharded) or 3 (weights too)."""

    stage: int
    cpu_offload: bool = False

    def __post_init__(self) -> None:
        if self.stage not in (2, 3):
            raise StrategyError(f"strategy.strategy.stage must be 2 or 3, got {self.stage!r}")

    @property
    def shards(self) -> tuple[str, ...]:
        return ("gradients", "optimizer") if self.stage == 2 else ("weights", "gradients", "optimizer")

    @property
    def offloads(self) -> tuple[str, ...]:
        if not self.cpu_offload:
            return ()
        return ("optimizer",) if self.stage == 2 else ("weights", "optimizer")

    def build(self, *, on_gpu: bool) -> Strategy:
        if find_spec("deepspeed") is None:
            raise DeviceError(
                f"strategy=deepspeed_zero{self.stage} needs DeepSpeed: pip install 'troupe-rl[deepspeed]'"
            )
        return ZeroStrategy(self.stage, cpu_offload=self.cpu_offload, on_cpu=not on_gpu)


@dataclass(frozen=True)
class StrategySettings:
    """The keys of ``configs/strategy``: Lightning Fabric's arguments for each pool, ``gradient_checkpointing``, and
    ``float32_matmul``, which holds for the process.

    Raises :class:`StrategyError` for values that are wrong on every machine; :meth:`fabric` does for what is missing on
    this one.
    """

    accelerator: str = "auto"
    devices: int | str | Sequence[int] = "auto"
    num_nodes: Positive = 1
    precision: str = "32-true"
    strategy: Sharded | str = "auto"
    gradient_checkpointing: bool = False
    float32_matmul: str = "high"

    def __post_init__(self) -> None:
        if self.float32_matmul not in MATMULS:
            raise StrategyError(
                f"strategy.float32_matmul={self.float32_matmul} is unknown. Known: {', '.join(MATMULS)}"
            )
        if self.precision not in PRECISIONS:
            raise StrategyError(f"strategy.precision={self.precision} is unknown. Known: {', '.join(PRECISIONS)}")
        if not isinstance(self.devices, str) and isinstance(self.devices, Sequence):
            object.__setattr__(self, "devices", tuple(self.devices))  # to be hashed
        if self.devices != "auto" and not _is_count(self.devices) and not _are_indices(self.devices):
            raise StrategyError(
                "strategy.devices must be auto, a whole number of at least 1, or a list of different GPUs by their "
                f"numbers, got {self.devices!r}"
            )
        check_fields(self, "strategy.", StrategyError)
        if isinstance(self.strategy, Fsdp2) and self.precision == "16-mixed":
            raise StrategyError("strategy.precision=16-mixed: fsdp2 has no loss scaling over shards; give bf16-mixed")
        if isinstance(self.strategy, DeepSpeed) and self.precision not in ("32-true", "bf16-mixed"):
            raise StrategyError(
                f"strategy.precision={self.precision}: DeepSpeed learns in float32, in weights of its own that no "
                "checkpoint would have; give 32-true or bf16-mixed"
            )
        if self.strategy == "auto" and self.processes not in (None, 1):
            raise StrategyError(
                f"strategy.devices={self.devices}, strategy.num_nodes={self.num_nodes}: strategy=single_device has one "
                "process; strategy=ddp has several"
            )

    def fabric(self) -> L.Fabric:
        """Raises :class:`StrategyError` for a package, :class:`DeviceError` for hardware that this machine lacks."""
        strategy = self.strategy.build(on_gpu=self.on_gpu) if isinstance(self.strategy, Sharded) else self.strategy
        if strategy == "ddp":
            # Buffers are constants, equal in all processes.  To broadcast them in a forward pass would have a process
            # wait that repeats the pass after it has run out of memory.
            strategy = DDPStrategy(broadcast_buffers=False)
        plugin: Precision | None = Bfloat16Weights() if self.precision == "bf16-true" else None
        if isinstance(strategy, ModelParallelStrategy) and self.precision == "64-true":
            plugin = DoublePrecision()  # as a plugin, since Lightning's list of what that strategy can do lacks it
        if isinstance(strategy, ZeroStrategy) and self.precision == "bf16-mixed":
            plugin = MixedPrecision("bf16-mixed", "cuda" if self.on_gpu else "cpu")  # Lightning's own has no autocast
        if self.on_gpu:  # before Fabric, which would ask for it
            torch.set_float32_matmul_precision(self.float32_matmul)
        try:
            fabric = L.Fabric(
                accelerator=self.accelerator,
                strategy=strategy,
                devices=list(self.devices) if isinstance(self.devices, tuple) else self.devices,  # type: ignore[arg-type]
                num_nodes=self.num_nodes,
                precision=None if plugin else self.precision,  # type: ignore[arg-type]  # one of PRECISIONS
                plugins=[plugin] if plugin else None,
            )
        except (RuntimeError, ImportError, TypeError, MisconfigurationException) as error:
            raise DeviceError(f"strategy: {error}") from error
        cores = os.cpu_count() or 1
        if isinstance(fabric.accelerator, CPUAccelerator) and getattr(self.strategy, "cpu_offload", False):
            raise DeviceError("strategy.strategy.cpu_offload=true: the weights are on the CPU already; it is for GPUs")
        if isinstance(fabric.accelerator, CPUAccelerator) and isinstance(self.devices, int) and self.devices > cores:
            raise DeviceError(f"strategy.devices={self.devices}: so many processes on a machine with {cores} CPU cores")
        return fabric

    @property
    def on_gpu(self) -> bool:
        """Whether Fabric computes on a CUDA GPU."""
        return self.accelerator in ("cuda", "gpu") or (self.accelerator == "auto" and CUDAAccelerator.is_available())

    @property
    def processes(self) -> int | None:
        """The number of processes; None where the machine decides."""
        if isinstance(self.devices, str):
            return None
        return (self.devices if isinstance(self.devices, int) else len(self.devices)) * self.num_nodes

    @property
    def shards(self) -> tuple[str, ...]:
        """What of a pool is divided among the processes: some of weights, gradients, optimizer."""
        return self.strategy.shards if isinstance(self.strategy, Sharded) else ()

    def placed(self, name: str | None, devices: int | Sequence[int] | None) -> StrategySettings:
        """Of a pool with the strategy ``name`` on ``devices``; what is None, and all else, is as here."""
        if name is not None and name not in PLACED:
            raise StrategyError(f"strategy={name} is unknown. Known: {', '.join(PLACED)}")
        strategy = self.strategy if name is None else PLACED[name]
        return replace(self, strategy=strategy, devices=self.devices if devices is None else devices)

    @property
    def device_names(self) -> tuple[str, ...]:
        """The devices of one node, as a plan names them."""
        if self.accelerator == "cpu" or isinstance(self.devices, str):
            return (self.accelerator,)
        indices = range(self.devices) if isinstance(self.devices, int) else self.devices
        return tuple(f"{self.accelerator}:{index}" for index in indices)

    @property
    def read_dtype(self) -> torch.dtype:
        """Of weights that learn, as they are read: bfloat16 where they stay so, else float32, whence all others."""
        return torch.bfloat16 if self.precision == "bf16-true" else torch.float32

    @property
    def number_bytes(self) -> int:
        """Bytes of a weight that learns, a gradient or an activation."""
        return PRECISIONS[self.precision]

    def coarseness(self, *, on_gpu: bool | None = None) -> float:
        """How coarse the numbers are that a pool multiplies, over bfloat16's; 0 where they are float32's or finer.
        ``on_gpu``: where the pool is on another machine; None: :attr:`on_gpu`."""
        if self.precision == "32-true" and (self.on_gpu if on_gpu is None else on_gpu):
            return {"highest": 0.0, "high": 1 / 8, "medium": 1.0}[self.float32_matmul]
        return {"bf16-mixed": 1.0, "bf16-true": 1.0, "16-mixed": 1 / 8}.get(self.precision, 0.0)

    @property
    def frozen_dtype(self) -> torch.dtype:
        """Of the weights of a base model that nothing learns, as they are loaded: the dtype that computes with them."""
        return torch.bfloat16 if self.precision.startswith("bf16") else torch.float32


PLACED: dict[str, Sharded | str] = {"single_device": "auto", "ddp": "ddp", "fsdp2": Fsdp2()}
"""The values of ``policies.NAME.strategy``."""


def _is_count(devices: object) -> bool:
    return isinstance(devices, int) and not isinstance(devices, bool) and devices >= 1


def _are_indices(devices: object) -> bool:
    if not isinstance(devices, tuple) or not devices or len(set(devices)) < len(devices):
        return False
    return all(isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in devices)


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
    fabric = settings.fabric()
    # ZeroStrategy is a DDPStrategy, by Lightning's inheritance.
    if not isinstance(fabric.strategy, SingleDeviceStrategy | DDPStrategy | ModelParallelStrategy):
        raise StrategyError(
            f"strategy: {type(fabric.strategy).__name__} is not one that pools train with; these are single_device, "
            "ddp, fsdp2 and DeepSpeed's"
        )
    return fabric
