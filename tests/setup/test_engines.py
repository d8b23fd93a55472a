"""A policy may have an engine of its own: which it is, who shares it, what is refused, and that evaluations use it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf

from troupe.cli import train
from troupe.errors import ConfigError
from troupe.evaluation.assignment import LocalPolicy
from troupe.experience import Sampling
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.setup import team
from troupe.setup.assembly import build
from troupe.setup.checks import check
from troupe.setup.dry_run import plan
from troupe.setup.evaluation_actors import ActorFactory
from troupe.setup.parts import Parts, parts_of
from troupe.setup.policies import backbones
from troupe.setup.sections import engine_name

from ..asked import evaluated

SMALL = ["experiment=sokoban_specialized", "loop.iterations=1", "loop.tasks_per_iteration=3", "env.horizon=2"]
SMALL += ["loop.validation_tasks=2", "loop.test_tasks=20", "diagnostics=off"]


def parts(*overrides: str) -> Parts:
    with initialize_config_module("troupe.configs", version_base="1.3"):
        cfg = compose("train", overrides=["run_dir=nowhere", "name=test", *overrides])
    config: Any = OmegaConf.to_container(cfg, resolve=True)
    return parts_of(config, OmegaConf.to_yaml(cfg))


def names(found: Parts) -> dict[str, str]:
    return {name: spec.engine["_target_"].rpartition(".")[2] for name, spec in found.policies.items()}


def caps(found: Parts) -> dict[str, float]:
    configs = {name: spec.train_config for name, spec in found.policies.items()}
    return {name: config.objective.importance_cap for name, config in configs.items() if config}


def test_another_engine_is_laid_over_a_policy() -> None:
    found = parts("policy@policies.plan=[laptop,on_vllm]")
    assert names(found) == {"tool": "TorchEngine", "plan": "VllmEngine"}
    assert caps(found) == {"tool": 0.0, "plan": 2.0}  # only what was sampled elsewhere is weighed
    tool, own = plan(found).pools
    assert (engine_name(tool.engine), engine_name(own.engine)) == ("TorchEngine", "VllmEngine")
    assert own.memory.engine == 4 * own.parameters + 0.5 * 2**30
    assert "VllmEngine" in str(plan(found))
    turned = parts("engine=vllm", "policy@policies.plan=[laptop,on_torch]")
    assert names(turned) == {"tool": "VllmEngine", "plan": "TorchEngine"}
    assert caps(turned) == {"tool": 2.0, "plan": 0.0}


def test_keys_that_differ_leave_the_others_as_the_run_has_them() -> None:
    found = parts("+policies.plan.engine={dtype: bfloat16}", "engine.max_batch_rows=100").policies
    assert found["tool"].engine["dtype"] is None and found["plan"].engine["dtype"] == "bfloat16"
    assert found["tool"].engine["max_batch_rows"] == found["plan"].engine["max_batch_rows"] == 100


def test_adapters_with_different_engines_are_two_pools() -> None:
    def groups(*words: str) -> list[list[str]]:
        found = parts("regime=lora", *words).policies
        return [[spec.name for spec in group] for group in backbones(found)]

    assert groups() == [["tool", "plan"]]
    assert groups("+policies.plan.engine={dtype: bfloat16}") == [["tool"], ["plan"]]
    both = [f"+policies.{name}.engine={{dtype: bfloat16}}" for name in ("tool", "plan")]
    assert groups(*both) == [["tool", "plan"]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["+policies.plan.engine=vllm"], r"policies\.plan\.engine=vllm is no set of keys.*\[NAME,on_vllm\]"),
        (["+policies.plan.engine=remote"], r"policies\.plan\.engine=remote is no set of keys.*which takes no weights"),
        (["+policies.plan.engine.max_batch_rows=2"], r"k=4 is more than policies\.plan\.engine\.max_batch_rows=2"),
        (["+policies.plan.engine.colour=2"], r"policies\.plan\.engine\.colour is an unknown key"),
        (
            ["policy@policies.plan=[laptop,remote]", "policies.plan.remote.model=m", "+policies.plan.engine.dtype=x"],
            r"policies\.plan\.engine does not apply with policies\.plan\.tuning=remote",
        ),
    ],
)
def test_what_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(parts(*SMALL, *words), new=False, starts=False)


@pytest.mark.slow
def test_a_run_and_its_evaluation_speak_through_it(composed: Callable[..., DictConfig], tmp_path: Path) -> None:
    run = tmp_path / "run"
    loop = train.build(composed(*SMALL, "+policies.plan.engine={dtype: bfloat16}", f"run_dir={run}", "name=own"))
    engines = loop.team.engines
    dtypes = {name: engine._decoders[name].model.dtype for name, engine in engines.items()}  # type: ignore[attr-defined]
    assert [str(dtype) for dtype in dtypes.values()] == ["torch.float32", "torch.bfloat16"]
    train.train(loop)
    summary = json.loads((run / "summary.json").read_text())
    found = evaluated(run, "checkpoint=last", "temperature=own").conditions["sampled"]
    for key in ("success", "turns", "plan/reward"):
        assert found[key] == summary[f"eval/{key}"]


async def test_one_model_in_two_engines() -> None:
    factory = ActorFactory({"_target_": f"{TorchEngine.__module__}.TorchEngine", "_partial_": True})
    policy = [
        LocalPolicy("checkpoint", name, "laptop", Sampling(max_tokens=8), configured_as=name, engine=engine)
        for name, engine in (("one", {}), ("other", {"dtype": "bfloat16"}), ("third", {}))
    ]
    one, other, third = (factory.actor(each, "own").client.engine for each in policy)  # type: ignore[union-attr]
    assert one is third and one is not other
    await factory.close()


@pytest.mark.slow
def test_an_engine_is_tested_on_prompts_of_the_world(
    composed: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def build_engine(node: Any, models: Any, tokenizer: Any, prompts: Any) -> Any:
        read.extend(map(tokenizer.decode, prompts))
        raise MemoryError("all is read")

    monkeypatch.setattr(team, "build_engine", build_engine)
    with pytest.raises(MemoryError, match="all is read"):
        build(composed("experiment=sokoban_shared", f"run_dir={tmp_path / 'run'}"))
    assert read and all("sokoban" in prompt and prompt.endswith("<answer>") for prompt in read)
