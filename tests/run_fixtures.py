"""Run directories written by hand: one in full detail, one of an older version, and those of a sweep, with known
figures."""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from troupe.evaluation.statistics import wilson
from troupe.runs.files import FORMAT, FORMAT_KEY
from troupe.runs.fingerprint import code_hash, evaluation_keys, training_hash
from troupe.runs.trees import TREE_FORMAT
from troupe.sweep.claims import Claim
from troupe.sweep.record import SweepRecord
from troupe.sweep.rows import SweepJob

ROWS = [
    {
        "iteration": number,
        "rollout/best_of_k_success": 0.5 + number / 10,
        "rollout/turns": 4 - number,
        "rollout/tool/reward": number / 10,
        "rollout/plan/reward": number / 20,
        "rollout/tokens_per_s": 1000.0 * number,
        "train/both/loss": -0.01 / number,
        "train/both/grad_norm": 0.5,
        "train/both/special": number,
        "time/rollout_s": 1.0,
        "time/update_s": 2.0,
    }
    for number in (1, 2, 3)
]
ROWS[1] |= {"eval/success": 0.5, "eval/success_ci95": [0.25, 0.75], "eval/turns": 2.0}
SUMMARY = {
    "eval_before/success": 0.25,
    "eval_before/success_ci95": [0.125, 0.5],
    "eval_before/episodes": 4,
    "eval/success": 0.75,
    "eval/success_ci95": [0.5, 0.875],
    "eval/episodes": 4,
    "status": "finished",
    "iterations": 3,
    "train/tokens": 59226,
    "time/wall_s": 20.0,
}


def make_episode(task_id: str, success: bool, said: str = "R", **more: Any) -> dict[str, Any]:
    spoken = {"turn": 0, "agent": "tool", "saw": "walls", "said": said, "team": 1.0, "local": 0.1, "blocked": True}
    return {"task_id": task_id, "success": success, "turns": 1, "messages": [spoken, spoken | {"agent": "plan"}]} | more


def make_tree(task_id: str, iteration: int, said: str = "R", **more: Any) -> dict[str, Any]:
    """A training tree of one turn: two candidates of tool, of which the second went on, and two of plan, the first."""

    def candidate(text: str, reward: float, continued: bool) -> dict[str, Any]:
        return {
            **{"text": text, "tokens": [text], "token_ids": [7], "logprobs": [-0.5], "finish_reason": "stop"},
            **{"learner_logprobs": [-0.4], "updated_logprobs": [-0.3], "local": 0.0, "team": reward, "reward": reward},
            **{"baseline": 0.5, "advantage": reward - 0.5, "continued": continued, "info": {}, "version": iteration},
        }

    tool = [candidate(said, 0.0, False), candidate(f"{said} D", 1.0, True)]
    plan = [candidate("yes", 1.0, True), candidate("no", 0.0, False)]
    place = {"turn": 0, "prompt": "walls", "prompt_tokens": 1, "reach": 1.0, "picture": 0}
    nodes = [
        {"id": 0, "parent": None, "agent": "tool", "depth": 0, "candidates": tool, **place},
        {"id": 1, "parent": 0, "agent": "plan", "depth": 1, "candidates": plan, **place},
    ]
    outcome = {"success": True, "turns": 1, "team_return": 1.0}
    edges = [{"members": {"tool": [0, 1]}, "child": 1}, {"members": {"plan": [1, 0]}, "outcome": outcome}]
    return {
        **{"tree_format": TREE_FORMAT, "iteration": iteration, "watched": False, "task_id": task_id, "world": ""},
        **{"split": "train", "sample": 0, "best_of_k": True, "env_steps": 4, "policies": {"tool": "p", "plan": "p"}},
        **{"nodes": nodes, "edges": edges, "pictures": [{"text": "#.\n@$"}]},
    } | more


def write_lines(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "episodes").mkdir()
    config = "name: sokoban_shared\nseed: 7\nloop: {iterations: 3}\npolicies: {both: {}}\n"
    (tmp_path / "config.yaml").write_text(config)
    (tmp_path / "versions.json").write_text(json.dumps({FORMAT_KEY: FORMAT, "torch": "2.13.0", "commit": "abc1234"}))
    (tmp_path / "summary.json").write_text(json.dumps(SUMMARY))
    write_lines(tmp_path / "metrics.jsonl", ROWS)
    won = {"test_00000": "a", "test_00003": "abc", "validation_00002": "x"}
    for name, tasks in won.items():
        write_lines(tmp_path / "episodes" / f"{name}.jsonl", [make_episode(task, task in tasks) for task in "abcd"])
    return tmp_path


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    return copy.deepcopy(ROWS)


@pytest.fixture
def summary() -> dict[str, Any]:
    return copy.deepcopy(SUMMARY)


@pytest.fixture
def episode() -> Callable[..., dict[str, Any]]:
    """``episode(task_id, success, said="R", **more)``: one turn in which both agents say the same."""
    return make_episode


@pytest.fixture
def lines() -> Callable[[Path, Sequence[Mapping[str, Any]]], None]:
    """``lines(file, rows)``: write JSON lines."""
    return write_lines


@pytest.fixture
def tree() -> Callable[..., dict[str, Any]]:
    """``tree(task_id, iteration, said="R", **more)``: a training tree as a run keeps it."""
    return make_tree


# ---- a run of an older version -------------------------------------------------------------------------------------

OLD_CONFIG = """
env: {_target_: troupe.envs.sokoban.Sokoban, size: 6, boxes: 1, horizon: 2, team: pair}
algorithm:
  sampler: {_target_: troupe.rollout.tree.TreeSampler, k: 4, alpha: 1.0}
  objective: {_target_: troupe.algorithms.objectives.ClippedObjective, clip: 0.2}
  credit: {_target_: troupe.algorithms.at_grpo.AtGrpo, std_floor: 0.2}
policies:
  tool: {base: laptop, tuning: full, chat: {}, sampling: {eval: {temperature: 1.0, max_tokens: 40}}}
  plan: {base: laptop, tuning: full, chat: {}, sampling: {eval: {temperature: 1.0, max_tokens: 40}}}
team: {tool: tool, plan: plan}
engine: {_target_: troupe.rollout.torch_engine.TorchEngine, _partial_: true, max_batch_rows: 1024, lockstep: true}
threads: 1
loop: {iterations: 2, boards: 8, completions: 0, eval_every: 1, validation_tasks: 2, test_tasks: 4}
name: sokoban_specialized
seed: 3
run_dir: runs/old
resume: null
"""
"""As it was written before ``versions.json`` named a layout: classes have moved since, and ``loop.boards`` has another
name."""


@pytest.fixture
def old_run(tmp_path: Path) -> Path:
    """A finished run of two iterations that an older version wrote."""
    path = tmp_path / "old"
    (path / "episodes").mkdir(parents=True)
    (path / "checkpoints" / "iteration_00002").mkdir(parents=True)
    for name in ("last", "best"):
        (path / "checkpoints" / name).symlink_to("iteration_00002")
    (path / "config.yaml").write_text(OLD_CONFIG)
    (path / "versions.json").write_text('{"troupe": "0.1.0", "code": "9295a6343abff7b9", "commit": "f6746b8"}')
    rows = [
        {
            "iteration": number,
            "rollout/best_of_k_success": 0.875,
            "rollout/cut_off": number / 4,
            "rollout/tool/reward": 0.5,
            "rollout/tool/tokens_a_message": 4.0 + number,
            "rollout/plan/reward": 0.25,
            "rollout/plan/tokens_a_message": 5.0,
            "eval/success": number / 4,
            "eval/success_ci95": [0.0, 1.0],
        }
        for number in (1, 2)
    ]
    write_lines(path / "metrics.jsonl", rows)
    summary = Disk().scores(1, 2, 3, episodes=4) | {"iterations": 2}
    (path / "summary.json").write_text(json.dumps(summary))
    for name, tasks in {"test_00000": "a", "test_00002": "ab", "test_best": "abc", "validation_00001": "x"}.items():
        write_lines(path / "episodes" / f"{name}.jsonl", [make_episode(task, task in tasks) for task in "abcd"])
    return path


# ---- the runs of a sweep --------------------------------------------------------------------------------------------

LOOP = {
    "iterations": 4,
    "tasks_per_iteration": 2,
    "completions": 0,
    "eval_every": 1,
    "validation_tasks": 2,
    "test_tasks": 10,
}


class Disk:
    """Writes runs and the plan of a sweep."""

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
            "status": "finished",
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
        versions = {FORMAT_KEY: FORMAT, "code": code_hash(config) if code is None else code}
        (path / "versions.json").write_text(json.dumps(versions))
        (path / "metrics.jsonl").touch()
        if summary is not None:
            (path / "summary.json").write_text(json.dumps(summary))
            (path / "episodes").mkdir()
            for prefix, name in (("eval_before", "test_00000"), ("eval", "test_00004"), ("eval_best", "test_best")):
                success, count = (summary.get(f"{prefix}/{key}") for key in ("success", "episodes"))
                if success is not None and count is not None:
                    self.episodes(path, name, success, count)
        return path

    def episodes(self, run: Path, name: str, success: float, count: int, tasks: str = "") -> None:
        """The episodes of an evaluation: the first tasks are solved.  ``tasks`` tells those of other evaluations."""
        solved = round(success * count)
        rows = [make_episode(f"{tasks}{place}", place < solved) for place in range(count)]
        write_lines(run / "episodes" / f"{name}.jsonl", rows)

    def curve(self, run: Path, points: Mapping[int, float], completions: int, tasks: str = "") -> None:
        """A learning curve: iteration to success on 10 validation tasks; each iteration has so many ``completions``,
        ten times as many tokens, and two optimizer steps of each of two policies."""
        steps = {"train/tool/optimizer_steps": 2.0, "train/plan/optimizer_steps": 2.0}
        costs = {"rollout/completions": completions, "rollout/tokens": 10 * completions, **steps}
        write_lines(run / "metrics.jsonl", [{"iteration": i, **costs} for i in range(1, max(points) + 1)])
        for iteration, success in points.items():
            self.episodes(run, f"validation_{iteration:05d}", success, 10, tasks)

    def sweep(self, root: Path, evaluations: tuple[str, ...] = ()) -> SweepRecord:
        """Write the plan of a sweep over the runs below ``root``: settings a and b, two seeds each."""
        jobs = []
        for setting, k in (("a", 2), ("b", 4)):
            for seed in (0, 1):
                config = self.config(seed, k)
                overrides = (f"k={k}", f"seed={seed}")
                jobs.append(SweepJob(setting, "", seed, overrides, training_hash(config), evaluation_keys(config)))
        claim = Claim("b beats a", "b", 0.05, over="a")
        record = SweepRecord(root / "sweeps" / "s", "s", "Is b better?", root, evaluations, [claim], jobs)
        record.write()
        return record


@pytest.fixture(scope="session")
def disk() -> Disk:
    return Disk()
