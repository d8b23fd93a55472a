"""A dry run refuses what training refuses before any model is loaded, in the same words; it says what is not here.

What is wrong in one section is in test_refusals.py.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig
from transformers import MistralConfig

from troupe.cli import train
from troupe.models.bases.loading import load_tokenizer
from troupe.rollout.engines.vllm import versions
from troupe.setup import team
from troupe.setup.assembly import build
from troupe.setup.checks import checked

Composed = Callable[..., DictConfig]
SMALL = ["loop.tasks_per_iteration=2", "loop.validation_tasks=1", "loop.test_tasks=1", "env.horizon=2"]
LORA = ["experiment=sokoban_lora"]
VLLM = ["engine=vllm", *(f"policies.{name}.sampling.train.max_tokens=40" for name in ("tool", "plan"))]

AHEAD = ["loop.staleness=1", "loop.lockstep=false", "algorithm.objective.importance_cap=2"]

REFUSED = {
    "checkpoints": (["loop.checkpoint.every=0"], "loop.checkpoint.every must be a whole number of at least 1, got 0"),
    "sharded in half precision": (
        ["scale=paper_8b", "strategy=fsdp2", "strategy.precision=16-mixed"],
        "strategy.precision=16-mixed: fsdp2 has no loss scaling over shards",
    ),
    "adapters sharded by DeepSpeed": (
        [*LORA, "strategy=deepspeed_zero3"],
        "policies.tool.tuning=lora: DeepSpeed's ZeRO 3 has one optimizer for a model",
    ),
    "a place": (["+policies.tool.devices=2"], "policies.tool: strategy.devices=2, strategy.num_nodes=1: "),
    "no strategy": (["+strategy.strategy=ddpp"], "strategy: You selected an invalid strategy name"),
    "a folder that holds something": (["run_dir=taken"], "run_dir=taken is not an empty folder"),
    "context": (
        ["policies.plan.sampling.eval.max_tokens=512"],
        "policies.plan.sampling.eval.max_tokens=512 leaves no room for a prompt",
    ),
    "words": (["env=plan_path", "env.size=12"], "policy 'tool' has no token for '"),
    "targets": (
        [*LORA, "policies.plan.lora.targets=[query]"],
        "policies.plan.lora.targets: Qwen3ForCausalLM has no linear layer 'query'",
    ),
    "an adapter of an adapter": ([*LORA, "policies.tool.base=adapter"], "policies.tool.base=adapter is an adapter"),
    "an optimizer's value": (["policies.tool.optimizer.lr=-1"], "policies.tool.optimizer: Invalid learning rate: -1"),
    "a model that the engine does not run": (
        ["policies.tool.base=sliding"],
        "policy 'tool': the torch engine does not run MistralForCausalLM: its attention has a sliding window of 64",
    ),
    "vLLM's merged adapters": ([*LORA, *VLLM, "engine.lora=merged"], "engine.lora=merged: tool, plan speak with one"),
    "vLLM's cache": ([*VLLM, "engine.kv_cache_gib=0.001"], "engine.kv_cache_gib=0.001 is too little for policy 'tool'"),
    "vLLM's way": ([*VLLM, "engine.lora=mergd"], "engine.lora must be adapter or merged, got 'mergd'"),
    "a logger's value": (["logger=wandb", "logger.wandb.mode=x"], "logger.wandb.mode=x is unknown"),
    "staleness": (["loop.staleness=-1"], "loop.staleness must be a whole number of at least 0, got -1"),
    "staleness in lockstep": ([AHEAD[0], AHEAD[2]], "policy 'tool' decodes in lockstep, in which nobody decodes while"),
    "staleness in the loop's lockstep": (
        [AHEAD[0], AHEAD[2], "engine.lockstep=false"],
        "loop.staleness=1 with loop.lockstep=true: ",
    ),
    "staleness without correction": (AHEAD[:2], "give algorithm.objective.importance_cap=2 (truncated importance"),
    "staleness of several processes": (
        [*AHEAD, "strategy=ddp", "strategy.accelerator=cpu", "strategy.devices=2"],
        "loop.staleness=1 needs a run of one process",
    ),
    "staleness with replaced tasks": (
        [*AHEAD, "algorithm.sampler.resample=2"],
        "loop.staleness=1: algorithm.sampler.resample=2 plays further tasks once",
    ),
    "staleness with an engine that sleeps": (
        [*VLLM, AHEAD[0], AHEAD[1], "engine.sleep=1"],
        "loop.staleness=1: with engine.sleep=1 the engine gives its memory to the learner",
    ),
    "weights in flight on-policy": (["loop.in_flight=true"], "loop.in_flight=true with loop.staleness=0: "),
    "an engine's weights in flight on-policy": (
        ["engine.in_flight=true", "loop.lockstep=false"],
        "engine.in_flight=true with loop.staleness=0: ",
    ),
    "weights in flight in lockstep": ([AHEAD[0], AHEAD[2], "loop.in_flight=true"], "policy 'tool' decodes in lockstep"),
    "weights in flight with vLLM": (
        [*VLLM, *AHEAD, "loop.in_flight=true"],
        "loop.in_flight=true: the engine of policy 'tool', VllmEngine, loads weights between two completions alone",
    ),
    "shards that a model cannot have": (
        [*VLLM, "engine.tensor_parallel=3"],
        "engine.tensor_parallel=3: the model of policy 'tool', with 4 attention heads, 2 key-value heads, ",
    ),
    "staleness in another default dtype": (
        [*AHEAD, "strategy.precision=bf16-true"],
        "loop.staleness=1: strategy.precision=bf16-true sets torch's default dtype for all threads",
    ),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the cases name."""
    found = tmp_path_factory.mktemp("place")
    (found / "taken").mkdir()
    (found / "taken" / "thesis.tex").touch()
    for name in ("adapter", "sliding"):
        load_tokenizer("laptop").save_pretrained(found / name)
    (found / "adapter" / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "laptop"}))
    shape = {"hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 1}
    MistralConfig(vocab_size=300, sliding_window=64, **shape).save_pretrained(found / "sliding")
    return found


@pytest.fixture(autouse=True)
def no_weights(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """In that folder, a machine on which no model may be loaded."""

    def fail(*arguments: Any, **keywords: Any) -> None:
        raise AssertionError("weights are loaded")

    monkeypatch.setattr(team, "load_model", fail)
    monkeypatch.chdir(place)


@pytest.mark.parametrize("case", REFUSED)
def test_what_training_refuses_a_dry_run_refuses(composed: Composed, case: str) -> None:
    words, message = REFUSED[case]
    cfg = composed("run_dir=new", "name=test", *SMALL, *words)
    with pytest.raises(ValueError) as dry:
        checked(cfg)
    assert message in str(dry.value)
    with pytest.raises(ValueError) as real:
        build(cfg)
    assert str(real.value) == str(dry.value)
    assert not Path("new").exists()


def test_what_training_builds_a_dry_run_lets_pass(composed: Composed) -> None:
    two_optimizers = [*LORA, "policies.plan.optimizer._target_=torch.optim.Adam"]
    places = [*AHEAD, "strategy.precision=bf16-true", *(f"+policies.{name}.devices=1" for name in ("tool", "plan"))]
    for words in (
        ["experiment=sokoban_specialized"],
        two_optimizers,
        ["strategy=ddp", "strategy.accelerator=cpu"],
        [*AHEAD, "algorithm=mas_grpo"],
        [*AHEAD, "loop.in_flight=true"],
        places,
    ):
        _, lacks = checked(composed("run_dir=new", "name=test", *words, *SMALL))
        assert lacks == []
    assert not Path("new").exists()


ABSENT = {
    "a device": (["strategy.accelerator=tpu"], "strategy: "),
    "a package": (["logger=tensorboard"], "logger.tensorboard needs the extra [tensorboard]"),
    "vLLM": (VLLM, "engine=vllm needs vLLM, and none is installed"),
    "a key": (
        ["experiment=sokoban_specialized", "policy@policies.tool=[laptop,remote]"]
        + [f"policies.tool.remote.{word}" for word in ("url=http://host/v1", "model=m", "key_env=NO_SUCH_KEY")],
        "policies.tool.remote.key_env=NO_SUCH_KEY: the environment holds no such variable",
    ),
}


@pytest.mark.parametrize("case", ABSENT)
def test_what_a_machine_lacks_is_said_and_refused_by_training_alone(
    composed: Composed, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setattr(versions, "PACKAGES", ())
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    words, message = ABSENT[case]
    cfg = composed("run_dir=new", "name=test", *words, *SMALL)
    _, (lack,) = checked(cfg)
    assert lack.startswith(message)
    with pytest.raises(ValueError) as real:
        build(cfg)
    assert lack in str(real.value)


def test_a_dry_run_says_what_it_does_not_fetch(
    composed: Composed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreached(*arguments: Any, **keywords: Any) -> None:
        raise AssertionError("the hub is asked")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", unreached)
    monkeypatch.setattr("datasets.load_dataset", unreached)
    monkeypatch.setattr("datasets.load_dataset_builder", unreached)
    monkeypatch.setenv("HF_HOME", str(Path.cwd()))
    train.show_plan(composed("experiment=math_specialized", "scale=paper_8b", "engine=torch", "run_dir=new"))
    printed = capsys.readouterr().out
    model = "base=Qwen/Qwen3-8B would be fetched from the hub: its chat template and its agents' prompts were not"
    for policy in ("tool", "reasoner"):
        assert f"- policies.{policy}.{model} checked" in printed
    assert "- env.train: POLARIS-Project/Polaris-Dataset-53K would be fetched, and was not checked" in printed


def test_a_merged_adapter_has_the_shape_of_its_base(composed: Composed, capsys: pytest.CaptureFixture[str]) -> None:
    train.show_plan(composed("run_dir=new", "policies.tool.base=adapter", *SMALL))
    plan, *_ = [line for line in capsys.readouterr().out.splitlines() if "parameters" in line]
    assert plan.count("803,968") == 2
