"""Worlds that run programs: a seed fixes a run bit for bit, however long programs take and however many run at once."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from omegaconf import DictConfig

from troupe.cli import train
from troupe.envs.code import MicroCode
from troupe.sandbox import Job, Limits, LocalSandbox, Result

SMALL = ["loop.tasks_per_iteration=4", "algorithm.sampler.k=3", "loop.validation_tasks=2", "loop.test_tasks=2"]


class Tardy(LocalSandbox):
    """The real one, whose answers come late, by chance."""

    async def run(self, job: Job, limits: Limits | None = None) -> Result:
        await asyncio.sleep(Random().random() / 50)
        result = await super().run(job, limits)
        await asyncio.sleep(Random().random() / 50)
        return result


@pytest.mark.slow
@pytest.mark.parametrize("order", ["sequential", "simultaneous"])
def test_a_seed_fixes_a_run(composed: Callable[..., DictConfig], tmp_path: Path, order: str) -> None:
    seen: list[dict[str, Any]] = []
    for sandbox in (LocalSandbox(workers=1), Tardy(workers=3)):
        cfg = composed(
            "experiment=code_specialized", f"env.order={order}", f"run_dir={tmp_path / str(len(seen))}", *SMALL
        )
        loop = train.build(cfg)
        assert isinstance(loop.world, MicroCode)
        asyncio.run(loop.world.close())
        loop.world.execution.sandbox = sandbox

        async def two(loop: Any = loop) -> list[dict[str, Any]]:
            try:
                await loop.team.load_weights()
                return [await loop.run_iteration() for _ in range(2)]
            finally:
                for engine in set(loop.team.engines.values()):
                    await engine.close()
                await loop.world.close()

        metrics = [{k: v for k, v in row.items() if not k.endswith("_s")} for row in asyncio.run(two())]
        weights = {
            f"{name}/{key}": value.clone()
            for name, policy in loop.team.policies.items()
            for key, value in policy.pool.module.model.state_dict().items()
        }
        seen.append({"metrics": metrics, "weights": weights})
    first, other = seen
    assert first["metrics"][0]["rollout/completions"] > 0
    assert other["metrics"] == first["metrics"]
    for name, value in first["weights"].items():
        assert torch.equal(value, other["weights"][name]), name
