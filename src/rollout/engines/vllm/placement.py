"""On which device an engine's process computes, and how all weights of a model travel to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

Transfer = Literal["shared_memory", "ipc", "nccl"]
NEEDS = {"ipc": "both on one GPU and a learner of one process", "nccl": "two GPUs"}


@dataclass(frozen=True)
class Placement:
    """``gpu`` is the one that the process sees, as the learner's process counts them; None: the CPU."""

    gpu: int | None
    transfer: Transfer


def place(device: str, transfer: str, *, learner: torch.device, gpus: int | None, alone: bool = True) -> Placement:
    """What ``engine.device`` and ``engine.transfer`` mean for a learner whose weights lie on ``learner``.

    ``gpus``: how many this process sees, for a vLLM that computes on them; None for one that computes on a CPU.
    ``alone``: whether the learner is one process.  ``auto`` is the learner's GPU, and between two GPU memories ``ipc``
    or ``nccl``, else shared memory.  Raises ``ValueError`` naming the key.
    """
    if gpus == 0:
        raise ValueError(
            "engine=vllm: this vLLM computes on a GPU, and its process sees none; with execution=ray give "
            "execution.resources.engine.gpus=1"
        )
    if gpus is None:
        if device != "auto":
            raise ValueError(f"engine.device={device}: this vLLM computes on a CPU; give auto")
        if transfer not in ("auto", "shared_memory"):
            raise ValueError(
                f"engine.transfer={transfer} goes from one GPU memory to another, and this vLLM computes on a CPU; "
                "give auto or shared_memory"
            )
        return Placement(None, "shared_memory")
    own = (learner.index or 0) if learner.type == "cuda" else None  # the learner's GPU
    gpu = (own or 0) if device == "auto" else int(device.partition(":")[2])
    if gpu >= gpus:
        raise ValueError(f"engine.device={device}: there is no such GPU, only {gpus}, counted from 0")
    best: Transfer = "shared_memory"
    if own == gpu and alone:  # by ipc, vLLM has all of a learner's processes send at once
        best = "ipc"
    elif own not in (None, gpu):
        best = "nccl"
    if transfer not in ("auto", "shared_memory", best):
        raise ValueError(
            f"engine.transfer={transfer} needs {NEEDS[transfer]}, but the learner's weights are on {learner}"
            f"{'' if alone else ', in several processes'}, the engine is on cuda:{gpu}; give auto"
        )
    return Placement(gpu, "shared_memory" if transfer == "shared_memory" else best)


def check_adapters(dtype: str, sleep: int, *, reloads: bool) -> None:
    """Raise ``ValueError``, naming the key, for what vLLM cannot do with adapters on a GPU.

    ``reloads``: whether it can load a model again to which adapters are added, as 0.32.0 can and 0.22.1 cannot.
    """
    if dtype == "float32":
        raise ValueError(
            "engine.dtype=float32: on a GPU, vLLM adds adapters in bfloat16 or float16; give one of them, or "
            "engine.lora=merged"
        )
    if sleep == 2 and not reloads:
        raise ValueError(
            "engine.sleep=2: this vLLM cannot load a model again that adapters are added to; give engine.sleep=1, or "
            "engine.lora=merged"
        )
