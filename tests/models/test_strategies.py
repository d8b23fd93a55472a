"""What a CPU machine can say about strategies; tests/test_ddp.py runs two processes."""

import lightning as L
import pytest
from lightning.fabric.strategies.model_parallel import ModelParallelStrategy

from troupe.models.ranks import Ranks
from troupe.models.strategies import (
    DeepSpeed,
    DeviceError,
    Fsdp2,
    StrategyError,
    StrategySettings,
    check_trainable,
    launch,
)


def test_one_device_is_one_process() -> None:
    fabric = StrategySettings(accelerator="cpu", devices=1).fabric()
    check_trainable(fabric)
    assert launch(fabric) == Ranks(0, 1)


def test_several_processes_of_one_device_are_refused() -> None:
    for several in ({"devices": 99}, {"num_nodes": 2, "devices": 1}):
        with pytest.raises(StrategyError, match="strategy=single_device has one process; strategy=ddp has several"):
            StrategySettings(accelerator="cpu", **several)


def test_more_processes_than_cores_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    with pytest.raises(DeviceError, match=r"strategy\.devices=3: so many processes on a machine with 2 CPU cores"):
        StrategySettings(accelerator="cpu", devices=3, strategy="ddp").fabric()


def test_ddp_is_trainable() -> None:
    check_trainable(StrategySettings(accelerator="cpu", devices=2, strategy="ddp").fabric())


def test_what_shards_weights_is_refused() -> None:
    fabric = L.Fabric(accelerator="cpu", devices=1, strategy=ModelParallelStrategy(lambda model, mesh: model))
    with pytest.raises(StrategyError, match="ModelParallelStrategy shards weights"):
        check_trainable(fabric)


def test_hardware_and_packages_that_are_not_here_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)  # also on a machine with a GPU
    with pytest.raises(StrategyError, match="strategy=fsdp2 needs a GPU"):
        Fsdp2().build()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(StrategyError, match=r"strategy=deepspeed_zero2 needs DeepSpeed: .*troupe\[deepspeed\]"):
        DeepSpeed(stage=2).build()
    with pytest.raises(StrategyError, match="stage must be 2 or 3, got 1"):
        DeepSpeed(stage=1)


def test_the_strategy_of_sharding_can_be_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert isinstance(Fsdp2(cpu_offload=True).build(), ModelParallelStrategy)
