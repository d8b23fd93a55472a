"""Where an engine's process computes, and by which way all weights of a model reach it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import torch

Transfer = Literal["shared_memory", "ipc", "nccl"]
TRANSFERS = ("auto", "shared_memory", "ipc", "nccl")


@dataclass(frozen=True)
class Placement:
    """``gpu`` is the one that the process sees, as the learner's process counts them; None: the CPU."""

    gpu: int | None
    transfer: Transfer


def place(device: str, transfer: str, *, learner: torch.device, gpus: int, alone: bool = True) -> Placement:
    """What ``engine.device`` and ``engine.transfer`` mean for a learner whose weights lie on ``learner``.

    ``gpus``: how many there are for a vLLM that computes on them, 0 for one that computes on a CPU.  ``alone``: whether
    the learner is one process.  ``auto`` is the learner's GPU, and between two GPU memories ``ipc`` or ``nccl``, else
    shared memory.  Raises ``ValueError`` naming the key.
    """
    if not gpus:
        if device != "auto":
            raise ValueError(f"engine.device={device}: this vLLM computes on a CPU; give auto")
        if transfer not in ("auto", "shared_memory"):
            raise ValueError(
                f"engine.transfer={transfer} goes from one GPU memory to another, and this vLLM computes on a CPU; "
                "give auto or shared_memory"
            )
        return Placement(None, "shared_memory")
    gpu = _index(device, learner)
    if gpu >= gpus:
        raise ValueError(f"engine.device={device}: there is no such GPU, only {gpus}, counted from 0")
    if transfer == "ipc" and not alone:  # vLLM's helper has all of a learner's processes send at once
        raise ValueError("engine.transfer=ipc needs a learner of one process; give auto")
    return Placement(gpu, _way(transfer, gpu, learner, alone))


def check_adapters(dtype: str, sleep: int, *, anew: bool) -> None:
    """Raise ``ValueError``, naming the key, for what vLLM cannot do with adapters on a GPU.

    ``anew``: whether it can load a model again to which adapters are added, as 0.32.0 can.
    """
    if dtype == "float32":
        raise ValueError(
            "engine.dtype=float32: on a GPU, vLLM adds adapters in bfloat16 or float16; give one of them, or "
            "engine.lora=merged"
        )
    if sleep == 2 and not anew:
        raise ValueError(
            "engine.sleep=2: this vLLM cannot load a model again that adapters are added to; give engine.sleep=1, or "
            "engine.lora=merged"
        )


def check(device: str, transfer: str) -> None:
    """Raise ``ValueError``, naming the key, for values that no machine knows."""
    if device != "auto" and not re.fullmatch(r"cuda:\d+", device):
        raise ValueError(f"engine.device must be auto or a GPU such as cuda:1, got {device!r}")
    if transfer not in TRANSFERS:
        raise ValueError(f"engine.transfer must be one of {', '.join(TRANSFERS)}, got {transfer!r}")


def _index(device: str, learner: torch.device) -> int:
    if device == "auto":
        return (learner.index or 0) if learner.type == "cuda" else 0
    return int(device.partition(":")[2])


def _way(transfer: str, gpu: int, learner: torch.device, alone: bool) -> Transfer:
    there = learner.type == "cuda" and (learner.index or 0) == gpu
    where = f"the learner's weights are on {learner}, the engine is on cuda:{gpu}"
    if transfer == "ipc" and not there:
        raise ValueError(f"engine.transfer=ipc needs both on one GPU, but {where}; give auto")
    if transfer == "nccl" and (there or learner.type != "cuda"):
        raise ValueError(f"engine.transfer=nccl needs two GPUs, but {where}; give auto")
    if transfer == "ipc" or (transfer == "auto" and there and alone):
        return "ipc"
    if transfer == "nccl" or (transfer == "auto" and learner.type == "cuda" and not there):
        return "nccl"
    return "shared_memory"
