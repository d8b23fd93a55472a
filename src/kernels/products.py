"""Matrix products on a CPU, by the faster of the ways that torch has.

**Float32.**  Torch gives products to MKL, which uses AVX-512 on Intel's processors alone.  oneDNN uses it on others
too: on one AMD EPYC it takes less than half of MKL's time (``bench/products.py``); on Zen 4, whose AVX-512 takes two
passes, a tenth to a third less, and more for few rows and a small matrix, since each call costs more.  The numbers are
the same up to the order of the sums.

oneDNN compiles code for every shape.  That takes as long as a small product and half a megabyte.  So numbers of rows
are rounded up to few (:func:`few_sizes`; rows that are all 0 are added, and left out of the result), and the code of
:data:`CACHED` shapes is kept.

**Bfloat16.**  Processors with tiles (AMX) want the second matrix of a product in an order of its own, into which oneDNN
brings it at every call.  With few rows that takes longer than the product, so that they become the second matrix:
``W x^T`` in place of ``x W^T``.  With AVX-512 and no tiles that gains little; there a matrix that is multiplied many
times gets a copy in that order (:func:`packed`), which halves the time of a product of 8 rows (``bench/products.py
--bfloat16``).  On Intel's processors without tiles AVX-512 multiplies bfloat16 at half of float32's rate, and others
have no instruction for it: with many rows the matrix becomes float32 there, a block at a time (:func:`_widened`).
"""

from __future__ import annotations

import math
import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.overrides import TorchFunctionMode

MIN_ROWS: Final = 4
MIN_SIDE: Final = 32
MIN_SIZE: Final = 1 << 20
"""Rows of a product, rows and columns of its matrix, and multiplications, below which oneDNN saves nothing."""
MIN_MATRIX: Final = 1 << 18
"""Numbers of a matrix below which oneDNN saves nothing on Zen 4, with fewer rows than :data:`MIN_ROWS_OF_COPY`."""
MIN_ROWS_OF_COPY: Final = 128
"""Rows for which it pays to copy a matrix that has gaps in memory: oneDNN has no fast code for these."""
MAX_WIDTH_OF_COPY: Final = 1 << 14
"""Columns above which a tensor is not copied, to add rows or to turn it: these are logits, the largest of an update."""
MIN_TURNED: Final = 1 << 19
"""Numbers of a matrix from which bfloat16's product is turned: smaller ones stay in the caches."""
PACKED_ROWS: Final = 64
"""Rows for which the order of a packed matrix is chosen; others are multiplied as fast."""
MAX_TURNED_ROWS: Final = 96
MAX_TURNED_LOGITS: Final = 32
"""Rows up to which bfloat16's product is turned; fewer of logits, which are turned back to be drawn from by row."""
FEW_ROWS: Final = 32
FEW_ROWS_WITHOUT: Final = 8
"""Rows for each thread above which bfloat16's product is computed in float32, with and without AVX512-BF16."""
MAX_TURNED_BLOCK_ROWS: Final = 128
"""Rows up to which it is turned then."""
BLOCK: Final = 512
"""Rows of a matrix that are float32 at a time."""
CACHED: Final = 512
CACHED_FOR_TILES: Final = 128
"""Products whose code oneDNN keeps; that for tiles takes a megabyte each."""
PLAIN: Final = (Tensor, torch.nn.Parameter)
"""No part of a sharded tensor."""
CAPACITY: Final = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"


def has_onednn() -> bool:
    """Whether torch was built with its products."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@cache
def use_onednn() -> bool:
    """Whether oneDNN is the faster library on this machine: with AVX-512 on a processor that is not Intel's."""
    faster = (
        has_onednn() and torch.backends.cpu.get_cpu_capability().startswith("AVX512") and "Intel" not in _processor()
    )
    if faster:
        bound_cache()
    return faster


@cache
def halves_avx512() -> bool:
    """Whether the processor is AMD's of family 25, hence Zen 4, if it has AVX-512."""
    return re.search(r"^cpu family\s*: 25$", _processor(), re.MULTILINE) is not None


def multiplies_bfloat16() -> bool:
    """Whether the CPU does; true of any that is not x86, where torch does not say."""
    is_x86 = torch.backends.cpu.get_cpu_capability().startswith("AVX")
    return not is_x86 or torch.cpu._is_avx512_bf16_supported() or has_tiles()


@cache
def has_tiles() -> bool:
    """Whether the processor multiplies tiles of bfloat16 (AMX)."""
    return torch.cpu._is_amx_tile_supported()


@cache
def packs() -> bool:
    """Whether this machine gains by :func:`packed`: with products of bfloat16 by AVX-512."""
    return has_onednn() and torch.cpu._is_avx512_bf16_supported() and not has_tiles()


def min_widened_rows() -> float:
    """Rows from which products of bfloat16 are faster in float32 on this machine."""
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX") or has_tiles():
        return math.inf
    if torch.cpu._is_avx512_bf16_supported():
        return FEW_ROWS * torch.get_num_threads() + 1 if "Intel" in _processor() else math.inf
    return FEW_ROWS_WITHOUT * torch.get_num_threads() + 1


@cache
def _processor() -> str:
    """What the system calls the processor."""
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()


@cache
def bound_cache() -> None:
    """oneDNN reads its cache's capacity once, before its first product; other processes are to have their own."""
    if CAPACITY in os.environ or not has_onednn():
        return
    ones = torch.ones(4, 4, dtype=torch.float32, device="cpu")
    os.environ[CAPACITY] = str(CACHED_FOR_TILES if has_tiles() else CACHED)
    try:
        torch.ops.mkldnn._linear_pointwise(ones, ones, None, "none", [], "")
    finally:
        del os.environ[CAPACITY]


def few_sizes(count: int) -> int:
    """``count`` rounded up, by at most a sixteenth above 64, so that there are 16 results between a power of two and
    the next.
    """
    step = max(MIN_ROWS, 1 << max(0, count.bit_length() - 5))
    return -(-count // step) * step


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, copy: Tensor | None = None) -> Tensor:
    """``input`` (..., k) times the transpose of ``weight`` (n, k), plus ``bias`` (n,): (..., n).  The arguments are
    those of ``torch.nn.functional.linear``, and a ``copy`` of ``weight`` by :func:`packed`, without gradients.  The
    result may lie transposed in memory.
    """
    if _turns(input, weight) and (bias is None or bias.dtype == weight.dtype):
        return _turned(input, weight, bias)
    fits = _fits(bias, weight)
    if not (fits and _widens(input, weight)):
        if copy is not None:
            return _onednn(input, copy, bias)
        if not (fits and _suits(input, weight.t())):
            return functional.linear(input, weight, bias)
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (input, weight, bias)):
        result: Tensor = _Linear.apply(input, weight, bias)
        return result
    return _product(input, weight, bias)


def packed(weight: Tensor) -> Tensor | None:
    """A copy of a matrix of bfloat16 (n, k) for :func:`linear`; None where that gains nothing.

    The first copy takes as long as some ten products of few rows, later ones three.
    """
    if weight.dtype != torch.bfloat16 or weight.device.type != "cpu" or weight.numel() < MIN_TURNED or not packs():
        return None
    bound_cache()
    result: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), PACKED_ROWS)
    return result


class FastLinear(TorchFunctionMode):
    """Within it, every linear layer of a model is computed by :func:`linear`."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return (linear if func is functional.linear else func)(*args, **(kwargs or {}))


def fast_linear(weight: Tensor) -> AbstractContextManager[object]:
    """:class:`FastLinear` where it helps a model with such weights, which it would slow down elsewhere."""
    narrow = _computable(weight, torch.bfloat16) and min_widened_rows() < math.inf
    return FastLinear() if narrow or (_computable(weight) and use_onednn()) else nullcontext()


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """``a`` (m, k) times ``b`` (k, n), without gradients."""
    if _widens(a, b):
        return _widened_sum(a, b)
    return _product(a, b.t(), None) if _suits(a, b) else a @ b


def weight_gradient(of_output: Tensor, x: Tensor) -> Tensor:
    """The gradient (n, k) of a projection's matrix, from those of its outputs (m, n) and its inputs (m, k)."""
    if of_output.shape[1] > MAX_WIDTH_OF_COPY or not _suits(of_output.t(), x):
        return of_output.t() @ x
    if added := few_sizes(len(x)) - len(x):
        of_output, x = (functional.pad(each, (0, 0, 0, added)) for each in (of_output, x))
    return _product(of_output.t(), x.t(), None)


def addmm(total: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """``total`` (m, n) plus ``a`` (m, k) times ``b`` (k, n), without gradients."""
    if not _suits(a, b) or total.shape != (len(a), b.shape[1]):
        return torch.addmm(total, a, b)
    if len(a) != few_sizes(len(a)):
        return _product(a, b.t(), None).add_(total)
    result: Tensor = torch.ops.mkldnn._linear_pointwise.binary(a, total.contiguous(), _dense(b.t()), None, "add")
    return result


def is_dense(matrix: Tensor) -> bool:
    """Whether its numbers lie in memory without gaps, by row or by column."""
    return matrix.is_contiguous() or matrix.t().is_contiguous()


def _dense(matrix: Tensor) -> Tensor:
    if is_dense(matrix):
        return matrix
    return matrix.contiguous() if matrix.stride(1) == 1 else matrix.t().contiguous().t()


def _computable(x: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    """Whether the products of ``dtype`` here are for such tensors."""
    return x.dtype == dtype and x.device.type == "cpu" and type(x) in PLAIN and not torch.is_autocast_enabled("cpu")


def _suits(x: Tensor, matrix: Tensor) -> bool:
    """Whether oneDNN computes ``x`` (..., k) times ``matrix`` (k, n), and faster."""
    if not (_computable(x) and _computable(matrix)) or x.ndim == 0 or matrix.ndim != 2 or x.shape[-1] != len(matrix):
        return False
    rows = x.numel() // max(x.shape[-1], 1)
    return (
        rows >= MIN_ROWS
        and min(matrix.shape) >= MIN_SIDE
        and rows * matrix.numel() >= MIN_SIZE
        and (rows >= MIN_ROWS_OF_COPY or (is_dense(matrix) and (matrix.numel() >= MIN_MATRIX or not halves_avx512())))
        and (x.shape[-1] <= MAX_WIDTH_OF_COPY or rows == few_sizes(rows))
        and use_onednn()
    )


def _turns(x: Tensor, weight: Tensor) -> bool:
    """Whether bfloat16's product is faster turned."""
    if x.dtype != torch.bfloat16 or weight.dtype != torch.bfloat16 or weight.device.type != "cpu":
        return False
    if x.ndim < 2 or weight.ndim != 2 or weight.numel() < MIN_TURNED:
        return False
    most = MAX_TURNED_ROWS if len(weight) <= MAX_WIDTH_OF_COPY else MAX_TURNED_LOGITS
    return x.numel() <= most * x.shape[-1] and weight.is_contiguous() and has_tiles()


def _turned(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    result = (weight @ x.flatten(0, -2).t().contiguous()).t()
    return (result if bias is None else result + bias).unflatten(0, x.shape[:-1])


def _widens(x: Tensor, matrix: Tensor) -> bool:
    """Whether the product of ``x`` (..., m) and a matrix, turned or not, is one of bfloat16, and faster in float32."""
    if not (_computable(x, torch.bfloat16) and _computable(matrix, torch.bfloat16)):
        return False
    if x.ndim == 0 or matrix.ndim != 2 or x.shape[-1] == 0:
        return False
    rows = x.numel() // x.shape[-1]
    return rows >= min_widened_rows() and min(matrix.shape) >= MIN_SIDE and rows * matrix.numel() >= MIN_SIZE


def _widened(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x`` (..., k) times the transpose of ``weight`` (n, k), plus ``bias``, by float32: (..., n) in bfloat16."""
    flat = x.flatten(0, -2).float()
    turns = len(flat) <= MAX_TURNED_BLOCK_ROWS
    result = x.new_empty((len(weight), len(flat)) if turns else (len(flat), len(weight)))
    wide = flat.new_empty(min(BLOCK, len(weight)), weight.shape[1])
    for start in range(0, len(weight), BLOCK):
        block = slice(start, start + BLOCK)
        part = wide[: len(weight) - start].copy_(weight[block])
        product = (part @ flat.t()).t() if turns else flat @ part.t()
        (result.t() if turns else result)[:, block] = product if bias is None else product.add_(bias[block])
    return (result.t().contiguous() if turns else result).unflatten(0, x.shape[:-1])


def _widened_sum(a: Tensor, b: Tensor) -> Tensor:
    """``a`` (m, k) times ``b`` (k, n), by float32: (m, n) in bfloat16."""
    total = a.new_zeros(len(a), b.shape[1], dtype=torch.float32)
    for columns, part in zip(a.split(BLOCK, 1), b.split(BLOCK), strict=True):
        total.addmm_(columns.float(), part.float())
    return total.to(a.dtype)


def _fits(bias: Tensor | None, weight: Tensor) -> bool:
    return bias is None or (_computable(bias, weight.dtype) and bias.shape == weight.shape[:1] and bias.is_contiguous())


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if _widens(x, weight):
        return _widened(x, weight, bias)
    return _onednn(x, _dense(weight), bias)


def _onednn(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    flat = x.flatten(0, -2)
    rows = len(flat)
    if added := few_sizes(rows) - rows:
        flat = functional.pad(flat, (0, 0, 0, added))
    result: Tensor = torch.ops.mkldnn._linear_pointwise(flat, matrix, bias, "none", [], "")
    return result[:rows].unflatten(0, x.shape[:-1])


class _Linear(torch.autograd.Function):
    """:func:`linear` with its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight if ctx.needs_input_grad[0] else None)
        ctx.shape = x.shape
        return _product(x, weight, bias).detach()  # no view for autograd: a model may change it in place

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        flat = grad.flatten(0, -2)
        needed = ctx.needs_input_grad
        return (
            matmul(flat, weight).view(ctx.shape) if needed[0] else None,
            weight_gradient(flat, x.flatten(0, -2)) if needed[1] else None,
            flat.sum(0) if needed[2] else None,
        )
