"""Memory of a process: how torch reports that it lacks, and how it is given back."""

from __future__ import annotations

import ctypes
import gc
import sys

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


def trim_heap() -> None:
    """Give the free pages of malloc's heap back to the system, where its library can: glibc's.

    malloc keeps what was freed below a block that is in use, and the tensors of an iteration have many sizes: the pages
    that it keeps grow for hours, while what is in use does not.  Takes milliseconds.
    """
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(ctypes.c_size_t(0))
