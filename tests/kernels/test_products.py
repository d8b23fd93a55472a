"""Products of matrices: equal to torch's own, with their gradients, whichever library computes them."""

from __future__ import annotations

import copy
import math
import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from troupe.kernels import products
from troupe.kernels.products import addmm, few_sizes, linear, matmul, weight_gradient

turn = products._turned
SHAPES = [(1, 8, 8), (5, 512, 1024), (37, 256, 768), (1020, 256, 128), (64, 7, 3), (0, 16, 16)]

has_onednn = products.has_onednn()


@pytest.fixture(params=[False, True], ids=["mkl", "onednn"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param and not has_onednn:
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(products, "use_onednn", lambda: request.param)
    monkeypatch.setattr(products, "halves_avx512", lambda: False)


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def near(ours: Tensor, exact: Tensor) -> None:
    """To the rounding of float32, of the matrix as a whole."""
    assert ours.shape == exact.shape
    assert ours.dtype == torch.float32
    assert (ours.double() - exact).norm() <= 1e-5 * exact.norm() + 1e-12


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [False, True])
def test_linear_and_its_gradients_equal_torchs_in_float64(shape: tuple[int, int, int], bias: bool) -> None:
    m, k, n = shape
    ours = [drawn(m, k), drawn(n, k), *([drawn(n)] if bias else [])]
    exact = [each.double().requires_grad_() for each in ours]
    ours = [each.requires_grad_() for each in ours]
    result, wanted = linear(*ours), functional.linear(*exact)
    near(result, wanted)
    flow = drawn(m, n)
    gradients = torch.autograd.grad(result, ours, flow), torch.autograd.grad(wanted, exact, flow.double())
    for gradient, expected in zip(*gradients, strict=True):
        near(gradient, expected)


@pytest.mark.parametrize("shape", [(1, 8, 8), (64, 48, 96), (96, 33, 7), (2, 16, (1 << 14) + 1)])
@pytest.mark.parametrize("bias", [False, True])
def test_a_turned_product_of_bfloat16_is_as_near_as_torchs(shape, bias, monkeypatch) -> None:
    monkeypatch.setattr(products, "has_tiles", lambda: True)
    monkeypatch.setattr(products, "MIN_TURNED", 0)
    turned = []
    monkeypatch.setattr(products, "_turned", lambda *given: turned.append(given) or turn(*given))
    m, k, n = shape
    ours = [each.bfloat16() for each in (drawn(m, k), drawn(n, k), *([drawn(n)] if bias else []))]
    exact = functional.linear(*(each.double() for each in ours))
    apart = [(way(*ours).double() - exact).norm() for way in (linear, functional.linear)]
    assert turned and apart[0] <= 2 * apart[1]
    again = linear(linear(ours[0], torch.eye(k, dtype=torch.bfloat16)), *ours[1:])  # of what lies transposed
    assert torch.equal(again, linear(*ours))
    one = linear(ours[0][0], *ours[1:])
    assert torch.equal(one, functional.linear(ours[0][0], *ours[1:]))
    if bias:
        with pytest.raises(RuntimeError):  # as torch's own
            linear(*ours[:2], ours[2].float())


needs_bfloat16 = pytest.mark.skipif(
    not (has_onednn and torch.ops.mkldnn._is_mkldnn_bf16_supported()), reason="oneDNN has no bfloat16 here"
)


@needs_bfloat16
@pytest.mark.parametrize("rows", [1, 5, 64, 200])
@pytest.mark.parametrize("bias", [False, True])
def test_a_product_by_a_packed_matrix_is_as_near_as_torchs(rows, bias, monkeypatch) -> None:
    monkeypatch.setattr(products, "packs", lambda: True)
    monkeypatch.setattr(products, "has_tiles", lambda: False)
    monkeypatch.setattr(products, "min_widened_rows", lambda: math.inf)
    multiplied, way = [], products._onednn
    monkeypatch.setattr(products, "_onednn", lambda x, m, *more: multiplied.append(m.is_mkldnn) or way(x, m, *more))
    x, weight = drawn(2, rows, 512).bfloat16(), drawn(1100, 512).bfloat16()
    added = drawn(1100).bfloat16() if bias else None
    ours = linear(x, weight, added, products.packed(weight))
    exact = functional.linear(x.double(), weight.double(), None if added is None else added.double())
    apart = [(each.double() - exact).norm() for each in (ours, functional.linear(x, weight, added))]
    assert ours.shape == exact.shape and ours.dtype == torch.bfloat16 and apart[0] <= 2 * apart[1]
    assert multiplied == [True]


class Part(Tensor):
    """As a sharded tensor, no plain one."""


@pytest.mark.parametrize("rows", [1, 40, 300])
@pytest.mark.parametrize("bias", [False, True])
def test_a_widened_product_and_its_gradients_are_as_near_as_torchs(rows, bias, monkeypatch) -> None:
    monkeypatch.setattr(products, "min_widened_rows", lambda: 1)
    monkeypatch.setattr(products, "has_tiles", lambda: False)
    called = []
    for name in ("_widened", "_widened_sum"):
        way = getattr(products, name)
        monkeypatch.setattr(products, name, lambda *given, name=name, way=way: called.append(name) or way(*given))
    given = [each.bfloat16() for each in (drawn(2, rows, 512), drawn(1100, 512), *([drawn(1100)] if bias else []))]
    flow = drawn(2, rows, 1100).bfloat16()
    exact, ours, torchs = (
        [each.to(dtype).requires_grad_() for each in given] for dtype in (float, *2 * (given[0].dtype,))
    )
    results = []
    for way, inputs in ((functional.linear, exact), (linear, ours), (functional.linear, torchs)):
        result = way(*inputs)
        results.append([result, *torch.autograd.grad(result, inputs, flow.to(result.dtype))])
    assert called == ["_widened", "_widened_sum"]
    for wanted, own, theirs in zip(*results, strict=True):
        assert own.shape == wanted.shape and own.dtype == torch.bfloat16
        assert (own - wanted).norm() <= 1.1 * (theirs - wanted).norm()
    with products.fast_linear(given[1]), torch.no_grad():
        assert torch.equal(functional.linear(*given), results[1][0])


def test_what_is_not_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "min_widened_rows", lambda: 32)
    x, weight = drawn(32, 512).bfloat16(), drawn(1100, 512).bfloat16()
    assert products._widens(x, weight)
    assert not products._widens(x[1:], weight) and not products._widens(x.float(), weight.float())
    assert not products._widens(x, weight[:8]) and not products._widens(x[:, :0], weight[:, :0])
    assert products._fits(drawn(1100).bfloat16(), weight) and products._fits(None, weight)
    assert not products._fits(drawn(1100), weight) and not products._fits(drawn(1).bfloat16(), weight)
    assert not products._widens(x, weight.as_subclass(Part)) and not products._widens(x, weight.to("meta"))
    assert isinstance(products.fast_linear(weight), products.FastLinear)
    assert not isinstance(products.fast_linear(weight.to("meta")), products.FastLinear)
    with torch.autocast("cpu", torch.bfloat16):
        assert not products._widens(x, weight)
    monkeypatch.setattr(products, "min_widened_rows", lambda: math.inf)
    assert not products._widens(x, weight) and not isinstance(products.fast_linear(weight), products.FastLinear)


@pytest.mark.parametrize(
    ("rows", "has_bfloat16", "tiles", "intel"),
    [
        (65, True, False, True),
        (17, False, False, True),
        (17, False, False, False),
        (math.inf, True, False, False),
        (math.inf, True, True, True),
    ],
)
def test_from_how_many_rows_products_are_widened(rows, has_bfloat16, tiles, intel, monkeypatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has_bfloat16)
    monkeypatch.setattr(products, "has_tiles", lambda: tiles)
    monkeypatch.setattr(products, "_processor", lambda: "model name : Intel(R) Xeon(R)" if intel else "AMD EPYC")
    assert products.min_widened_rows() == rows


def test_what_is_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "packs", lambda: True)
    assert products.packed(drawn(1100, 512)) is None and products.packed(drawn(8, 512).bfloat16()) is None
    monkeypatch.setattr(products, "packs", lambda: False)
    assert products.packed(drawn(1100, 512).bfloat16()) is None


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("shape", SHAPES)
def test_products_without_gradients_equal_torchs_in_float64(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    a, b, total, flow = drawn(m, k), drawn(k, n), drawn(m, n), drawn(m, n)
    near(matmul(a, b), a.double() @ b.double())
    near(matmul(b.t(), a.t()), b.t().double() @ a.t().double())
    near(addmm(total, a, b), total.double() + a.double() @ b.double())
    near(addmm(total.t().contiguous().t(), a, b), total.double() + a.double() @ b.double())
    near(weight_gradient(flow, a), flow.t().double() @ a.double())


@pytest.mark.usefixtures("library")
def test_rows_may_have_several_dimensions_and_any_order_in_memory() -> None:
    x, weight = drawn(3, 40, 256), drawn(256, 512).t()
    near(linear(x, weight), functional.linear(x.double(), weight.double()))
    x = drawn(40, 3, 256).transpose(0, 1)
    near(linear(x, weight), functional.linear(x.double(), weight.double()))


@pytest.mark.usefixtures("library")
def test_what_onednn_does_not_compute_is_left_to_torch() -> None:
    x, weight = drawn(64, 256), drawn(256, 256)
    assert torch.equal(linear(x.double(), weight.double()), functional.linear(x.double(), weight.double()))
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x, weight).dtype == torch.bfloat16
    half = linear(x.bfloat16(), weight.bfloat16())
    assert torch.equal(half, functional.linear(x.bfloat16(), weight.bfloat16()))


class Noted:
    """oneDNN's operation, which notes the matrices that it gets."""

    def __init__(self) -> None:
        self.matrices: list[Tensor] = []
        self.operation = torch.ops.mkldnn._linear_pointwise

    def __call__(self, x: Tensor, matrix: Tensor, *more: Any) -> Tensor:
        self.matrices.append(matrix)
        return self.operation(x, matrix, *more)

    def binary(self, x: Tensor, other: Tensor, matrix: Tensor, *more: Any) -> Tensor:
        self.matrices.append(matrix)
        return self.operation.binary(x, other, matrix, *more)


@pytest.mark.skipif(not has_onednn, reason="this torch has no oneDNN")
@pytest.mark.parametrize("rows", [16, 127, 200])
def test_onednn_gets_no_matrix_with_gaps(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For these it has code that takes a thousand times as long."""
    noted = Noted()
    monkeypatch.setattr(products, "use_onednn", lambda: True)
    monkeypatch.setattr(products, "halves_avx512", lambda: False)
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", noted)
    x = drawn(rows, 256)
    whole = drawn(512, 256), drawn(256, 512).t()  # by row, by column
    gaps = drawn(1024, 512)[:512, :256], drawn(256, 1024).t()[:512]
    for weight in (*whole, *gaps):
        near(linear(x, weight), functional.linear(x.double(), weight.double()))
        near(matmul(x, weight.t()), x.double() @ weight.t().double())
        near(addmm(drawn(rows, 512), x, weight.t()), drawn(rows, 512).double() + x.double() @ weight.t().double())
        near(weight_gradient(x, drawn(rows, 1024)[:, :512]), x.t().double() @ drawn(rows, 1024)[:, :512].double())
    assert len(noted.matrices) >= 4
    assert all(products.is_dense(matrix) for matrix in noted.matrices)


@pytest.mark.usefixtures("library")
def test_a_frozen_matrix_gets_no_gradient() -> None:
    layer = nn.Linear(256, 256).requires_grad_(False)
    x = drawn(64, 256).requires_grad_()
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda each: kept.append(each) or each, lambda each: each):
        result = linear(x, layer.weight, layer.bias)
    assert all(each.shape != x.shape for each in kept)
    result.sum().backward()
    assert layer.weight.grad is None and layer.bias.grad is None
    assert x.grad is not None
    near(x.grad, layer.weight.double().sum(0).expand(64, -1))


@pytest.mark.usefixtures("library")
def test_fast_linear_computes_the_layers_of_a_model() -> None:
    model = nn.Sequential(nn.Linear(256, 512), nn.SiLU(), nn.Linear(512, 256))
    x = drawn(64, 256)
    with products.FastLinear():
        ours = model(x)
    ours.square().sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    exact = copy.deepcopy(model).double()
    exact.zero_grad()
    result = exact(x.double())
    near(ours, result)
    result.square().sum().backward()
    for gradient, parameter in zip(gradients, exact.parameters(), strict=True):
        assert gradient is not None and parameter.grad is not None
        near(gradient, parameter.grad)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("rows", [64, 71])
def test_a_model_may_change_what_a_layer_gives_in_place(rows: int) -> None:
    x, weight = drawn(rows, 256), drawn(512, 256).requires_grad_()
    linear(x, weight).mul_(2).sum().backward()
    assert weight.grad is not None
    near(weight.grad, 2 * x.double().sum(0).expand(512, -1))


@pytest.mark.usefixtures("library")
def test_arguments_that_torch_takes_and_onednn_does_not() -> None:
    x, weight = drawn(64, 256), drawn(512, 256)
    for bias in (drawn(1024)[::2], drawn(1).expand(512), torch.tensor(1.0), drawn(1), drawn(1, 512), drawn(64, 512)):
        near(linear(input=x, weight=weight, bias=bias), functional.linear(x.double(), weight.double(), bias.double()))
    near(linear(x, weight[0]), x.double() @ weight[0].double())
    near(addmm(drawn(512), x, weight.t()), drawn(512).double() + x.double() @ weight.t().double())
    with pytest.raises(RuntimeError, match=r"shape|size"):
        linear(x, drawn(512, 255))


@pytest.mark.usefixtures("library")
def test_logits_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their gradients neither get rows nor are turned."""
    padded: list[Tensor] = []
    pad = functional.pad
    monkeypatch.setattr(functional, "pad", lambda x, *more: padded.append(x) or pad(x, *more))
    hidden, head = drawn(71, 64).requires_grad_(), drawn(products.MAX_WIDTH_OF_COPY + 1, 64).requires_grad_()
    logits = linear(hidden, head)
    flow = torch.ones_like(logits)
    for gradient, exact in zip(
        torch.autograd.grad(logits, (hidden, head), flow),
        (flow.double() @ head.detach().double(), flow.t().double() @ hidden.detach().double()),
        strict=True,
    ):
        near(gradient, exact)
    assert all(x.shape[-1] <= products.MAX_WIDTH_OF_COPY for x in padded)


@pytest.mark.skipif(not has_onednn, reason="this torch has no oneDNN")
def test_the_capacity_of_onednns_cache_is_not_left_to_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(products.CAPACITY, raising=False)
    products.bound_cache.__wrapped__()
    assert products.CAPACITY not in os.environ
    monkeypatch.setenv(products.CAPACITY, "7")
    products.bound_cache.__wrapped__()
    assert os.environ[products.CAPACITY] == "7"


@pytest.mark.skipif(not has_onednn, reason="this torch has no oneDNN")
@pytest.mark.parametrize("tiles", [True, False])
def test_the_capacity_of_onednns_cache_by_what_its_code_takes(monkeypatch: pytest.MonkeyPatch, tiles: bool) -> None:
    seen = []
    monkeypatch.delenv(products.CAPACITY, raising=False)
    monkeypatch.setattr(products, "has_tiles", lambda: tiles)
    first = SimpleNamespace(_linear_pointwise=lambda *_: seen.append(os.environ[products.CAPACITY]))
    monkeypatch.setattr(torch.ops, "mkldnn", first)
    products.bound_cache.__wrapped__()
    assert seen == [str(products.CACHED_FOR_TILES if tiles else products.CACHED)]


def test_a_torch_without_onednn_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    monkeypatch.setattr(torch.ops, "mkldnn", None)
    products.bound_cache.__wrapped__()


@settings(max_examples=200)
@given(count=st.integers(1, 1 << 20))
def test_few_sizes_is_above_by_a_sixteenth_at_most(count: int) -> None:
    size = few_sizes(count)
    assert count <= size < count + max(products.MIN_ROWS, count / 16 + 1)
    assert few_sizes(size) == size


def test_there_are_sixteen_sizes_between_a_power_of_two_and_the_next() -> None:
    for power in (64, 1024, 1 << 14):
        assert len({few_sizes(count) for count in range(power, 2 * power)} - {power}) == 16


@pytest.mark.parametrize(("family", "small"), [("25", False), ("26", True), ("6", True)])
def test_zen_4_leaves_small_matrices_to_torch(family: str, small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"vendor_id\t: some\ncpu family\t: {family}\nmodel\t\t: 25\n"
    monkeypatch.setattr(products, "use_onednn", lambda: True)
    monkeypatch.setattr(products, "_processor", lambda: text)
    monkeypatch.setattr(products, "halves_avx512", products.halves_avx512.__wrapped__)
    assert products._suits(drawn(64, 256), drawn(256, 512)) is small
    assert products._suits(drawn(64, 576), drawn(576, 1536))
