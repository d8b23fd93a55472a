"""Updates that run out of memory: torch's own allocator fails, in the passes whose batches exceed a bound."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from troupe.kernels.memory import UpdateMemoryError, out_of_memory
from troupe.models.pools.pool import Policy

from ..conftest import Groups, Tiny, equal, full_policy, learn, model_of, weights_of

Pass = Literal["forward", "backward", "scoring"]
UPDATE = {"mini_batches": 2, "epochs": 2, "max_tokens": 160, "mismatch_share": 1.0}


def exhaust(_: Any = None) -> None:
    torch.empty(1 << 60, dtype=torch.uint8)


def bound_memory(policy: Policy, tokens: int, where: Pass) -> list[int]:
    """Let passes ``where`` fail on more than ``tokens`` tokens; returns the sizes of all passes, as they come."""
    sizes: list[int] = []

    def embedded(module: torch.nn.Module, arguments: tuple[Tensor], output: Tensor) -> None:
        sizes.append(arguments[0].numel())
        if sizes[-1] <= tokens or torch.is_grad_enabled() == (where == "scoring"):
            return
        if where == "backward":
            output.register_hook(exhaust)
        else:
            exhaust()

    model_of(policy).model.embed_tokens.register_forward_hook(embedded)
    return sizes


@pytest.mark.parametrize("where", ["forward", "backward", "scoring"])
async def test_the_gradient_does_not_depend_on_how_often_memory_lacked(
    tiny: Tiny, groups: Callable[..., Groups], where: Pass
) -> None:
    build = partial(full_policy, **UPDATE)
    roomy, small = build(tiny(torch.float64)), build(tiny(torch.float64))
    origin = weights_of(model_of(roomy))
    sizes = bound_memory(small, 50, where)
    expected, metrics = await learn(roomy, groups(8)), await learn(small, groups(8))
    moved = weights_of(model_of(roomy)) - origin
    difference = weights_of(model_of(small)) - weights_of(model_of(roomy))
    assert moved.norm() > 1e-2 and difference.norm() <= 1e-9 * moved.norm()
    assert small.learner.max_tokens == 40 and max(sizes) > 50
    assert (expected.pop("faults/oom_splits"), metrics.pop("faults/oom_splits")) == (0, 2)
    del expected["update_s"], metrics["update_s"]
    assert metrics == pytest.approx(expected, rel=1e-9)
    assert all(p.grad is None for p in model_of(small).parameters())


async def test_the_split_is_kept_and_a_continued_run_has_it(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    first, other = (full_policy(tiny(), **UPDATE) for _ in range(2))
    bound_memory(first, 50, "backward")
    assert (await learn(first, groups(8)))["faults/oom_splits"] == 2
    other.load_state_dict(first.state_dict())
    sizes = bound_memory(first, 1 << 20, "forward"), bound_memory(other, 1 << 20, "forward")
    for policy in (first, other):
        assert (await learn(policy, groups(8, seed=1)))["faults/oom_splits"] == 0
    assert sizes[0] == sizes[1] and max(sizes[0]) <= 40
    assert equal(first.state_dict(), other.state_dict())


@pytest.mark.slow
async def test_an_update_that_no_split_can_help_ends_in_one_sentence(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    policy = full_policy(tiny(), **UPDATE | {"mini_batches": 1})
    before, given = weights_of(model_of(policy)), groups(8)
    longest = max(len(sample.prompt_ids) + len(sample.token_ids) - 1 for group in given for sample in group)
    sizes = bound_memory(policy, longest - 1, "forward")
    with pytest.raises(UpdateMemoryError, match=rf"policy 'p'.*{longest} tokens.*DefaultCPUAllocator"):
        await learn(policy, given)
    assert longest in sizes
    assert torch.equal(weights_of(model_of(policy)), before)
    assert all(p.grad is None for p in model_of(policy).parameters())


async def test_an_optimizer_that_memory_does_not_hold_ends_in_one_sentence(
    tiny: Tiny, groups: Callable[..., Groups]
) -> None:
    policy = full_policy(tiny(), **UPDATE)
    policy.learner.optimizer.register_step_pre_hook(lambda *_: exhaust())
    with pytest.raises(UpdateMemoryError, match=r"policy 'p': the optimizer is out of memory.*DefaultCPUAllocator"):
        await learn(policy, groups(8))
    assert policy.version == 0 and policy.learner.max_tokens == UPDATE["max_tokens"]
    assert all(p.grad is None for p in model_of(policy).parameters())


async def test_other_errors_are_not_taken_for_a_lack_of_memory(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    policy = full_policy(tiny(), **UPDATE)

    def fail(*_: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    model_of(policy).model.embed_tokens.register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        await learn(policy, groups(8))
    assert policy.learner.max_tokens == UPDATE["max_tokens"]


def test_what_is_out_of_memory() -> None:
    with pytest.raises(RuntimeError) as raised:
        exhaust()
    for error in (raised.value, MemoryError(), torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")):
        assert out_of_memory(error)
    assert not out_of_memory(RuntimeError("shape mismatch"))
