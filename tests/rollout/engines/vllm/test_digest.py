"""The digest of a tensor against the same in plain integers, and what accidents it notices."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256, shake_256

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from troupe.rollout.engines.vllm import digest as module
from troupe.rollout.engines.vllm.digest import WORDS, WeightsMismatchError, compare, digest, digests

BLOCK = 2 * WORDS
"""Numbers of float32 in a block."""
WIDTHS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}


def plainly(tensor: Tensor, dtype: torch.dtype) -> str:
    """The definition, one word after the other, in integers without bounds."""
    known = shake_256(b"troupe").digest(16 * WORDS)
    keys = [int.from_bytes(known[at : at + 8], "little") for at in range(0, len(known), 8)]
    values = tensor.to(dtype) + 0.0
    data = bytes(values.contiguous().view(-1).view(torch.uint8).tolist())
    data += bytes(-len(data) % (8 * WORDS))
    hashed = sha256(f"{dtype} {tuple(tensor.shape)}".encode())
    for start in range(0, len(data), 8 * WORDS):
        for row in (keys[:WORDS], keys[WORDS:]):
            total = 0
            for place, key in enumerate(row):
                at = start + 8 * place
                t = (int.from_bytes(data[at : at + 8], "little") + key) % 2**64
                high = (t >> 32) - (2**32 if t >= 2**63 else 0)  # torch shifts signed numbers
                total += t * high
            hashed.update((total % 2**64).to_bytes(8, "little"))
    return hashed.hexdigest()


@contextmanager
def at_a_time(blocks: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CACHE_BLOCKS", blocks)
        yield


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# ---- what it is ----------------------------------------------------------------------------------------------------


def test_the_digest_of_a_small_tensor_is_this_one() -> None:
    """Worked out by ``plainly``; the same for every version of torch and on every machine."""
    tensor = torch.tensor([[1.0, -2.0, 0.5], [3.0, -0.0, 1e-3]])
    assert digest(tensor, torch.float32) == "66ffe2115847cccac65168b0c8cb4a468ae6f5bfd8731477f8d800535804fde6"
    assert digest(tensor, torch.bfloat16) == "a8f9baf11f13194247a311e720f0f7158a65aa575739f4b0543b5bfaa3ec0eae"


@pytest.mark.parametrize("dtype", list(WIDTHS))
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (5, 7), (BLOCK,), (2, BLOCK + 3)])
def test_it_is_what_plain_integers_give(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    assert digest(random(*shape), dtype) == plainly(random(*shape), dtype)


@settings(max_examples=40)
@given(
    length=st.integers(0, 5 * BLOCK),
    blocks=st.integers(1, 6),
    threads=st.integers(1, 3),
    dtype=st.sampled_from(list(WIDTHS)),
)
def test_how_much_is_computed_at_a_time_and_by_how_many_does_not_matter(
    length: int, blocks: int, threads: int, dtype: torch.dtype
) -> None:
    tensor, before = random(length), torch.get_num_threads()
    expected = digest(tensor, dtype)
    try:
        torch.set_num_threads(threads)
        with at_a_time(blocks):
            assert digest(tensor, dtype) == expected
    finally:
        torch.set_num_threads(before)


@settings(max_examples=40)
@given(rows=st.integers(1, 90), columns=st.integers(1, 400), dtype=st.sampled_from(list(WIDTHS)))
def test_where_the_numbers_lie_does_not_matter(rows: int, columns: int, dtype: torch.dtype) -> None:
    tensor = random(rows, columns)
    expected = digest(tensor, dtype)
    apart = torch.full((rows + 1, 2 * columns + 1), torch.nan)
    apart[1:, 1::2] = tensor
    assert digest(apart[1:, 1::2], dtype) == digest(tensor.t().contiguous().t(), dtype) == expected
    assert digest(tensor.to(dtype), dtype) == digest(tensor.to(dtype).requires_grad_(), dtype) == expected


def test_it_is_of_shape_and_values_in_the_engines_precision() -> None:
    tensor = torch.tensor([[1.0, -0.0], [2.0, 3.0]])
    assert digest(tensor, torch.float32) == digest(tensor.abs(), torch.float32)
    assert digest(tensor, torch.float32) != digest(tensor.view(4), torch.float32)
    assert digest(torch.zeros(3), torch.float32) != digest(torch.zeros(4), torch.float32)
    assert digest(torch.zeros(4), torch.bfloat16) != digest(torch.zeros(4), torch.float16)
    tiny = torch.tensor([-1e-45])  # is -0 in bfloat16
    assert digest(tiny, torch.bfloat16) == digest(torch.zeros(1), torch.bfloat16)
    nearly = tensor * (1 + 1e-5)
    assert digest(tensor, torch.float32) != digest(nearly, torch.float32)
    assert digest(tensor, torch.bfloat16) == digest(nearly, torch.bfloat16)


# ---- what it notices -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", list(WIDTHS))
def test_every_single_bit_is_noticed(dtype: torch.dtype) -> None:
    tensor = random(37).to(dtype)
    seen = {digest(tensor, dtype)}
    bits = 8 * dtype.itemsize
    for place in range(len(tensor)):
        for bit in range(bits):
            flipped = tensor.clone()
            flipped.view(WIDTHS[dtype])[place] ^= -(2 ** (bits - 1)) if bit == bits - 1 else 1 << bit
            seen.add(digest(flipped, dtype))
    assert len(seen) == 1 + bits * len(tensor)


@settings(max_examples=60)
@given(
    order=st.permutations(range(24)).filter(lambda order: order != sorted(order)),
    width=st.sampled_from([1, 2, 3, 64, BLOCK]),
    dtype=st.sampled_from(list(WIDTHS)),
)
def test_every_other_order_of_rows_is_noticed(order: list[int], width: int, dtype: torch.dtype) -> None:
    tensor = torch.arange(1.0, 25.0)[:, None] + torch.zeros(width)  # in which no two rows are alike
    assert digest(tensor[order], dtype) != digest(tensor, dtype)


@settings(max_examples=60)
@given(
    places=st.lists(st.integers(0, 3 * BLOCK - 1), min_size=1, max_size=6, unique=True),
    change=st.sampled_from([-(2**31), 1, 1 << 16, 1 << 23]),
)
def test_changes_that_a_plain_sum_would_lose_are_noticed(places: list[int], change: int) -> None:
    """Of signs, in pairs; and one number up, another one down."""
    tensor = random(3 * BLOCK)
    changed = tensor.clone()
    for index, place in enumerate(places):
        changed.view(torch.int32)[place] += change if index % 2 else -change
    assert digest(changed, torch.float32) != digest(tensor, torch.float32)


@pytest.mark.parametrize("by", [1, 2, 3, BLOCK - 1, BLOCK, 2 * BLOCK])
def test_a_shift_is_noticed(by: int) -> None:
    tensor = random(4 * BLOCK)
    assert digest(tensor.roll(by), torch.float32) != digest(tensor, torch.float32)
    assert digest(-tensor, torch.float32) != digest(tensor, torch.float32)


def test_changes_of_unlike_places_are_told_apart() -> None:
    """The same number, put into a tensor of zeros, anywhere in two blocks."""
    tensor, seen = torch.zeros(2 * BLOCK), set()
    for place in range(0, 2 * BLOCK, 16):
        tensor[place] = 1.0
        seen.add(digest(tensor, torch.float32))
        tensor[place] = 0.0
    assert len(seen) == 2 * BLOCK // 16


# ---- the comparison ------------------------------------------------------------------------------------------------


def test_tensors_of_equal_size_under_each_others_names_are_named() -> None:
    weights = {"q": random(8, 8), "k": random(8, 8, seed=1), "v": random(8, 8, seed=2)}
    expected = digests(weights.items(), torch.float32)
    compare("plan", expected, digests(weights.items(), torch.float32))
    swapped = weights | {"q": weights["k"], "k": weights["q"]}
    with pytest.raises(WeightsMismatchError, match=r"policy 'plan'.*: q, k differ$"):
        compare("plan", expected, digests(swapped.items(), torch.float32))


def test_tensors_that_one_side_lacks_are_named() -> None:
    with pytest.raises(WeightsMismatchError, match="a are missing in the engine; b are unknown to the learner"):
        compare("plan", {"a": "1"}, {"b": "1"})
