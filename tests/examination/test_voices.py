"""Engines of an evaluation: adapters on one base share it, and say what each would say in an engine of its own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from troupe.envs.couplet import Couplet
from troupe.evaluation import PolicySpeaker
from troupe.examination.examine import Condition, examine
from troupe.examination.lineup import Weights
from troupe.examination.questions import Questions
from troupe.examination.voices import Voices
from troupe.experience import Completion, Sampling
from troupe.models import laptop
from troupe.models.adapters import LoraSettings, attach, export, parameters
from troupe.models.laptop import load_model, load_tokenizer
from troupe.rollout.playing import together

BASE = "laptop_couplet"
ENGINE = {"_target_": "troupe.rollout.torch_engine.TorchEngine", "_partial_": True, "lockstep": True}
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
        export(whole, name, path / name)
        load_tokenizer(BASE).save_pretrained(path / name)
    return [path / name for name in settings]


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that were loaded."""
    found: list[str] = []
    really = laptop.AutoModelForCausalLM.from_pretrained

    def counted(place: str, *args: Any, **kwargs: Any) -> Any:
        found.append(Path(place).name)
        return really(place, *args, **kwargs)

    monkeypatch.setattr(laptop.AutoModelForCausalLM, "from_pretrained", counted)
    return found


def weights(base: Path | str, policy: str = "first", below: str | None = BASE) -> Weights:
    return Weights("checkpoint", policy, str(base), SAMPLING, below, named=policy)


async def answers(voices: Voices, parts: Sequence[Weights]) -> list[list[Completion]]:
    """Four answers of each part to one prompt, all asked at once."""
    world = Couplet()
    world.reset(world.tasks("test", 1, 0)[0])
    speakers = [voices.speaker(part, "own") for part in parts]
    asked = []
    for place, speaker in enumerate(speakers):
        assert isinstance(speaker, PolicySpeaker)
        voice = speaker.voice
        prompt = voice.encode("first", "task", world.observe("first"))
        asked.append(voice.speak(prompt, 4, 7, ("task", place)))
    return await together(*asked)


async def test_an_examination_loads_the_base_of_two_adapters_once(folders: list[Path], loads: list[str]) -> None:
    world = Couplet(horizon=1)
    parts = dict(zip(world.agents, map(weights, folders), strict=True))
    tasks = world.tasks("test", 2, 0)
    found = [Condition("sampled", {}, world, tasks, parts, temperature, 1) for temperature in ("own", 0)]
    asked = Questions(checkpoint="last", split="test", tasks=2, samples=1, temperature=("own", 0), seed=0)
    outcomes = await examine(asked, found, Voices(ENGINE), lambda result: None)
    assert [len(outcome.samples[0]) for outcome in outcomes] == [2, 2]
    assert loads == ["base_couplet"]


async def test_one_engine_answers_as_engines_apart(folders: list[Path], loads: list[str]) -> None:
    parts = [*map(weights, folders), weights(BASE, "base", None)]
    alone = []
    for part in parts:
        voices = Voices(ENGINE)
        alone += await answers(voices, [part])
        await voices.close()
    assert loads == ["base_couplet"] * 3
    loads.clear()
    voices = Voices(ENGINE)
    voices.prepare(parts)
    assert loads == ["base_couplet"]
    beside = await answers(voices, parts)
    await voices.close()
    assert loads == ["base_couplet"]
    for one, other in zip(beside, alone, strict=True):
        spoken = [[(c.token_ids, c.logprobs, c.text, c.finish_reason) for c in said] for said in (one, other)]
        assert spoken[0] == spoken[1]
    assert len({tuple(c.logprobs for c in said) for said in beside}) == 3  # the policies differ


async def test_policies_of_one_name_are_told_apart(folders: list[Path]) -> None:
    voices = Voices(ENGINE)
    voices.prepare(map(weights, folders))
    speakers = [voices.speaker(weights(folder), "own") for folder in folders]
    names = [speaker.voice.policy for speaker in speakers if isinstance(speaker, PolicySpeaker)]
    assert names == ["first", "first-2"]
    await voices.close()


async def test_an_engine_that_merges_has_one_adapter(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[list[str]] = []
    monkeypatch.setattr(
        "troupe.examination.voices.build_engine", lambda node, models, tokenizer: built.append([*models])
    )
    Voices({"lora": "merged"}).prepare(map(weights, folders))
    Voices({"lora": "adapter"}).prepare(map(weights, folders))
    assert built == [["first"], ["first"], ["first", "first-2"]]
