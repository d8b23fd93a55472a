"""One process of several updates, saves and continuations: `python sharding_worker.py FOLDER STRATEGY CASE ...`.

FOLDER/STRATEGY_RANK.pt gets, by case, what this process has; FOLDER/STRATEGY-CASE-FORM are what its policies saved.
"""

import asyncio
import sys
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from troupe.algorithms.objectives import ClippedObjective
from troupe.experience import Sample
from troupe.models.bases.tiny import build_model, build_tokenizer
from troupe.models.learning.adapters import AdapterModule, attach
from troupe.models.learning.policy import PolicyModule, keep_float64
from troupe.models.learning.settings import LoraSettings, UpdateSettings
from troupe.models.learning.train_config import PolicyTrainConfig
from troupe.models.learning.zero import in_zero3, torch_optimizer
from troupe.models.pools.fabrics import fabric_of, launch
from troupe.models.pools.pool import Pool
from troupe.models.pools.strategies import DeepSpeed, Fsdp2, StrategySettings

FORMS = {"fsdp2": ("sharded", "gathered"), "single_device": ("gathered",), "zero2": ("sharded",), "zero3": ("sharded",)}
CASES: dict[str, dict[str, Any]] = {
    "full": {"precision": "64-true"},
    "full32": {"precision": "32-true"},
    "kl": {"precision": "64-true", "kl": 0.1, "gradient_checkpointing": True},
    "lora": {"precision": "64-true", "kl": 0.1, "lora": True},
    "unclipped32": {"precision": "32-true", "clip_norm": 1e9},
    "kl32": {"precision": "32-true", "kl": 0.1, "gradient_checkpointing": True},
    "lora32": {"precision": "32-true", "kl": 0.1, "lora": True},
}
POLICIES = {case: ["p", "q"] if "lora" in keys else ["p"] for case, keys in CASES.items()}
SETTINGS: dict[str, dict[str, Any]] = {
    "fsdp2": {"strategy": Fsdp2(), "devices": 2},
    "single_device": {"devices": 1},
    "zero2": {"strategy": DeepSpeed(2), "devices": 2},
    "zero3": {"strategy": DeepSpeed(3), "devices": 2},
}


def base_model(dtype: torch.dtype) -> PreTrainedModel:
    """Three layers of odd widths, so that no tensor divides evenly, with norms that are exact in float64."""
    model = build_model(build_tokenizer([f"w{i}" for i in range(21)]), hidden=20, layers=3, heads=2, seed=0)
    keep_float64(model)
    return model.to(dtype)


def pool(
    strategy: str,
    form: str,
    precision: str,
    kl: float = 0.0,
    lora: bool = False,
    clip_norm: float = 0.05,
    **keys: Any,
) -> Pool:
    settings = StrategySettings(accelerator="cpu", precision=precision, **SETTINGS[strategy], **keys)
    fabric = fabric_of(settings)
    ranks = launch(fabric)
    double = precision == "64-true"
    # Adam divides by a gradient's size, so that in float32 the last bits of a small gradient are whole steps.
    optimizer = partial(torch.optim.AdamW, lr=1e-2) if double else partial(torch.optim.SGD, lr=0.05, momentum=0.9)
    config = PolicyTrainConfig(
        objective=ClippedObjective(kl=kl),
        optimizer=optimizer,
        scheduler=partial(torch.optim.lr_scheduler.LinearLR, start_factor=1.0, end_factor=0.1, total_iters=5),
        temperature=0.7,
        update=UpdateSettings(max_tokens=40, clip_norm=clip_norm, mini_batches=2, epochs=2),
    )
    model = base_model(torch.float64 if double else torch.float32)
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    module = PolicyModule(model, {"p": config})
    if lora:
        adapters = {name: LoraSettings(r=4, alpha=8, targets="all-linear") for name in ("p", "q")}
        adapted = attach(model, "base", adapters, {"p": 1, "q": 2})
        module = AdapterModule(adapted, dict.fromkeys(adapters, config))
    return Pool(module, fabric, ranks=ranks, gathered=form == "gathered")


def groups(seed: int) -> list[list[Sample]]:
    """Five groups of three; every group has a gradient."""
    rng = Random(seed)

    def sample(prompt: tuple[int, ...], advantage: float) -> Sample:
        answer = tuple(rng.randrange(1, 24) for _ in range(rng.randint(1, 6)))
        logprobs = tuple(-rng.randint(16, 28) / 8 for _ in answer)
        return Sample("p", prompt, answer, logprobs, advantage, weight=1 / 15)

    prompts = [tuple(rng.randrange(4, 24) for _ in range(rng.randint(2, 9))) for _ in range(5)]
    return [[sample(prompt, advantage) for advantage in (-1.0, 0.0, 1.5)] for prompt in prompts]


def local_bytes(values: list[Any]) -> int:
    """What tensors hold in this process."""
    tensors = [value.to_local() if isinstance(value, DTensor) else value for value in values]
    tensors += [value.ds_tensor for value in values if in_zero3(value)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


async def played(folder: Path, strategy: str, case: str, form: str) -> dict[str, Any]:
    names, make = POLICIES[case], partial(pool, strategy, form, **CASES[case])
    ours = make()
    sizes: dict[str, int] = {}

    def note(optimizer: Any, *_: Any) -> None:
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        sizes["gradients"] = local_bytes([each.grad for each in parameters])

    with torch_optimizer(ours.policies["p"].learner.optimizer) as inner:
        inner.register_step_pre_hook(note)
    metrics = [await ours.update({name: groups(seed) for name in names}) for seed in (1, 2)]
    states = inner.state.values()
    sizes["optimizer"] = local_bytes([v for state in states for v in state.values() if torch.is_tensor(v) and v.dim()])
    sizes["weights"] = local_bytes(list(ours.module.module.model.parameters()))
    for name in names:
        if ours.policies[name].sharded or ours.ranks.first:
            ours.policies[name].save(folder / f"{strategy}-{case}-{form}" / name)
    learnt = {name: dict(await ours.policies[name].weights()) for name in names}
    learnt = {name: {key: value.clone() for key, value in weights.items()} for name, weights in learnt.items()}
    await ours.update({name: groups(3) for name in names})
    resumed = make()
    for name in names:
        resumed.policies[name].restore(folder / f"{strategy}-{case}-{form}" / name)
    await resumed.update({name: groups(3) for name in names})
    states = [{name: each.policies[name].state_dict() for name in names} for each in (ours, resumed)]
    return {"metrics": metrics, "learnt": learnt, "undisturbed": states[0], "resumed": states[1], "bytes": sizes}


if __name__ == "__main__":
    folder, strategy, *cases = Path(sys.argv[1]), *sys.argv[2:]
    found = {
        f"{case}-{form}": asyncio.run(played(folder, strategy, case, form))
        for case in cases
        for form in FORMS[strategy]
    }
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    torch.save(found, folder / f"{strategy}_{rank}.pt")
