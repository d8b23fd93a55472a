"""The keys of a run, section by section."""

from collections.abc import Callable
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from troupe.errors import ConfigError
from troupe.experience import Sampling
from troupe.setup.sections import (
    FrozenSection,
    FullSection,
    LoraSection,
    PolicySection,
    RemoteSection,
    RunConfig,
    read_config,
)

Read = Callable[..., RunConfig]


@pytest.fixture
def read(composed: Callable[..., DictConfig]) -> Read:
    def sections(*overrides: str) -> RunConfig:
        cfg = composed("run_dir=nowhere", *overrides)
        config: Any = OmegaConf.to_container(cfg, resolve=True)
        return read_config(config, OmegaConf.to_yaml(cfg, resolve=False))

    return sections


def test_a_run_is_typed_to_the_depth_that_is_its_own(read: Read) -> None:
    run = read("loop.iterations=7", "policies.tool.sampling.train.stop=[x]", "algorithm.update.epochs=2")
    assert run.loop.settings.iterations == 7 and run.loop.checkpoint.every == 10
    assert run.policies["tool"].sampling.train == Sampling(max_tokens=40, stop=("x",))
    assert run.algorithm.update.epochs == 2 and run.seed == 0
    assert run.env["_target_"].endswith("Sokoban")


def test_each_tuning_has_its_section(read: Read) -> None:
    kinds = {
        "regime=specialized": FullSection,
        "regime=lora": LoraSection,
        "policy@policies.tool=[laptop,frozen]": FrozenSection,
    }
    for word, kind in kinds.items():
        assert type(read(word).policies["tool"]) is kind
    remote = read("policy@policies.tool=[laptop,remote]", "policies.tool.remote.model=m").policies["tool"]
    assert isinstance(remote, RemoteSection) and remote.remote.model == "m" and not remote.learns


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["+sed=1"], "^sed is an unknown key; did you mean seed"),
        (["~seed"], "^seed is missing$"),
        (["~algorithm.credit"], r"^algorithm\.credit is missing$"),
        (["+algorithm.crdit={}"], r"^algorithm\.crdit is an unknown key; did you mean credit"),
        (["~loop.checkpoint"], r"^loop\.checkpoint is missing$"),
        (["+loop.checkpoint.evry=1"], r"^loop\.checkpoint\.evry is an unknown key; did you mean every"),
        (["+loop.boards=1"], r"^loop\.boards is now loop\.tasks_per_iteration$"),
        (["logger=csv", "logger.csv=1"], r"^logger\.csv must hold keys, got 1$"),
        (["policies.tool.tuning=ful"], r"^policies\.tool\.tuning=ful is unknown; did you mean full"),
        (
            ["policies.tool.schedule.alternate={every: 1, turn: 0, evry: 1}"],
            r"^policies\.tool\.schedule\.alternate\.evry is an unknown",
        ),
        (["+scale.vllm.block=3"], r"^scale\.vllm\.block is an unknown key: "),
    ],
    ids=str,
)
def test_a_wrong_key_is_named(read: Read, words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(*words)


def test_a_key_of_another_tuning_may_say_nothing() -> None:
    sampling = {"train": {}, "eval": {}}
    quiet = {"optimizer": None, "lora": None, "schedule": {"freeze_until": 0, "alternate": None}}
    node = {"base": "b", "tuning": "frozen", "sampling": sampling, **quiet}
    assert PolicySection.read("policies.p", node) == FrozenSection(
        sampling=PolicySection.read("policies.p", node).sampling, tuning="frozen", base="b"
    )
    with pytest.raises(ConfigError, match=r"policies\.p\.schedule does not apply with policies\.p\.tuning=frozen"):
        PolicySection.read("policies.p", node | {"schedule": {"freeze_until": 3}})
    with pytest.raises(ConfigError, match=r"policies\.p\.lora does not apply with policies\.p\.tuning=full; give null"):
        PolicySection.read("policies.p", {**node, "tuning": "full", "lora": {"r": 1}})


def test_a_policy_lacks_what_its_tuning_needs() -> None:
    with pytest.raises(ConfigError, match=r"policies\.p\.optimizer is missing"):
        PolicySection.read("policies.p", {"base": "b", "sampling": {"train": {}, "eval": {}}, "optimizer": None})
