"""Out of memory: how torch reports it."""

from __future__ import annotations

import gc

import torch


class UpdateMemoryError(RuntimeError):
    """An update that does not fit into memory, however small its micro-batches are, or whose optimizer does not."""


def out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed: of a device, or of torch on the CPU, which has no class for it."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    )


def first_line(error: BaseException) -> str:
    """The first line of an error's message, else its class."""
    return str(error).partition("\n")[0] or type(error).__name__


def release() -> None:
    """Give back what nothing refers to any more."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
