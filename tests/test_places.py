"""Pools with processes of their own train what the same pools train in one process."""

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_module
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf, open_dict

from troupe.api.training import train
from troupe.errors import ConfigError
from troupe.loop import TrainLoop
from troupe.models.bases.loading import checkpoint_weights
from troupe.models.pools.processes import ProcessError
from troupe.models.pools.proxies import PoolProxy, update
from troupe.setup.assembly import build
from troupe.setup.parts import parts_of
from troupe.setup.policies import PolicySpec

from .models.conftest import equal

SMALL = [
    "name=places",
    "loop.tasks_per_iteration=3",
    "loop.eval_every=5",
    "loop.validation_tasks=1",
    "loop.test_tasks=1",
    "env.horizon=2",
    "strategy.accelerator=cpu",
    "strategy.precision=64-true",
]
APART = ["+policies.tool.devices=1", "+policies.plan.strategy=fsdp2", "+policies.plan.devices=2"]


def built(*overrides: str) -> TrainLoop:
    with initialize_config_module("troupe.configs", version_base="1.3"):
        cfg = compose("train", overrides=[*SMALL, *overrides], return_hydra_config=True)
    HydraConfig.instance().set_config(cfg)
    with open_dict(cfg):
        del cfg["hydra"]
    return build(cfg)


def saved(run: Path, policy: str) -> dict[str, torch.Tensor]:
    return checkpoint_weights(run / "checkpoints" / "last" / policy)


@pytest.mark.slow
def test_pools_in_their_places_train_what_one_process_trains(tmp_path: Path) -> None:
    """Also where they are begun anew, from the checkpoint of the first iteration."""
    one, two = tmp_path / "one", tmp_path / "two"
    train(built("loop.iterations=2", f"run_dir={one}"))
    loop = built(*APART, "loop.iterations=1", f"run_dir={two}")
    pools: list[Any] = [policy.pool for policy in loop.team.policies.values()]
    assert [len(pool.processes.processes) for pool in pools] == [1, 2] and all(
        isinstance(pool, PoolProxy) for pool in pools
    )
    children = [process for pool in pools for process in pool.processes.processes]
    meet(pools)
    train(loop)
    assert not any(process.is_alive() for process in children)  # the run has ended them
    train(built(*APART, "loop.iterations=2", f"run_dir={two}", f"resume={two}"))
    for policy in ("tool", "plan"):
        alone, placed = (saved(run, policy) for run in (one, two))
        assert max(float((alone[key] - placed[key]).abs().max()) for key in alone) < 1e-12
    assert {path.name for path in (two / "checkpoints" / "last" / "plan").glob("training*")} == {
        "training_00000.pt",
        "training_00001.pt",
    }


def meet(pools: list[Any]) -> None:
    """From now on an update of one pool begins when those of the others do, or fails."""
    barrier = threading.Barrier(len(pools), timeout=100)
    for pool in pools:

        def call(method: Any, *arguments: Any, inner: Any = pool.call) -> Any:
            if method is update:
                barrier.wait()
            return inner(method, *arguments)

        pool.call = call


@pytest.mark.slow
def test_adapters_have_a_place_together_and_a_lost_process_is_named(tmp_path: Path) -> None:
    place = [f"+policies.{name}.strategy=single_device" for name in ("tool", "plan")]
    run = "experiment=sokoban_lora", "loop.iterations=2"
    train(built(*run, f"run_dir={tmp_path / 'one'}"))
    loop = built(*run, *place, f"run_dir={tmp_path / 'two'}")
    pool: Any = loop.team.policies["tool"].pool
    assert loop.team.policies["plan"].pool is pool  # one base, one place
    train(loop)
    for policy in ("tool", "plan"):
        assert equal(saved(tmp_path / "two", policy), saved(tmp_path / "one", policy))
    loop = built(*run, *place, f"run_dir={tmp_path / 'three'}")
    pool = loop.team.policies["tool"].pool
    os.kill(pool.processes.processes[0].pid, signal.SIGKILL)
    with pytest.raises(ProcessError, match="the process 'pool tool, plan, 0' ended with code -9"):
        asyncio.run(loop.team.policies["tool"].weights())  # type: ignore[arg-type]
    with pytest.raises(ProcessError, match="pool tool, plan has ended"):
        asyncio.run(loop.team.policies["tool"].weights())  # type: ignore[arg-type]
    asyncio.run(loop.team.close())
    loop.directory.release()


def place_of(*overrides: str) -> dict[str, Any]:

    with initialize_config_module("troupe.configs", version_base="1.3"):
        cfg = compose("train", overrides=["run_dir=nowhere", *SMALL, *overrides])
    specs: dict[str, PolicySpec] = parts_of(
        OmegaConf.to_container(cfg, resolve=True),
        OmegaConf.to_yaml(cfg),  # type: ignore[arg-type]
    ).policies
    return {name: spec.place for name, spec in specs.items()}


def test_places_are_typed_and_refused_by_their_keys() -> None:
    tool, plan = place_of("+policies.plan.devices=[2,3]", "+policies.plan.strategy=fsdp2").values()
    assert tool is None
    assert (plan.devices, plan.processes, plan.precision) == ((2, 3), 2, "64-true")
    refused = {
        "+policies.tool.devices=2": "policies.tool: .*strategy=single_device has one process",
        "+policies.tool.devices=[1,1]": r"policies\.tool: strategy\.devices must be auto, a whole number .*\(1, 1\)",
        "+policies.tool.strategy=tpu": "policies.tool: strategy=tpu is unknown. Known: single_device, ddp, fsdp2",
        "+policies.tool.place=1": r"policies\.tool\.place",
    }
    for word, message in refused.items():
        with pytest.raises(ConfigError, match=message):
            place_of(word)
    with pytest.raises(
        ConfigError, match=r"policies\.tool\.devices and .* the run itself has one: give strategy=single"
    ):
        place_of("+policies.tool.devices=1", "strategy=ddp", "strategy.devices=2")
    with pytest.raises(ConfigError, match=r"policies\.tool\.devices does not apply"):
        place_of("policy@policies.tool=[laptop,frozen]", "+policies.tool.devices=1")
