"""What a CPU machine can say about strategies; tests/test_ddp.py runs two processes."""

from typing import Any

import pytest
import torch
from lightning.fabric.strategies.dp import DataParallelStrategy
from lightning.fabric.strategies.model_parallel import ModelParallelStrategy
from lightning.fabric.strategies.strategy import Strategy
from transformers import Qwen2Config, Qwen2ForCausalLM

from troupe.models.learning.ranks import Ranks
from troupe.models.pools.fabrics import fabric_of, launch, trainable_fabric
from troupe.models.pools.strategies import (
    DeepSpeed,
    DeviceError,
    Fsdp2,
    StrategyError,
    StrategySettings,
)


def test_one_device_is_one_process() -> None:
    fabric = trainable_fabric(StrategySettings(accelerator="cpu", devices=1))
    assert launch(fabric) == Ranks(0, 1)


@pytest.mark.parametrize("accelerator", ["cpu", "auto"])
@pytest.mark.parametrize("devices", [1, "auto"])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true"])
def test_every_machine_can_train_with_what_is_plain(accelerator: str, devices: int | str, precision: str) -> None:
    settings = StrategySettings(accelerator=accelerator, devices=devices, precision=precision)
    assert settings.plain or settings.on_gpu
    trainable_fabric(settings)
    others: list[dict[str, Any]] = [
        {"accelerator": "gpu"},
        {"devices": 2, "strategy": "ddp"},
        {"precision": "16-mixed"},
        {"strategy": "no_such"},
        {"accelerator": "tpu"},
    ]
    assert not any(StrategySettings(**{"accelerator": accelerator, **other}).plain for other in others)


def test_several_processes_of_one_device_are_refused() -> None:
    for several in ({"devices": 99}, {"num_nodes": 2, "devices": 1}):
        with pytest.raises(StrategyError, match="strategy=single_device has one process; strategy=ddp has several"):
            StrategySettings(accelerator="cpu", **several)


def test_more_processes_than_cores_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    with pytest.raises(DeviceError, match=r"strategy\.devices=3: so many processes on a machine with 2 CPU cores"):
        fabric_of(StrategySettings(accelerator="cpu", devices=3, strategy="ddp"))


def test_ddp_is_trainable() -> None:
    trainable_fabric(StrategySettings(accelerator="cpu", devices=2, strategy="ddp"))


class Other(Fsdp2):
    def build(self, *, on_gpu: bool) -> Strategy:
        return DataParallelStrategy()


def test_lightnings_other_strategies_are_refused() -> None:
    with pytest.raises(StrategyError, match="DataParallelStrategy is not one that pools train with; these are single"):
        trainable_fabric(StrategySettings(accelerator="cpu", devices=1, strategy=Other()))


def test_what_deepspeed_cannot_do_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StrategyError, match="stage must be 2 or 3, got 1"):
        DeepSpeed(stage=1)
    for precision in ("64-true", "bf16-true", "16-mixed"):
        with pytest.raises(StrategyError, match=f"strategy.precision={precision}: DeepSpeed learns in float32"):
            StrategySettings(precision=precision, strategy=DeepSpeed(stage=3))
    monkeypatch.setattr("troupe.models.pools.strategies.find_spec", lambda name: None)
    with pytest.raises(DeviceError, match=r"deepspeed_zero2 needs DeepSpeed: pip install 'troupe-rl\[deepspeed\]'"):
        fabric_of(StrategySettings(accelerator="cpu", devices=2, strategy=DeepSpeed(stage=2)))


@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-mixed", "bf16-true"])
def test_fsdp2_is_trainable_on_a_cpu(precision: str) -> None:
    fabric = trainable_fabric(StrategySettings(accelerator="cpu", devices=2, precision=precision, strategy=Fsdp2()))
    assert isinstance(fabric.strategy, ModelParallelStrategy)
    assert fabric.strategy.precision.precision == precision


@pytest.mark.parametrize("strategy", ["auto", Fsdp2()])
def test_rotary_frequencies_stay_in_float32_beside_weights_in_bfloat16(strategy: Fsdp2 | str) -> None:
    sizes = dict(vocab_size=8, hidden_size=64, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
                 num_key_value_heads=2, tie_word_embeddings=True)  # fmt: skip
    model = Qwen2ForCausalLM(Qwen2Config(**sizes))
    frequencies = model.model.rotary_emb.inv_freq.clone()
    fabric = fabric_of(StrategySettings(accelerator="cpu", devices=1, precision="bf16-true", strategy=strategy))
    converted = fabric.strategy.precision.convert_module(model)
    assert {weight.dtype for weight in converted.state_dict().values()} == {torch.bfloat16}
    assert converted.lm_head.weight is converted.model.embed_tokens.weight
    assert torch.equal(converted.model.rotary_emb.inv_freq, frequencies)
    assert not torch.equal(frequencies, frequencies.bfloat16().float())


@pytest.mark.parametrize("strategy", ["ddp", Fsdp2()])
def test_the_numbers_of_a_batch_are_not_rounded_beside_weights_in_bfloat16(strategy: Fsdp2 | str) -> None:
    fabric = fabric_of(StrategySettings(accelerator="cpu", devices=1, precision="bf16-true", strategy=strategy))
    logprobs = torch.tensor([-2.3456789])
    assert torch.equal(fabric.strategy.precision.convert_input(logprobs), logprobs)
    assert not torch.equal(logprobs.bfloat16().float(), logprobs)


def test_what_fsdp2_cannot_do_is_refused() -> None:
    with pytest.raises(StrategyError, match="16-mixed: fsdp2 has no loss scaling over shards"):
        StrategySettings(precision="16-mixed", strategy=Fsdp2())
    with pytest.raises(StrategyError, match="checkpoints must be sharded or gathered, got 'both'"):
        Fsdp2(checkpoints="both")
    with pytest.raises(DeviceError, match="cpu_offload=true: the weights are on the CPU already"):
        fabric_of(StrategySettings(accelerator="cpu", devices=2, strategy=Fsdp2(cpu_offload=True)))


@pytest.mark.parametrize(
    ("keys", "coarseness"),
    [
        ({}, 0.0),
        ({"precision": "64-true"}, 0.0),
        ({"precision": "bf16-mixed"}, 1.0),
        ({"precision": "bf16-true"}, 1.0),
        ({"precision": "16-mixed"}, 1 / 8),
        ({"accelerator": "cuda"}, 1 / 8),
        ({"accelerator": "cuda", "float32_matmul": "highest"}, 0.0),
        ({"accelerator": "cuda", "float32_matmul": "medium"}, 1.0),
        ({"accelerator": "cuda", "precision": "64-true"}, 0.0),
    ],
)
def test_how_coarse_the_numbers_are_that_a_pool_multiplies(keys: dict[str, Any], coarseness: float) -> None:
    """Of bfloat16's 8 bits, as torch counts them, float16 and TF32 have 3 more."""
    assert StrategySettings(**({"accelerator": "cpu"} | keys)).coarseness() == coarseness
    assert torch.finfo(torch.float16).eps == torch.finfo(torch.bfloat16).eps / 8


def test_a_pool_elsewhere_is_where_its_own_gpu_is() -> None:
    settings = StrategySettings(accelerator="cpu")
    assert (settings.coarseness(), settings.coarseness(on_gpu=True)) == (0.0, 1 / 8)
