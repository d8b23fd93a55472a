"""Matrix products in float32 on a CPU, by the faster of the two libraries that torch has for them.

Torch gives products in float32 to MKL, which uses AVX-512 on Intel's processors alone.  oneDNN uses it on others too:
on an AMD EPYC with AVX-512 it takes less than half of MKL's time (``bench/products.py``).  The numbers are the same up
to the order of the sums.

oneDNN compiles code for every shape, which takes as long as a small product, so that numbers of rows are rounded up to
few (:func:`few_sizes`); rows that are all 0 are added, and left out of the result.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.overrides import TorchFunctionMode

MIN_ROWS = 4
MIN_SIZE = 1 << 20
"""Rows of a product, and multiplications, below which calling oneDNN costs more than it saves."""
MIN_ROWS_OF_COPY = 128
"""Rows for which it pays to copy a matrix that has gaps in memory: oneDNN has no fast code for these."""


@cache
def use_onednn() -> bool:
    """Whether oneDNN is the faster library on this machine: with AVX-512 on a processor that is not Intel's."""
    return (
        torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and torch.backends.cpu.get_cpu_capability().startswith("AVX512")
        and "Intel" not in _processor()
    )


def _processor() -> str:
    """What the system calls the processor."""
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.read_text() if cpuinfo.exists() else platform.processor()


def few_sizes(count: int) -> int:
    """``count`` rounded up, by at most a sixteenth above 64, so that there are 16 results between a power of two and
    the next.
    """
    step = max(MIN_ROWS, 1 << max(0, count.bit_length() - 5))
    return -(-count // step) * step


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x`` (..., k) times the transpose of ``weight`` (n, k), plus ``bias`` (n,): (..., n)."""
    if not _suits(x, weight):
        return functional.linear(x, weight, bias)
    if torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in (x, weight, bias)):
        result: Tensor = _Linear.apply(x, weight, bias)
        return result
    return _product(x, weight, bias)


class FastLinear(TorchFunctionMode):
    """Within it, every linear layer of a model is computed by :func:`linear`."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return (linear if func is functional.linear else func)(*args, **(kwargs or {}))


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """``a`` (m, k) times ``b`` (k, n), without gradients."""
    return _product(a, b.t(), None) if _suits(a, b) else a @ b


def weight_gradient(of_output: Tensor, x: Tensor) -> Tensor:
    """The gradient (n, k) of a projection's matrix, from those of its outputs (m, n) and its inputs (m, k)."""
    if _suits(of_output.t(), x) and (added := few_sizes(len(x)) - len(x)):
        of_output, x = (functional.pad(each, (0, 0, 0, added)) for each in (of_output, x))
    return matmul(of_output.t(), x)


def addmm(total: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """``total`` (m, n) plus ``a`` (m, k) times ``b`` (k, n), without gradients."""
    if not _suits(a, b):
        return torch.addmm(total, a, b)
    if len(a) != few_sizes(len(a)):
        return matmul(a, b).add_(total)
    result: Tensor = torch.ops.mkldnn._linear_pointwise.binary(a, total.contiguous(), _dense(b.t()), None, "add")
    return result


def is_dense(matrix: Tensor) -> bool:
    """Whether its numbers lie in memory without gaps, by row or by column."""
    return matrix.is_contiguous() or matrix.t().is_contiguous()


def _dense(matrix: Tensor) -> Tensor:
    if is_dense(matrix):
        return matrix
    return matrix.contiguous() if matrix.stride(1) == 1 else matrix.t().contiguous().t()


def _suits(x: Tensor, matrix: Tensor) -> bool:
    """Whether oneDNN computes the product of ``x`` with ``matrix`` or its transpose, and faster."""
    if x.dtype != torch.float32 or matrix.dtype != torch.float32 or x.device.type != "cpu":
        return False
    rows = x.numel() // max(x.shape[-1], 1)
    return (
        rows >= MIN_ROWS
        and rows * matrix.numel() >= MIN_SIZE
        and (rows >= MIN_ROWS_OF_COPY or is_dense(matrix))
        and type(x) in _PLAIN
        and type(matrix) in _PLAIN
        and not torch.is_autocast_enabled("cpu")
        and use_onednn()
    )


_PLAIN = (Tensor, torch.nn.Parameter)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    flat = x.flatten(0, -2)
    rows = len(flat)
    if added := few_sizes(rows) - rows:
        flat = functional.pad(flat, (0, 0, 0, added))
    result: Tensor = torch.ops.mkldnn._linear_pointwise(flat, _dense(weight), bias, "none", [], "")
    return result[:rows].unflatten(0, x.shape[:-1])


class _Linear(torch.autograd.Function):
    """:func:`linear` with its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        flat = grad.flatten(0, -2)
        needed = ctx.needs_input_grad
        return (
            matmul(flat, weight).view_as(x) if needed[0] else None,
            weight_gradient(flat, x.flatten(0, -2)) if needed[1] else None,
            flat.sum(0) if needed[2] else None,
        )
