"""Sweeps of tiny real runs: interrupted, continued, failing, stale, side by side."""

import csv
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.hydra_config import HydraConfig

from troupe.cli.sweep import run
from troupe.loop import TrainLoop
from troupe.runs.files import FORMAT, FORMAT_KEY
from troupe.runs.index import find_runs
from troupe.runs.lock import Lock
from troupe.sweep.summary import stored_runs

from ..processes import alive, below

SMALL = [
    "loop.iterations=1",
    "loop.tasks_per_iteration=2",
    "loop.eval_every=1",
    "loop.validation_tasks=2",
    "loop.test_tasks=2",
]
SHORT = ["env.horizon=1", "algorithm.sampler.k=2"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Every sweep runs in an empty folder; what Hydra sets for the process is put back."""
    handlers = logging.root.handlers[:]
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    HydraConfig.instance().cfg = None
    logging.root.handlers[:] = handlers  # Hydra's write to a stream that ends with the test


def write(name: str, settings: dict[str, list[str]], seeds: list[int], **more: Any) -> str:
    content = {"question": "?", "overrides": [*SMALL, *SHORT], "settings": settings, "seeds": seeds, **more}
    Path(f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return f"sweep={name}.yaml"


def program(*arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-m", "troupe", "sweep", *arguments], env=environment, **pipes)


def directories() -> set[Path]:
    return {file.parent for file in Path("runs").glob("*/*/config.yaml")}


def finished() -> set[Path]:
    return {run.path for run in find_runs(Path("runs")) if run.finished}


def lines(run: Path) -> list[str]:
    """The rows of metrics, whose times are never twice the same."""
    file = run / "metrics.jsonl"
    return file.read_text().splitlines() if file.exists() else []


def table(runs: str, name: str) -> list[dict[str, str]]:
    """The rows of a sweep's table, but for folders and seconds."""
    with Path(runs, "sweeps", name, "runs.csv").open() as file:
        return [{k: v for k, v in row.items() if k not in ("run", "wall_s", "cpu_s")} for row in csv.DictReader(file)]


@pytest.mark.slow
def test_an_interrupted_sweep_ends_as_if_it_had_not_been(capsys: pytest.CaptureFixture[str]) -> None:
    """Though two commands go on with it at once."""
    sweep = write("both", {"shared": ["experiment=sokoban_shared", "loop.iterations=4"]}, [0, 1])
    process = program(sweep)
    deadline = time.monotonic() + 300
    while sum(map(len, map(lines, directories()))) < 5:  # one run is finished, the second is at work
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "Traceback" not in err
    assert err.splitlines()[-1] == "interrupted; the same command goes on from there"
    assert out.count("| missing |") == 1 and out.count("| finished |") == 1
    begun = {path: lines(path) for path in directories()}
    assert sorted(map(len, begun.values()))[0] in (1, 2, 3) and len(begun) == 2
    (first,) = finished()
    before = (first / "summary.json").read_bytes()

    two = [program(sweep, "launcher=joblib", "hydra.launcher.n_jobs=2"), program(sweep)]
    said = [process.communicate(timeout=300) for process in two]
    assert all("Traceback" not in err for _, err in said)
    assert any("2 runs, 1 finished, 1 to run" in out for out, _ in said)
    assert run([sweep]) == 0  # whatever one left to the other
    assert (first / "summary.json").read_bytes() == before
    assert directories() == begun.keys()
    assert all(lines(path)[: len(there)] == there for path, there in begun.items()), "an iteration was done twice"
    assert all(len(lines(path)) == 4 for path in begun)

    capsys.readouterr()
    assert run([sweep]) == 0
    assert "2 finished, 0 to run" in capsys.readouterr().out
    assert run([sweep, "runs=straight"]) == 0
    assert table("runs", "both") == table("straight", "both")


@pytest.fixture
def advanced(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """(Seed, iteration) of each iteration that is begun; an interrupt comes in place of the fourth."""
    seen: list[tuple[int, int]] = []
    real = TrainLoop.run_iteration

    async def run_iteration(loop: TrainLoop) -> dict[str, Any]:
        if len(seen) == 3:
            seen.append((-1, -1))
            raise KeyboardInterrupt
        seen.append((loop.seed, loop.progress.iteration))
        return await real(loop)

    monkeypatch.setattr(TrainLoop, "run_iteration", run_iteration)
    yield seen


def interrupt(*arguments: str) -> Path:
    """The directory of the run that was interrupted."""
    with pytest.raises(KeyboardInterrupt):
        run(arguments)
    (begun,) = directories() - finished()
    return begun


@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher",
    [["launcher=basic"], ["launcher=joblib", "hydra.launcher.n_jobs=1"]],
    ids=str,
)
def test_no_iteration_is_done_twice(launcher: list[str], advanced: list[tuple[int, int]]) -> None:
    sweep = write("two", {"a": ["loop.iterations=2"]}, [0, 1])
    interrupt(sweep, *launcher)
    assert run([sweep, *launcher]) == 0
    assert advanced == [(0, 0), (0, 1), (1, 0), (-1, -1), (1, 1)]
    assert len(directories()) == 2
    if launcher[0] == "launcher=joblib":  # what a run said before is kept
        logs = [log.read_text() for log in Path("runs/sweeps/two/logs").iterdir()]
        assert sorted(log.count("after training") for log in logs) == [1, 1]
        assert sorted(log.count(", after 1 iteration\n") for log in logs) == [0, 1]
        assert sorted(log.count("before training") for log in logs) == [1, 1]


@pytest.mark.slow
@pytest.mark.usefixtures("advanced")
def test_what_cannot_be_continued_is_begun_anew(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = write("one", {"a": ["loop.iterations=4"]}, [0])
    empty = interrupt(sweep)
    damaged = Path(shutil.copytree(empty, empty.with_name("damaged"), symlinks=True))
    (damaged / "checkpoints" / "last" / "state.json").write_text("{")
    shutil.rmtree(empty / "checkpoints")
    kept = {path: lines(path) for path in directories()}
    capsys.readouterr()
    assert run([sweep]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if "cannot be continued" in line]
    why = [
        (f"{damaged} cannot be continued, the next one is tried: ", "state.json is damaged"),
        (f"{empty} cannot be continued, the run begins anew: ", "ended before its first checkpoint"),
    ]
    assert all(line.startswith(start) and end in line for line, (start, end) in zip(said, why, strict=True))
    (new,) = directories() - kept.keys()
    assert finished() == {new} and all(lines(path) == before for path, before in kept.items())


@pytest.mark.slow
@pytest.mark.usefixtures("advanced")
@pytest.mark.parametrize("of", ["run", "training"])
def test_a_run_that_another_process_is_at_is_left_to_it(of: str, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = write("one", {"a": ["loop.iterations=4"]}, [0])
    begun = interrupt(sweep)
    training = begun.name.rpartition("-")[2]
    before = lines(begun)
    capsys.readouterr()
    with Lock(begun / "lock" if of == "run" else Path("runs/sweeps/locks", training), "it"):
        assert run([sweep]) == 1
    said = capsys.readouterr().out
    thing = begun if of == "run" else f"training {training}"
    assert f"sokoban_specialized, seed 0: {thing} is in use by process {os.getpid()} on" in said
    assert "| a | 0 | missing |" in said
    assert directories() == {begun} and lines(begun) == before
    assert run([sweep]) == 0
    assert finished() == {begun} and lines(begun)[:3] == before


@pytest.mark.slow
@pytest.mark.usefixtures("advanced")
def test_a_run_of_other_code_goes_on_unless_stale_ones_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = write("one", {"a": ["loop.iterations=4"]}, [0])
    begun = interrupt(sweep)
    (begun / "versions.json").write_text(json.dumps({FORMAT_KEY: FORMAT, "code": "older"}))
    assert run([sweep, "rerun_stale=true"]) == 0
    assert len(finished()) == 1 and begun not in finished()
    shutil.rmtree(finished().pop())
    capsys.readouterr()
    assert run([sweep]) == 0
    assert "| a | 0 | finished | code |" in capsys.readouterr().out
    assert finished() == {begun}


@pytest.mark.slow
def test_a_failed_run_does_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"bad": ["policies.tool.base=./nowhere"], "good": []}
    verdict = {"claim": "roles differ", "setting": "good", "over_metric": "swapped", "at_least": 0.0}
    sweep = write("mixed", settings, [0], evaluations=["swapped"], verdicts=[verdict])
    assert run([sweep]) == 1
    folder = Path("runs/sweeps/mixed")
    page = (folder / "table.md").read_text()
    assert "| bad | 0 | failed |" in page and "ConfigError: policies.tool.base=./nowhere cannot be loaded" in page
    assert "| good | 0 | finished |" in page and "| roles differ |" in page
    (error,) = (folder / "errors").iterdir()
    assert "Traceback (most recent call last)" in error.read_text()
    (good,) = directories()
    assert json.loads((good / "swapped.json").read_text())["episodes"] == 2

    capsys.readouterr()
    assert run([sweep]) == 1
    assert "2 runs, 1 finished, 1 to run" in capsys.readouterr().out
    assert directories() == {good}


@pytest.mark.slow
def test_what_cannot_be_swapped_is_a_failure() -> None:
    assert run([write("one", {"shared": ["experiment=sokoban_shared"]}, [0], evaluations=["swapped"])]) == 1
    page = Path("runs/sweeps/one/table.md").read_text()
    assert "| failed |" in page and "swap changes nothing: all agents act with policy 'shared'" in page


@pytest.mark.slow
def test_a_stale_run_is_marked_and_run_again_only_if_asked(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = write("one", {"a": []}, [0])
    assert run([sweep]) == 0
    (old,) = directories()
    (old / "versions.json").write_text(json.dumps({FORMAT_KEY: FORMAT, "code": "older"}))
    capsys.readouterr()
    assert run([sweep]) == 0
    said = capsys.readouterr().out
    assert "1 finished (1 of them stale: rerun_stale=true runs them again), 0 to run" in said
    assert "| a | 0 | finished | code |" in said
    assert run([sweep, "rerun_stale=true"]) == 0
    assert "| a | 0 | finished | code |" not in capsys.readouterr().out
    assert len(directories()) == 2 and old in directories()


def test_a_dry_run_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([write("one", {"a": []}, [0, 1]), "dry_run=true"]) == 0
    said = capsys.readouterr().out
    assert "2 runs, 0 finished, 2 to run" in said and "a: loop.iterations=1" in said
    assert not Path("runs").exists()


@pytest.mark.slow
def test_two_settings_that_train_alike_are_one_run() -> None:
    assert run([write("twins", {"a": [], "b": ["algorithm.sampler.alpha=1"]}, [0])]) == 0
    assert len(directories()) == 1
    assert Path("runs/sweeps/twins/table.md").read_text().count("| finished |") == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "settings"),
    [
        ("joblib", ["hydra.launcher.n_jobs=2"]),
        ("submitit_local", ["hydra.launcher.timeout_min=5", "hydra.launcher.submitit_folder=jobs"]),
    ],
)
def test_runs_side_by_side(launcher: str, settings: list[str]) -> None:
    if launcher.startswith("submitit"):
        pytest.importorskip("submitit")
    # Both seeds start in the same second, and one setting fails.
    sweep = write("many", {"a": [], "b": ["algorithm.sampler.alpha=0"], "bad": ["policies.tool.base=./nowhere"]}, [0])
    process = program(sweep, f"launcher={launcher}", *settings)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 1, err
    assert out.count("| finished |") == 2 and out.count("| failed |") == 1
    assert "ConfigError: policies.tool.base=./nowhere" in out
    assert len(directories()) == 2
    assert sum("after training" in log.read_text() for log in Path("runs/sweeps/many/logs").iterdir()) == 2


@pytest.mark.slow
def test_workers_end_with_a_sweep_that_is_killed() -> None:
    sweep = write("many", {"a": ["loop.iterations=1000"]}, [0, 1, 2])
    process = program(sweep, "launcher=joblib", "hydra.launcher.n_jobs=2")
    deadline = time.monotonic() + 300
    while len(begun := directories()) < 2 or min(len(lines(path)) for path in begun) < 1:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    workers = below(process.pid)
    process.kill()
    process.communicate(timeout=60)
    while any(map(alive, workers)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(directories()) == 2  # the third was not begun
    for path in directories():  # and the others were interrupted, with a checkpoint of what they had done
        last = (path / "checkpoints" / "last").resolve().name
        assert last == f"iteration_{len(lines(path)):05d}", last


@pytest.mark.slow
def test_a_worker_whose_sweep_ended_before_its_job_begins_does_nothing() -> None:
    """It says where it is by a file; then its parent is killed, and it goes on."""
    worker = [
        "import os, time",
        "from pathlib import Path",
        "from troupe.sweep.launcher import ending_with",
        "if os.fork():",
        "    os.wait()",
        "sweep = os.getppid()",
        "Path('ready').touch()",
        "while os.getppid() == sweep:",
        "    time.sleep(0.01)",
        "with ending_with(sweep, local=True):",
        "    Path('begun').touch()",
    ]
    process = subprocess.Popen([sys.executable, "-c", "\n".join(worker)])
    deadline = time.monotonic() + 60
    while not Path("ready").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    workers = below(process.pid)
    process.kill()
    process.wait(timeout=60)
    while any(map(alive, workers)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert workers and not Path("begun").exists()


@pytest.mark.slow
def test_two_processes_continue_a_run_together() -> None:
    ddp = ["strategy=ddp", "strategy.accelerator=cpu", "strategy.devices=2"]
    sweep = write("one", {"a": ["loop.iterations=2", "loop.checkpoint.every=1", *ddp]}, [0])
    program(sweep).communicate(timeout=300)
    (begun,) = directories()
    before = lines(begun)
    (begun / "summary.json").unlink()  # as if it had been killed before it was scored
    damaged = Path(shutil.copytree(begun, begun.with_name("damaged"), symlinks=True))
    (damaged / "checkpoints" / "last" / "state.json").write_text("{")
    process = program(sweep)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert out.count(f"{damaged} cannot be continued, the next one is tried: ") == 1
    assert f"seed 0: {begun}, after 2 iterations" in out
    assert finished() == {begun} and lines(begun) == before


@pytest.mark.slow
def test_tuned_then_run_then_sealed(capsys: pytest.CaptureFixture[str]) -> None:
    tuning = {"grid": {"scale.lr": [0.001, 0.0005]}, "seeds": [7], "overrides": []}
    own = ["experiment=sokoban_specialized", "loop.task_seed='${seed}'", "loop.validate_first=true"]
    sweep = write("tuned", {"team": own}, [0], tuning=tuning, sealed=99, threshold=0.5)

    assert run([sweep, "sealed=true", "dry_run=true"]) == 0
    out = capsys.readouterr().out
    assert "sweep tuned, tuning: 2 runs, 0 finished, 2 to run" in out and "team: not tuned yet" in out
    assert not Path("runs").exists()

    assert run([sweep]) == 0
    out = capsys.readouterr().out
    assert len(finished()) == 3 and "## At equal budgets" in out
    chosen = next(line for line in out.splitlines() if line.startswith("team: scale.lr="))
    (row,) = table("runs", "tuned")
    assert chosen.removeprefix("team: ") in row["overrides"] and row["sealed"] == ""

    assert run([sweep, "dry_run=true"]) == 0
    assert "tuned: 1 run, 1 finished, 0 to run" in capsys.readouterr().out
    assert run([sweep, "sealed=true"]) == 0
    (row,) = table("runs", "tuned")
    assert row["sealed"] in ("0.0", "0.5", "1.0") and len(finished()) == 3
    (final,) = [path for path in finished() if (path / "sealed.json").exists()]
    assert json.loads((final / "sealed.json").read_text())["task_seed"] == 99
    assert run([sweep, "seed=1", "dry_run=true"]) == 0
    assert re.search(r"seed=1: 1 run, \d+\.\d\d CPU-hours\n", capsys.readouterr().out)

    # On another machine: the runs are lost, the summaries are there.
    before, folder = table("runs", "tuned"), Path("runs/sweeps/tuned")
    shutil.copy(folder / "summary.jsonl", "final.jsonl")
    shutil.copy(folder / "tuning" / "summary.jsonl", "tuning.jsonl")
    shutil.rmtree("runs")
    assert run([sweep, "sealed=true", "finished=final.jsonl,tuning.jsonl"]) == 0
    out = capsys.readouterr().out
    assert "sweep tuned, tuning: 2 runs, 2 finished, 0 to run" in out and "answers no run" not in out
    assert finished() == set() and table("runs", "tuned") == before and chosen in out

    # A file of another configuration is named; only the seed that is asked for is run.
    several = write("tuned", {"team": own}, [0, 1, 2], tuning=tuning, sealed=99, threshold=0.5)
    other = [*SHORT[1:], "env.horizon=2"]
    assert run([several, *other, "finished=final.jsonl,tuning.jsonl", "dry_run=true"]) == 0
    out = capsys.readouterr().out
    assert "final.jsonl: no run in it answers one of these\ntuning.jsonl: no run in it answers one of these\n" in out
    assert run([several, "finished=final.jsonl,tuning.jsonl", "seed=1"]) == 0
    assert [row["status"] for row in table("runs", "tuned")] == ["finished"] and len(finished()) == 1


@pytest.mark.slow
def test_a_folder_of_summaries_counts_as_finished(capsys: pytest.CaptureFixture[str]) -> None:
    """Whole files that are not asked for have a line each, single runs of others, too."""
    folder = Path(__file__).parents[2] / "docs" / "results" / "summaries"
    words = ["sweep=learning", "experiment=search_specialized", "seed=0,1", f"finished={folder}", "dry_run=true"]
    assert run(words) == 0
    out = capsys.readouterr().out
    assert "6 runs, 6 finished" in out
    assert out.count("answers no run") == len(stored_runs(folder / "learning_search.jsonl")) - 6
    assert out.count(f"{folder / 'learning_search.jsonl'}: ") == out.count("answers no run")
    rest = [file for file in folder.glob("*.jsonl") if file.name != "learning_search.jsonl"]
    assert rest and all(f"{file}: no run in it answers one of these\n" in out for file in rest)
