"""Reinforcement learning of teams of language-model agents.

Every name is imported when it is first asked for: ``import troupe`` alone imports nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api.experiment import Experiment
    from .api.run import Run
    from .sweep.overview import Sweep

    __version__: str

# torch's allocator on a CPU reads it once: tensors of megabytes lie in huge pages.  Looking up small ones takes most of
# the time in which a virtual machine reads weights.
if os.path.isdir("/sys/kernel/mm/transparent_hugepage"):
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

MODULES = {"Experiment": ".api.experiment", "Run": ".api.run", "Sweep": ".sweep.overview"}
__all__ = ["Experiment", "Run", "Sweep", "__version__"]


def __getattr__(name: str) -> Any:
    from importlib import import_module, metadata

    if name == "__version__":
        return metadata.version("troupe-rl")
    if name in MODULES:
        return getattr(import_module(MODULES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
