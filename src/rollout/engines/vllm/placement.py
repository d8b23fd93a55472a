"""On which devices an engine's processes compute, and how all weights of a model travel to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from .settings import VllmSettings

Transfer = Literal["shared_memory", "ipc", "nccl"]
NEEDS = {"ipc": "both on one GPU and a learner of one process", "nccl": "two GPUs"}


@dataclass(frozen=True)
class Placement:
    """``gpus``, one for each tensor parallel process, as the learner's process counts them; none: the CPU."""

    gpus: tuple[int, ...]
    transfer: Transfer


def place(
    settings: VllmSettings, *, learner: torch.device, gpus: int | None, alone: bool = True
) -> tuple[Placement, ...]:
    """Where each of ``engine.data_parallel`` replicas computes, with a learner whose weights lie on ``learner``.

    ``gpus``: how many this process sees, for a vLLM that computes on them; None for one that computes on a CPU.
    ``alone``: whether the learner is one process.  ``engine.device`` is the first GPU, and the others follow; ``auto``
    is the learner's, or the one before it with which there are enough.  ``engine.transfer=auto`` is between two GPU
    memories ``ipc`` or ``nccl``, else shared memory.  Raises ``ValueError`` naming the key.
    """
    ranks, replicas, device = settings.tensor_parallel, settings.data_parallel, settings.device
    if gpus == 0:
        raise ValueError(
            "engine=vllm: this vLLM computes on a GPU, and its process sees none; with execution=ray give "
            f"execution.resources.engine.gpus={ranks}"
        )
    if gpus is None:
        if device != "auto":
            raise ValueError(f"engine.device={device}: this vLLM computes on a CPU; give auto")
        if settings.transfer not in ("auto", "shared_memory"):
            raise ValueError(
                f"engine.transfer={settings.transfer} goes from one GPU memory to another, and this vLLM computes on a "
                "CPU; give auto or shared_memory"
            )
        return (Placement((), "shared_memory"),) * replicas
    own = (learner.index or 0) if learner.type == "cuda" else None  # the learner's GPU
    count = ranks * replicas
    keys = f"engine.tensor_parallel={ranks} with engine.data_parallel={replicas}"
    if count > gpus:
        raise ValueError(f"{keys} needs {count} GPUs, and this process sees {gpus}")
    if count > 1 and not alone:
        raise ValueError(
            f"{keys} needs {count} GPUs, and each of the learner's processes would have an engine of its own on them; "
            "give the pool processes of its own (policies.NAME.devices), or execution=ray"
        )
    first = min(own or 0, gpus - count) if device == "auto" else int(device.partition(":")[2])
    if first + count > gpus:
        last = f"cuda:{first + count - 1}"
        raise ValueError(
            f"engine.device={device}: there is no such GPU as {last}, only {gpus}, counted from 0"
            + (f" ({keys})" if count > 1 else "")
        )
    blocks = [tuple(range(start, start + ranks)) for start in range(first, first + count, ranks)]
    return tuple(Placement(block, _transfer(settings, block, learner, own, alone)) for block in blocks)


def _transfer(
    settings: VllmSettings, gpus: tuple[int, ...], learner: torch.device, own: int | None, alone: bool
) -> Transfer:
    """To ``gpus`` from the learner's ``own``."""
    best: Transfer = "shared_memory"
    if len(gpus) == 1 and own == gpus[0] and alone:  # by ipc, vLLM has all of a learner's processes send at once
        best = "ipc"
    elif len(gpus) == 1 and own not in (None, gpus[0]):
        best = "nccl"
    if settings.transfer not in ("auto", "shared_memory", best):
        raise ValueError(
            f"engine.transfer={settings.transfer} needs {NEEDS[settings.transfer]}, but the learner's weights are on "
            f"{learner}{'' if alone else ', in several processes'}, the engine is on cuda:{gpus[0]}; give auto"
        )
    return "shared_memory" if settings.transfer == "shared_memory" else best


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
