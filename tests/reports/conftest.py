"""Run directories as a finished run leaves them, written with known figures."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from troupe.reports.fingerprint import code_hash
from troupe.reports.statistics import wilson

LOOP = {"iterations": 4, "boards": 2, "completions": 0, "eval_every": 1, "validation_tasks": 2, "test_tasks": 10}


class Disk:
    """Writes runs."""

    def config(self, seed: int = 0, k: int = 4, **loop: int) -> dict[str, Any]:
        policy = {
            "base": "laptop",
            "optimizer": {"lr": 0.001},
            "sampling": {"train": {"top_p": 1.0}, "eval": {"top_p": 1}},
        }
        algorithm = {"sampler": {"k": k, "alpha": 1.0}}
        rest = {"seed": seed, "name": "game", "run_dir": f"runs/{seed}", "policies": {"tool": policy}}
        return {"loop": LOOP | loop, "algorithm": algorithm, **rest}

    def scores(self, before: int, after: int, best: int, episodes: int = 10) -> dict[str, Any]:
        """The summary of a finished run: successes of ``episodes``."""
        summary: dict[str, Any] = {
            "iterations": 4,
            "train/completions": 100,
            "train/tokens": 1000,
            "train/env_steps": 50,
        }
        summary |= {"time/wall_s": 2.0, "eval/turns": 1.5}
        for prefix, wins in (("eval_before", before), ("eval", after), ("eval_best", best)):
            summary |= {f"{prefix}/success": wins / episodes, f"{prefix}/episodes": episodes}
            summary[f"{prefix}/success_ci95"] = list(wilson(wins, episodes))
        return summary

    def run(self, path: Path, config: dict[str, Any], summary: dict[str, Any] | None, code: str | None = None) -> Path:
        """Write a run; without ``code``, of today's."""
        path.mkdir(parents=True)
        (path / "config.yaml").write_text(yaml.safe_dump(config))
        (path / "versions.json").write_text(json.dumps({"code": code_hash() if code is None else code}))
        (path / "metrics.jsonl").touch()
        if summary is not None:
            (path / "summary.json").write_text(json.dumps(summary))
        return path


@pytest.fixture(scope="session")
def disk() -> Disk:
    return Disk()
