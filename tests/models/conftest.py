"""A tiny Qwen3, samples of many lengths, a pool with one policy, and its log-probabilities written plainly."""

import copy
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from troupe.algorithms.objectives import ClippedObjective
from troupe.experience import Sample
from troupe.models.bases.tiny import build_model, build_tokenizer
from troupe.models.learning.policy import PolicyModule, keep_float64
from troupe.models.learning.settings import UpdateSettings
from troupe.models.learning.train_config import PolicyTrainConfig
from troupe.models.pools.pool import Policy, Pool

Groups = list[list[Sample]]
Tiny = Callable[..., Qwen3ForCausalLM]
Plain = Callable[[Qwen3ForCausalLM, Sample, float], Tensor]

TEMPERATURE = 0.7
SGD = partial(torch.optim.SGD, lr=0.5)
CONSTANT = partial(torch.optim.lr_scheduler.ConstantLR, factor=1.0, total_iters=0)
PRECISION = {torch.float64: "64-true", torch.float32: "32-true"}


def train_config(
    objective: Any = None,
    optimizer: Any = SGD,
    scheduler: Any = CONSTANT,
    temperature: float = TEMPERATURE,
    **update: Any,
) -> PolicyTrainConfig:
    """By default a single step on whole gradients, of small micro-batches."""
    return PolicyTrainConfig(
        objective=objective or ClippedObjective(),
        optimizer=optimizer,
        scheduler=scheduler,
        temperature=temperature,
        update=UpdateSettings(**({"max_tokens": 40, "clip_norm": 1e9} | update)),
    )


def full_policy(
    model: Qwen3ForCausalLM, *, name: str = "p", precision: str | None = None, seed: int = 0, **config: Any
) -> Policy:
    """The policy that has all weights of ``model``, in a pool of its own."""
    fabric = L.Fabric(accelerator="cpu", devices=1, precision=precision or PRECISION[model.dtype])
    return Pool(PolicyModule(model, {name: train_config(**config)}), fabric, seed=seed).policies[name]


async def learn(policy: Policy, groups: Groups) -> dict[str, float]:
    """The metrics of an update of this policy alone."""
    return (await policy.pool.update({policy.name: groups}))[policy.name]


def model_of(policy: Policy) -> Qwen3ForCausalLM:
    model: Qwen3ForCausalLM = policy.pool.module.model
    return model


def weights_of(model: Qwen3ForCausalLM) -> Tensor:
    """(parameters,) a copy of all weights in a row."""
    return torch.cat([p.detach().flatten().clone() for p in model.parameters()])


def perturb(model: Qwen3ForCausalLM) -> Qwen3ForCausalLM:
    """``model`` with all weights moved, by the same random step for the same shapes."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
    return model


def snapshot(policy: Policy) -> dict[str, Any]:
    return copy.deepcopy(policy.state_dict())


def equal(one: Any, other: Any) -> bool:
    """Equal bit for bit, through dictionaries and lists."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return torch.equal(one, other) if isinstance(one, Tensor) else bool(one == other)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer([f"w{i}" for i in range(20)])


@pytest.fixture(scope="session")
def tiny(tokenizer: PreTrainedTokenizerFast) -> Tiny:
    """Two layers, 16 wide, with weights large enough that its distributions are far from uniform.

    In float64 its norms are torch's: those of transformers round to float32 within.
    """

    def build(dtype: torch.dtype = torch.float32, seed: int = 0) -> Qwen3ForCausalLM:
        model = build_model(tokenizer, hidden=16, layers=2, heads=2, seed=seed)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
        keep_float64(model)
        return model.to(dtype)

    return build


@pytest.fixture(scope="session")
def groups() -> Callable[..., Groups]:
    """``count`` groups of ``k`` samples of many lengths; every fifth advantage is 0.

    Advantages, weights and log-probabilities are exact in float32, which a TokenBatch holds them in, if ``count * k``
    is a power of 2.
    """

    def build(count: int = 4, k: int = 4, seed: int = 0) -> Groups:
        rng = Random(seed)

        def sample(prompt: tuple[int, ...], index: int) -> Sample:
            answer = tuple(rng.randrange(1, 24) for _ in range(rng.randint(1, 6)))
            return Sample(
                policy="p",
                prompt_ids=prompt,
                token_ids=answer,
                behaviour_logprobs=tuple(-rng.randint(1, 40) / 8 for _ in answer),
                advantage=0.0 if index % 5 == 4 else rng.choice([-12, -7, -3, 2, 5, 13]) / 8,
                weight=1 / (count * k),
            )

        prompts = [tuple(rng.randrange(4, 24) for _ in range(rng.randint(2, 9))) for _ in range(count)]
        return [[sample(prompt, i * k + j) for j in range(k)] for i, prompt in enumerate(prompts)]

    return build


@pytest.fixture
def plain_logprobs() -> Plain:
    """(completion tokens,) nats: one sequence at a time, no padding, the whole forward of transformers."""

    def compute(model: Qwen3ForCausalLM, sample: Sample, temperature: float) -> Tensor:
        ids = torch.tensor([[*sample.prompt_ids, *sample.token_ids]])
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0]
        start = len(sample.prompt_ids)
        return torch.stack(
            [(logits[start + i - 1] / temperature).log_softmax(-1)[token] for i, token in enumerate(sample.token_ids)]
        )

    return compute
