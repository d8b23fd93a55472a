"""Engines of an evaluation: adapters on one base share it, and say what each would say in an engine of its own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from troupe.envs.couplet.world import Couplet
from troupe.evaluation.assignment import LocalPolicy
from troupe.evaluation.conditions import Condition, Played
from troupe.evaluation.episodes import PolicyActor
from troupe.evaluation.request import EvalRequest
from troupe.experience import Completion, Sampling
from troupe.models.bases import loading
from troupe.models.bases.loading import load_model, load_tokenizer
from troupe.models.learning import adapters
from troupe.models.learning.adapters import attach, export, parameters
from troupe.models.learning.settings import LoraSettings
from troupe.rollout.playing import gather
from troupe.setup.evaluation import run_conditions
from troupe.setup.evaluation_actors import ActorFactory

BASE = "laptop_couplet"
ENGINE = {"_target_": "troupe.rollout.engines.torch.engine.TorchEngine", "_partial_": True, "lockstep": True}
SAMPLING = Sampling(max_tokens=8)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The adapters of two runs' policies ``first``, each with its tokenizer, as checkpoints have them."""
    path = tmp_path_factory.mktemp("adapters")
    settings = {name: LoraSettings(r=2, alpha=4) for name in ("one", "other")}
    whole = attach(load_model(BASE), BASE, settings, {"one": 1, "other": 2})
    for name in settings:
        generator = torch.Generator().manual_seed(len(name))
        with torch.no_grad():
            for parameter in parameters(whole, name):
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
        export(whole, name, path / name, adapters.weights(whole, name))
        load_tokenizer(BASE).save_pretrained(path / name)
    return [path / name for name in settings]


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that were loaded."""
    found: list[str] = []
    really = loading.AutoModelForCausalLM.from_pretrained

    def counted(place: str, *args: Any, **kwargs: Any) -> Any:
        found.append(Path(place).name)
        return really(place, *args, **kwargs)

    monkeypatch.setattr(loading.AutoModelForCausalLM, "from_pretrained", counted)
    return found


def weights(base: Path | str, policy: str = "first", base_model: str | None = BASE) -> LocalPolicy:
    return LocalPolicy("checkpoint", policy, str(base), SAMPLING, base_model, configured_as=policy)


async def answers(factory: ActorFactory, policies: Sequence[LocalPolicy]) -> list[list[Completion]]:
    """Four answers of each policy to one prompt, all asked at once."""
    world = Couplet()
    world.reset(world.tasks("test", 1, 0)[0])
    actors = [factory.actor(policy, "own") for policy in policies]
    asked = []
    for place, actor in enumerate(actors):
        assert isinstance(actor, PolicyActor)
        client = actor.client
        prompt = client.encode("first", "task", world.observe("first"))
        asked.append(client.generate(prompt, 4, 7, ("task", place)))
    return await gather(*asked)


async def test_an_evaluation_loads_the_base_of_two_adapters_once(folders: list[Path], loads: list[str]) -> None:
    world = Couplet(horizon=1)
    assignment = dict(zip(world.agents, map(weights, folders), strict=True))
    tasks = world.tasks("test", 2, 0)
    conditions = [Condition("sampled", {}, world, tasks, assignment, temperature, 1) for temperature in ("own", 0)]
    request = EvalRequest(checkpoint="last", split="test", tasks=2, samples=1, temperature=("own", 0), seed=0)
    results = await run_conditions(request, conditions, ActorFactory(ENGINE), played := Played())
    assert [len(result.samples[0]) for result in results] == [2, 2]
    assert played == Played(episodes=4, messages=8)
    assert loads == ["laptop_couplet"]


async def test_one_engine_answers_as_engines_apart(folders: list[Path], loads: list[str]) -> None:
    policies = [*map(weights, folders), weights(BASE, "base", None)]
    alone = []
    for policy in policies:
        factory = ActorFactory(ENGINE)
        alone += await answers(factory, [policy])
        await factory.close()
    assert loads == ["laptop_couplet"] * 3
    loads.clear()
    factory = ActorFactory(ENGINE)
    factory.prepare(policies)
    assert loads == ["laptop_couplet"]
    beside = await answers(factory, policies)
    await factory.close()
    assert loads == ["laptop_couplet"]
    for one, other in zip(beside, alone, strict=True):
        spoken = [[(c.token_ids, c.logprobs, c.text, c.finish_reason) for c in said] for said in (one, other)]
        assert spoken[0] == spoken[1]
    assert len({tuple(c.logprobs for c in said) for said in beside}) == 3  # the policies differ


async def test_policies_of_one_name_are_told_apart(folders: list[Path]) -> None:
    factory = ActorFactory(ENGINE)
    factory.prepare(map(weights, folders))
    actors = [factory.actor(weights(folder), "own") for folder in folders]
    names = [actor.client.policy for actor in actors if isinstance(actor, PolicyActor)]
    assert names == ["first", "first-2"]
    await factory.close()


async def test_an_engine_that_merges_has_one_adapter(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[list[str]] = []
    path = "troupe.setup.evaluation_actors.build_engine"
    monkeypatch.setattr(path, lambda node, models, tokenizer: built.append([*models]))
    ActorFactory({"lora": "merged"}).prepare(map(weights, folders))
    ActorFactory({"lora": "adapter"}).prepare(map(weights, folders))
    assert built == [["first"], ["first"], ["first", "first-2"]]
