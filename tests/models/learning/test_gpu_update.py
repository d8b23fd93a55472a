"""An update of adapters on a GPU: what it computes, and that it never waits for the GPU within a pass."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from troupe.models.learning.adapters import AdapterModule, attach, without_peft_warnings
from troupe.models.learning.optimizer_steps import use_fused_steps
from troupe.models.learning.settings import LoraSettings
from troupe.models.learning.update_stats import peak
from troupe.models.pools.fabrics import fabric_of
from troupe.models.pools.pool import Pool
from troupe.models.pools.strategies import StrategySettings

from ..conftest import Groups, Tiny, train_config

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings(
        "ignore:The .grad attribute of a Tensor that is not a leaf",
        "ignore:`torch.jit.script_method` is deprecated",
        "ignore:Synchronization debug mode is a prototype",
    ),
]
LORA = {"p": LoraSettings(r=4, alpha=8, targets="all-linear")}


def pool(tiny: Tiny, device: str) -> Pool:
    """Adapters in float32 on a base in bfloat16."""
    optimizer = partial(torch.optim.AdamW, lr=1e-2)
    with without_peft_warnings():
        module = AdapterModule(
            attach(tiny(torch.bfloat16), "nowhere", LORA, {"p": 1}), {"p": train_config(optimizer=optimizer)}
        )
    settings = StrategySettings(accelerator=device, devices=1, precision="bf16-mixed")
    return Pool(module, fabric_of(settings))


def weights(ours: Pool) -> torch.Tensor:
    return torch.cat([each.float().cpu().flatten() for each in ours.module.weights("p").values()])


async def test_updates_are_those_of_a_cpu(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    moved = []
    for device in ("cpu", "cuda"):
        ours = pool(tiny, device)
        before = weights(ours)
        for seed in range(3):
            metrics = (await ours.update({"p": groups(seed=seed)}))["p"]
        moved.append(weights(ours) - before)
        optimizer: Any = ours.policies["p"].learner.optimizer
        assert [group["fused"] for group in optimizer.param_groups] == [True if device == "cuda" else None]
        assert {each.dtype for state in optimizer.state.values() for each in state.values()} == {torch.float32}
        assert (metrics.get("mfu", 0) > 0) == (peak(torch.device(device)) is not None)
    assert torch.nn.functional.cosine_similarity(*moved, dim=0) > 0.9


async def test_no_pass_waits_for_the_gpu(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    ours = pool(tiny, "cuda")
    await ours.update({"p": groups()})  # compiles
    learner = ours.policies["p"].learner
    [step] = learner._mini_batches(groups())
    assert len(list(learner._micro_batches(step))) > 1
    torch.cuda.set_sync_debug_mode("error")
    try:
        learner._backward(step, {})
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_an_optimizer_that_says_how_it_steps_is_left_alone() -> None:
    weight = torch.nn.Parameter(torch.ones(3, device="cuda"))
    for chosen in ({"foreach": True}, {"fused": False}):
        optimizer = torch.optim.AdamW([weight], **chosen)
        use_fused_steps(optimizer)
        assert not optimizer.param_groups[0]["fused"]
    sgd = torch.optim.SGD([weight], lr=0.1)
    use_fused_steps(sgd)
    assert sgd.param_groups[0]["fused"] is None
