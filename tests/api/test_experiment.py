"""Experiments from Python: composed, planned, trained; within a running event loop, too."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hydra.core.hydra_config import HydraConfig

from troupe import Experiment, Run
from troupe.errors import ConfigError

SMALL = [
    "seed=7",
    "env.horizon=2",
    "loop.iterations=2",
    "loop.tasks_per_iteration=4",
    "loop.eval_every=1",
    "loop.validation_tasks=4",
    "loop.test_tasks=4",
]


def small(run_dir: Path, *overrides: str) -> Experiment:
    return Experiment.compose("sokoban_specialized", [*SMALL, f"run_dir={run_dir}", *overrides])


def figures(run: Run) -> list[dict[str, float]]:
    """The metrics that do not depend on time."""
    return [{key: value for key, value in row.items() if not key.endswith("_s")} for row in run.rows]


def test_an_experiment_is_composed_as_by_the_command(tmp_path: Path) -> None:
    before = HydraConfig.instance().cfg
    experiment = small(tmp_path / "run", "policies.tool.optimizer.lr=0.5")
    assert experiment.config["policies"]["tool"]["optimizer"]["lr"] == 0.5
    assert experiment.config["name"] == "sokoban_specialized"
    assert repr(experiment).startswith("Experiment(experiment=sokoban_specialized seed=7 env.horizon=2 ")
    assert HydraConfig.instance().cfg is before  # nothing is left for those who come after


def test_a_plan_writes_nothing(tmp_path: Path) -> None:
    plan = small(tmp_path / "run").plan()
    assert [pool.policy for pool in plan.pools] == ["tool", "plan"]
    assert (plan.iterations, plan.tasks_per_iteration) == (2, 4)
    assert "\nper iteration: 4 tasks, K = " in str(plan)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["loop.iteration=1"], r"loop\.iteration .*did you mean loop\.iterations\?"),
        (["algorithm=at_grp"], "did you mean at_grpo"),
        (["seed"], "seed is no override"),
        ("seed=1", r"overrides must be a list, such as \['seed=1', .*, got 'seed=1'"),
        ({"seed": 1}, "overrides must be a list"),
        (["seed=0,1"], "seed=0,1 has several values"),
    ],
    ids=str,
)
def test_a_wrong_override_is_named(overrides: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Experiment.compose("sokoban_specialized", overrides)


def test_an_experiment_is_not_made_by_its_name_alone() -> None:
    with pytest.raises(ConfigError, match=r"Experiment\.compose\('sokoban_shared'\) is the way"):
        Experiment("sokoban_shared")  # type: ignore[arg-type]


def test_a_dry_run_is_a_plan(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"dry_run=true: plan\(\) is the dry run"):
        small(tmp_path / "run", "dry_run=true").train()
    with pytest.raises(ConfigError, match="there is no such folder"):
        Experiment.compose("mine", config_dir=tmp_path / "nowhere")


def test_an_experiment_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    text = "# @package _global_\ndefaults:\n  - override /env: sokoban\nseed: 12\n"
    (tmp_path / "experiment" / "mine.yaml").write_text(text)
    assert Experiment.compose("mine", config_dir=tmp_path).config["seed"] == 12


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return small(tmp_path_factory.mktemp("trained") / "run").train()


def test_training_returns_the_run(run: Run) -> None:
    assert isinstance(run, Run) and run.finished
    assert (run.path / "report.html").is_file()
    assert list(run.metrics.index) == [1, 2]
    assert run.metrics["rollout/turns"].tolist() == [row["rollout/turns"] for row in run.rows]


@pytest.mark.slow
async def test_training_within_a_running_event_loop_gives_the_same_run(run: Run, tmp_path: Path) -> None:
    assert asyncio.get_running_loop().is_running()
    inside = small(tmp_path / "run").train()
    assert figures(inside) == figures(run)


@pytest.mark.slow
def test_training_in_another_thread_gives_the_same_run(run: Run, tmp_path: Path) -> None:
    results: list[Run] = []
    thread = threading.Thread(target=lambda: results.append(small(tmp_path / "run").train()))
    thread.start()
    thread.join()
    assert figures(results[0]) == figures(run)


async def test_an_error_within_a_running_event_loop_is_raised(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "file").touch()
    with pytest.raises(ValueError, match="is not an empty folder"):
        small(tmp_path / "run").train()


NOTEBOOK = """
import asyncio, sys
from troupe import Experiment

async def cell():
    try:
        Experiment.compose("sokoban_specialized", [*sys.argv[2:], f"run_dir={sys.argv[1]}"]).train()
    except KeyboardInterrupt:
        print("interrupted", flush=True)

asyncio.run(cell())
"""


@pytest.mark.slow
def test_an_interrupt_in_a_notebook_leaves_a_run_that_can_be_continued(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "run"
    command = [sys.executable, "-u", "-c", NOTEBOOK, str(path), *SMALL, "loop.iterations=1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if line.startswith("iteration 2/"))
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert "interrupted" in rest
    summary = json.loads((path / "summary.json").read_text())
    assert summary["status"] == "interrupted" and summary["iterations"] >= 2
    done = summary["iterations"]
    continued = Experiment.resume(path, [f"loop.iterations={done + 1}"]).train()
    assert continued.status == "finished" and continued.summary["iterations"] == done + 1
    assert figures(continued)[0] == figures(run)[0]  # the second iteration of that run was its last
