"""The settings of ``strategy=``: how each pool is run.  :mod:`.fabrics` makes Lightning's of them, whose import takes
seconds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

import torch
from torch import nn

from ...errors import AbsentError, Positive, check_fields

if TYPE_CHECKING:
    from lightning.fabric.strategies.strategy import Strategy
    from torch.distributed.device_mesh import DeviceMesh

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
        from lightning.fabric.strategies.model_parallel import ModelParallelStrategy

        from ..learning.policy import PolicyModule
        from ..learning.sharding import Gathering, shard

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
        from ..learning.zero import ZeroStrategy

        return ZeroStrategy(self.stage, cpu_offload=self.cpu_offload, on_cpu=not on_gpu)


@dataclass(frozen=True)
class StrategySettings:
    """The keys of ``configs/strategy``: Lightning Fabric's arguments for each pool, ``gradient_checkpointing``, and
    ``float32_matmul``, which holds for the process.

    Raises :class:`StrategyError` for values that are wrong on every machine; :func:`.fabrics.fabric_of` does for what
    is missing on this one.
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

    @property
    def plain(self) -> bool:
        """Whether every machine can train so, with what Fabric has by itself: in one process on the CPU."""
        one = self.strategy == "auto" and self.num_nodes == 1 and self.devices in ("auto", 1)
        on_cpu = self.accelerator == "cpu" or (self.accelerator == "auto" and not self.on_gpu)
        return one and on_cpu and self.precision in ("32-true", "bf16-mixed", "bf16-true")

    @property
    def on_gpu(self) -> bool:
        """Whether Fabric computes on a CUDA GPU."""
        return self.accelerator in ("cuda", "gpu") or (self.accelerator == "auto" and torch.cuda.device_count() > 0)

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
