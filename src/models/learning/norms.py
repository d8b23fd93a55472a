"""RMS norms in the precision of their input."""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn


def keep_float64(model: nn.Module) -> None:
    """Let the RMS norms of ``model`` compute in float64 where their input is.

    Transformers' round it to float32 first.  Which way depends on its last bits, and these on how rows were cut: runs
    that should agree to 1e-12 would do so to 1e-7.
    """
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon"):
            module.forward = MethodType(_forward, module)


def _forward(norm: Any, hidden: Tensor) -> Tensor:
    if hidden.dtype != torch.float64:
        normed: Tensor = type(norm).forward(norm, hidden)
        return normed
    return norm.weight * hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)
