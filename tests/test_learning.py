"""The one-minute test: a team learns from rewards, and from nothing else."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig

from troupe.setup.assembly import build


def train(composed: Callable[..., DictConfig], run_dir: Path, *overrides: str, world: str = "sokoban") -> dict:
    """The summary of a short run."""
    torch.set_num_threads(1)
    sizes = "loop.iterations=6 loop.tasks_per_iteration=48 loop.eval_every=100".split()
    sizes += "loop.validation_tasks=20 loop.test_tasks=150".split()
    cfg = composed(f"experiment={world}_specialized", f"run_dir={run_dir}", "name=learning", *sizes, *overrides)
    return asyncio.run(build(cfg).run())


@pytest.mark.slow
def test_a_team_learns_in_a_minute(composed: Callable[..., DictConfig], tmp_path: Path) -> None:
    learnt = train(composed, tmp_path / "learnt")
    assert learnt["eval_before/success"] < 0.3
    # The 95 % intervals before and after lie far apart.
    assert learnt["eval/success_ci95"][0] > learnt["eval_before/success_ci95"][1] + 0.1
    assert learnt["eval/turns"] < learnt["eval_before/turns"]

    shuffled = train(composed, tmp_path / "shuffled", "algorithm=at_grpo_shuffled", "loop.iterations=4")
    assert shuffled["eval/success_ci95"][0] < shuffled["eval_before/success_ci95"][1]


@pytest.mark.slow
def test_a_team_learns_from_the_values_of_a_critic(composed: Callable[..., DictConfig], tmp_path: Path) -> None:
    sizes = ["loop.iterations=12", "loop.tasks_per_iteration=32", "loop.test_tasks=100"]
    learnt = train(composed, tmp_path / "run", "algorithm=maac", *sizes, world="plan_path")
    assert learnt["eval_before/success"] < 0.3
    assert learnt["eval/success_ci95"][0] > learnt["eval_before/success_ci95"][1] + 0.1
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    explained = [row["critic/team/explained_variance"] for row in rows]
    assert explained[0] == 0  # a new critic says 0
    assert min(explained[-3:]) > 0.05
