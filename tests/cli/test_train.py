"""The command: every experiment can be built, and every mistake is answered with the key's name."""

import asyncio
import json
import logging
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from troupe.algorithms.credit.base import CreditRule
from troupe.cli import train
from troupe.cli.start import start
from troupe.experience import Candidate, Episode
from troupe.loop import TrainLoop

from ..worlds import SETTINGS, WORLDS, slow_but

Composed = Callable[..., DictConfig]
ROOT = Path(__file__).parents[2]
SMALL = [
    "loop.iterations=2",
    "loop.tasks_per_iteration=2",
    "loop.eval_every=1",
    "loop.validation_tasks=2",
    "loop.test_tasks=2",
    "env.horizon=2",
]


def names(group: str) -> list[str]:
    return sorted(file.stem for file in (ROOT / "configs" / group).glob("*.yaml"))


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Callable[..., str]]:
    """``command("key=value", ...)``: what a user reads when ``troupe`` refuses.

    It runs in this process, in an empty folder.
    """
    handlers = logging.root.handlers[:]

    def refused(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["troupe"])
        monkeypatch.chdir(tmp_path)
        with pytest.raises(SystemExit) as end:
            start("train", arguments)
        assert end.value.code not in (0, None)
        said = capsys.readouterr()
        return f"{end.value.code}\n{said.out}\n{said.err}"

    yield refused
    GlobalHydra.instance().clear()
    logging.root.handlers[:] = handlers  # Hydra's write to a stream that ends with the test


def built(composed: Composed, run_dir: Path, *overrides: str) -> TrainLoop:
    own = ("experiment=mixed", "experiment=math_team", "experiment=kuhn")  # which have no horizon
    without = any(each.startswith(own) for each in overrides)
    small = [word for word in SMALL if not without or not word.startswith("env.")]
    return train.build(composed(*overrides, f"run_dir={run_dir}", *small))


# ---- what can be built ----------------------------------------------------------------------------------------------


SMALL_WORLDS = [world for world in WORLDS if world not in SETTINGS and world != "reasoning_gym"]
"""Those that the laptop's models can read."""


ONE_REGIME_EACH = [
    f"{world}_{('specialized', 'shared', 'lora')[number % 3]}" for number, world in enumerate(SMALL_WORLDS)
]


@pytest.mark.parametrize(
    "experiment", slow_but(("math_team_lora", "sokoban_single"), [*ONE_REGIME_EACH, "sokoban_single"])
)
def test_a_team_of_every_world_can_be_built(composed: Composed, tmp_path: Path, experiment: str) -> None:
    """In one regime each; tests/setup/test_composition.py has all experiments."""
    loop = built(composed, tmp_path / "run", f"experiment={experiment}")
    assert loop.world.name == experiment.rpartition("_")[0] and loop.display.title == experiment
    team = dict(loop.router.team)
    assert {*loop.team.policies, *loop.self_play.past} == set(loop.team.engines) == set(team.values())
    for clients in (loop.team.training, loop.team.evaluation):
        assert {agent: client.policy for agent, client in clients.items()} == team
    # The configuration that is kept has no riddles left, and says what was asked for.
    text = (tmp_path / "run" / "config.yaml").read_text()
    assert "${" not in text
    kept = OmegaConf.create(text)
    assert kept.loop.iterations == loop.settings.iterations == 2
    assert kept.name == experiment


@pytest.fixture
def no_anomaly_detection() -> Iterator[None]:
    yield
    torch.autograd.set_detect_anomaly(False)


@pytest.mark.slow
@pytest.mark.usefixtures("no_anomaly_detection")
def test_the_debug_preset_shows_everything(
    composed: Composed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = f"run_dir={tmp_path / 'run'}"
    loop = train.build(composed("experiment=sokoban_specialized", "debug=default", run_dir, "env.horizon=1"))
    with pytest.raises(RuntimeError, match="SqrtBackward0"):  # the operation whose gradient is NaN
        (torch.zeros(1, requires_grad=True).sqrt() * 0).sum().backward()
    assert train.train(loop)["status"] == "finished" and loop.progress.iteration == 2
    lines = capsys.readouterr().out.splitlines()
    phases = [line for line in lines if re.match(r"(rollout|update|loading weights|evaluation)\b.*: ", line)]
    assert [line.split(":")[0] for line in phases[:11]] == [
        *("evaluation (before training)", "loading weights"),
        *("rollout", "update", "loading weights", "evaluation (validation after iteration 1)"),
        *("rollout", "update", "loading weights", "evaluation (validation after iteration 2)"),
        "evaluation (after training)",
    ]
    assert "4/4 episodes" in phases[2] and f"{4 * 2 * loop.sampler.k} completions" in phases[2]
    for part in ("    turn 0  tool: ", "    turn 0  plan: ", "    turn 0  tool saw: walls "):
        assert any(line.startswith(part) for line in lines)


async def _iteration(loop: TrainLoop) -> dict[str, Any]:
    try:
        return await loop.run_iteration()
    finally:
        for engine in loop.team.engines.values():
            await engine.close()


QUICK = ("at_grpo", "magrpo", "maac")
ALIKE = "at_grpo_flat at_grpo_turn_only dr_grpo gspo mareinforce maremax marloo rloo reinforce_pp_baseline".split()
"""Algorithms of the same classes as another one: their yamls are in the table of biases, which is computed anew."""


@pytest.mark.parametrize("algorithm", slow_but(QUICK, [name for name in names("algorithm") if name not in ALIKE]))
def test_every_algorithm_learns_from_an_iteration(composed: Composed, tmp_path: Path, algorithm: str) -> None:
    """One iteration on the real engine and learner: every candidate is judged, every policy is updated."""
    small = ["algorithm.sampler.k=2", "env.horizon=1", "loop.tasks_per_iteration=4", f"run_dir={tmp_path / 'run'}"]
    loop = train.build(composed(*SMALL, f"algorithm={algorithm}", *small))

    row = asyncio.run(_iteration(loop))
    assert all(math.isfinite(value) for value in row.values())
    for name, policy in loop.team.policies.items():
        assert policy.version == 1
        assert row[f"train/{name}/samples"] >= 8
        assert row[f"train/{name}/step_kl_nats"] >= 0


def test_engines_do_not_share_memory_with_the_learner(composed: Composed, tmp_path: Path) -> None:
    loop = built(composed, tmp_path / "run", "regime=shared")
    learner = {p.data_ptr() for p in loop.team.policies["shared"].pool.module.parameters()}
    (engine,) = {decoder.model for decoder in loop.team.engines["shared"]._decoders.values()}
    assert learner.isdisjoint(p.data_ptr() for p in engine.parameters())


def test_the_learner_judges_at_the_sampling_temperature(composed: Composed, tmp_path: Path) -> None:
    loop = built(composed, tmp_path / "run", "regime=shared", "policies.shared.sampling.train.temperature=0.8")
    assert loop.team.policies["shared"].pool.module.policies["shared"].temperature == 0.8
    assert loop.team.training["plan"].sampling.temperature == 0.8
    assert loop.team.evaluation["plan"].sampling.temperature == 1.0


def test_pools_start_alike_and_learn_apart(composed: Composed, tmp_path: Path) -> None:
    policies = built(composed, tmp_path / "run").team.policies.values()
    pairs = list(zip(*(policy.pool.module.parameters() for policy in policies), strict=True))
    assert all((one == other).all() and one is not other for one, other in pairs)


# ---- mistakes -------------------------------------------------------------------------------------------------------

MISTAKES = {
    "unknown experiment": (
        ["experiment=sokoban_sharde"],
        ["experiment=sokoban_sharde is unknown", "did you mean sokoban_shared?", "WORLD_REGIME"],
    ),
    "scale that the world lacks": (
        ["experiment=couplet_shared", "scale=paper_8b", "loop.tasks_per_iteration=2"],
        ["scale=paper_8b: env=couplet does not have this scale. Scales that it has: laptop"],
    ),
    "unknown logger in a list": (["logger=[csv, jsnol]"], ["logger=jsnol is unknown; did you mean jsonl?"]),
    "added key": (["+sed=3"], ["sed is an unknown key", "did you mean seed?"]),
    "removed key": (["~policies.tool.sampling"], ["policies.tool.sampling is missing"]),
    "misspelt key": (
        ["loop.iteration=3"],
        ["loop.iteration is an unknown key; did you mean loop.iterations?"],
    ),
    "another choice's key": (["logger=csv", "logger.wandb.mode=x"], ["logger.wandb.mode is an unknown key"]),
    "one candidate": (["algorithm.sampler.k=1"], ["algorithm.sampler.k=1", "at least 2"]),
    "no such stage": (
        ["strategy=deepspeed_zero2", "strategy.strategy.stage=1"],
        ["strategy.strategy", "2 or 3, got 1"],
    ),
    "broken interpolation": (["seed=${loop.seed}"], ["loop.seed"]),
}
"""One of each kind; what is wrong in the sections is in tests/setup/test_refusals.py."""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_by_its_key(command: Callable[..., str], tmp_path: Path, mistake: str) -> None:
    arguments, parts = MISTAKES[mistake]
    said = command(*arguments)
    assert "Traceback" not in said
    for part in parts:
        assert part in said
    assert list(tmp_path.iterdir()) == []  # nothing was claimed or left lying about


def test_a_run_directory_that_holds_a_run(command: Callable[..., str], composed: Composed, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    built(composed, run_dir)
    before = {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}
    said = command(f"run_dir={run_dir}", *SMALL)
    assert f"run_dir={run_dir} already holds another run" in said and "Traceback" not in said
    assert {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()} == before


def test_the_whole_traceback_can_be_asked_for(command: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(ValueError, match=r"algorithm\.sampler\.k=1"):
        command("algorithm.sampler.k=1")


def test_truncated_sampling_is_said(composed: Composed, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    built(composed, tmp_path / "run", "policies.tool.sampling.train.top_p=0.9")
    (message,) = [record.getMessage() for record in caplog.records if record.name == "troupe.setup.parts"]
    assert message.startswith("policies.tool.sampling.train truncates (top_p=0.9")


def test_a_users_own_folder_of_experiments(command: Callable[..., str], tmp_path: Path) -> None:
    own = tmp_path / "own"
    (own / "experiment").mkdir(parents=True)
    (own / "experiment" / "mine.yaml").write_text("# @package _global_\nalgorithm:\n  sampler:\n    k: 1\n")
    said = command("experiment=mine", "--config-dir", str(own))
    assert "algorithm.sampler.k=1" in said


@pytest.mark.slow
def test_jobs_of_a_multirun_have_folders_of_their_own(
    command: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Same name, same seed, perhaps the same second.
    shared = ["experiment=sokoban_shared", *SMALL, "loop.iterations=0"]
    monkeypatch.setattr(sys, "argv", ["troupe"])
    monkeypatch.chdir(tmp_path)
    start("train", ["--multirun", "dry_run=true", "algorithm.sampler.k=2,3", *shared])
    assert not list(tmp_path.iterdir())
    start("train", ["--multirun", "algorithm.sampler.k=2,3", *shared])
    folders = sorted(path.name for path in (tmp_path / "runs" / "sokoban_shared").iterdir())
    assert [name.rsplit("-", 1)[1] for name in folders] == ["0", "1"]
    assert [path.name for path in tmp_path.iterdir()] == ["runs"], "Hydra leaves no folder of its own"


# ---- as a program ---------------------------------------------------------------------------------------------------


def program(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-m", "troupe", "train", *arguments], cwd=cwd, env=environment, **pipes)


@pytest.mark.slow
def test_the_program_refuses_in_one_line(tmp_path: Path) -> None:
    process = program("algorithm.sampler.k=1", cwd=tmp_path)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert out == ""
    assert err.startswith("error: algorithm.sampler.k=1: AtGrpo compares") and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_interrupted_program_leaves_a_usable_run(tmp_path: Path) -> None:
    many = ["loop.iterations=1000", "loop.eval_every=1000"]
    process = program("experiment=sokoban_shared", "run_dir=run", *SMALL, *many, cwd=tmp_path)
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text()):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err == "interrupted; the results so far are in run, and resume=run goes on from there\n"
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert summary["status"] == "interrupted"
    assert summary["iterations"] == len(rows) >= 1
    assert (tmp_path / "run" / "checkpoints" / "last" / "shared" / "model.safetensors").exists()


def test_a_kl_penalty_in_the_reward_scores_the_reference(composed: Composed, tmp_path: Path) -> None:
    """The engine's log-probabilities in the first iteration are the reference's but for rounding: no penalty."""
    small = ["algorithm.sampler.k=2", "env.horizon=1", "loop.tasks_per_iteration=2", f"run_dir={tmp_path / 'run'}"]
    small.append("diagnostics=off")  # whose trees are judged by a copy of the rule
    loop = train.build(composed(*SMALL, "algorithm=reinforce_pp", "algorithm.objective.kl=0.1", *small))
    judged: list[Candidate] = []
    credit = loop.credit.__class__.__call__

    def recorded(rule: CreditRule, episodes: Sequence[Episode]) -> None:
        credit(rule, episodes)
        judged.extend(candidate for episode in episodes for _, candidate in episode.candidates())

    with patch.object(loop.credit.__class__, "__call__", recorded):
        row = asyncio.run(_iteration(loop))
    assert len(judged) == 8
    for candidate in judged:
        assert candidate.reference_logprobs == pytest.approx(candidate.completion.logprobs, abs=1e-3)
        assert len(candidate.penalties) == len(candidate.completion.token_ids)
        assert candidate.penalties == pytest.approx([0.0] * len(candidate.penalties), abs=0.05)
    assert 0 <= row["train/tool/reference_kl_nats"] < 1e-3
