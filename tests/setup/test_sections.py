"""The keys of a run, section by section; what is refused in them is in test_refusals.py."""

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
    check_scale,
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
    assert run.loop.iterations == 7 and run.loop.checkpoint.every == 10
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


# ---- scale


def test_a_key_of_a_scale_is_one_of_the_packages_or_referred_to() -> None:
    unresolved = "a: ${scale.own.figure}\nb: [1, 'x ${oc.env:HOME,${scale.other}}']\nc: \\${scale.escaped}\n"
    check_scale({"own": {"figure": 1}, "other": {"deep": {"er": 2}}, "std_floor": 1, "vllm": {"sleep": 0}}, unresolved)
    for stray, key in (
        ({"own": {"figures": 1}}, "scale.own.figures"),
        ({"escaped": 1}, "scale.escaped"),
        ({"vllm": {"block": 1}}, "scale.vllm.block"),
    ):
        with pytest.raises(ConfigError, match=f"^{key} is an unknown key: no scale of the package has it"):
            check_scale(stray, unresolved)
