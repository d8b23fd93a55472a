"""The alarm `mismatch` of a torch engine beside a learner, each as in a run: none where both compute what the model
computes, in whatever precision, and one where the engine is a little wrong.
"""

import asyncio
import copy
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from troupe.diagnostics.settings import AlarmSettings
from troupe.experience import Request, Sample, Sampling
from troupe.models.bases.tiny import build_tokenizer
from troupe.models.learning.policy import PolicyModule
from troupe.models.pools.fabrics import fabric_of
from troupe.models.pools.pool import Pool
from troupe.models.pools.strategies import StrategySettings
from troupe.models.pools.team import Team
from troupe.rollout.engines.plain_pass import FACTOR
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.policy_client import PolicyClient
from troupe.runs.metrics import update_metrics

from ..models.conftest import train_config
from ..rollout.engines.torch.conftest import VOCABULARY, biased, build, decoder, qwen3
from .conftest import Raised

Spoil = Callable[[TorchEngine], None]
Row = dict[str, float]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer([f"w{i}" for i in range(VOCABULARY - 4)])


async def train(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    dtype: str = "float32",
    precision: str = "32-true",
    temperature: float = 1.0,
    spoil: Spoil = lambda engine: None,
) -> list[Row]:
    """The metrics of five updates, with a learning rate of 1e-6, of what an engine in ``dtype`` sampled."""
    strategy = StrategySettings(accelerator="cpu", devices=1, precision=precision)
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer, dtype=dtype)
    spoil(engine)
    config = train_config(optimizer=partial(torch.optim.AdamW, lr=1e-6), temperature=temperature)
    pool = Pool(PolicyModule(model, {"p": config}), fabric_of(strategy), seed=0)
    sampling = Sampling(max_tokens=8, temperature=temperature)
    client = PolicyClient("p", engine, tokenizer, 96, sampling)
    team = Team(pool.policies, {"p": engine}, {}, {"plan": client}, {}, coarseness={"p": strategy.coarseness()})
    await team.load_weights()
    rng, rows = Random(0), []
    for iteration in range(5):
        prompts = [tuple(rng.randrange(4, VOCABULARY) for _ in range(rng.randint(2, 60))) for _ in range(8)]
        requests = [Request("p", prompt, 4, sampling, i, (iteration, i)) for i, prompt in enumerate(prompts)]
        groups = []
        for prompt, completions in zip(prompts, await asyncio.gather(*map(engine.generate, requests)), strict=True):
            said = [(c.token_ids, c.logprobs, rng.choice((-1, 1)), 1 / 32, "plan", 0) for c in completions]
            groups.append([Sample("p", prompt, *each, version=iteration) for each in said])
        rows.append(update_metrics(await team.update({"p": groups}, iteration, in_order=False), {}))
        await team.load_weights()
    await team.close()
    return rows


def settings_of(raised: Raised, rows: list[Row]) -> list[str]:
    return [alarm.setting for alarm in raised(rows)]


@pytest.mark.parametrize("architecture", [qwen3, biased])
@pytest.mark.parametrize(
    ("dtype", "precision", "temperature"),
    [
        ("float32", "32-true", 1.0),
        pytest.param("float32", "32-true", 0.5, marks=pytest.mark.slow),
        pytest.param("bfloat16", "32-true", 1.0, marks=pytest.mark.slow),
        ("float32", "bf16-mixed", 1.0),
    ],
)
async def test_rounding_alone_raises_none(
    architecture: Callable[..., PreTrainedModel],
    dtype: str,
    precision: str,
    temperature: float,
    tokenizer: PreTrainedTokenizerFast,
    raised: Raised,
) -> None:
    rows = await train(build(architecture), tokenizer, dtype, precision, temperature)
    assert all(row["mismatch/plan/roundings"] > 0.1 for row in rows), "else the bound would find little"
    assert settings_of(raised, rows) == []


def lagging(engine: TorchEngine) -> None:
    """It has the weights of the version before."""
    load, former = engine.load, []

    async def late(policy: str, weights: Mapping[str, Tensor], version: int) -> Mapping[str, float]:
        former.append(copy.deepcopy(dict(weights)))
        return await load(policy, former[max(0, len(former) - 2)], version)

    engine.load = late  # type: ignore[method-assign]


def shifted(engine: TorchEngine) -> None:
    """It reads every token one position further than it is, which it did not while its model was tested."""
    forward: Any = decoder(engine).forward
    step = forward.step
    forward.step = lambda cache, tokens, positions: step(cache, tokens, positions + 1)


@pytest.mark.parametrize("architecture", [qwen3, biased])
@pytest.mark.parametrize(
    ("spoil", "dtype"),
    [
        (lagging, "float32"),
        pytest.param(shifted, "float32", marks=pytest.mark.slow),
        (shifted, "bfloat16"),  # whose roundings are larger
    ],
)
async def test_an_engine_that_is_wrong_raises_one(
    architecture: Callable[..., PreTrainedModel],
    spoil: Spoil,
    dtype: str,
    tokenizer: PreTrainedTokenizerFast,
    raised: Raised,
) -> None:
    rows = await train(build(architecture), tokenizer, dtype, spoil=spoil)
    assert "diagnostics.alarms.mismatch_roundings" in settings_of(raised, rows)
    if spoil is lagging:
        assert max(row["mismatch/plan/k3_nats"] for row in rows) < 1e-6


def test_the_bound_is_that_of_the_gates() -> None:
    assert AlarmSettings().mismatch_roundings == FACTOR
