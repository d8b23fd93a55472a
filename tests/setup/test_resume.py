"""A run that is stopped, however, and continued is the run that was never stopped: the same bits."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from troupe.cli import train
from troupe.errors import ConfigError, DiskFullError
from troupe.loop import TrainLoop
from troupe.models.bases.loading import checkpoint_weights
from troupe.models.pools.checkpoint import CheckpointError
from troupe.rollout.samplers.tree import TreeSampler
from troupe.runs.files import RunDirectoryError
from troupe.runs.lock import HeldError
from troupe.setup.checks import checked
from troupe.setup.resume import check_equal

from ..asked import rows, summary
from ..worlds import slow_but

SMALL = [
    "experiment=sokoban_specialized",
    "algorithm=at_grpo_shuffled",  # its credit draws random numbers from one iteration to the next
    "loop.iterations=5",
    "loop.tasks_per_iteration=3",
    "loop.eval_every=2",
    "loop.validation_tasks=3",
    "loop.test_tasks=3",
    "loop.checkpoint.every=3",
    "env.horizon=2",
]
Resumed = Callable[..., TrainLoop]


@pytest.fixture(scope="module")
def straight(composed: Callable[..., DictConfig], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run that nobody stopped."""
    path = tmp_path_factory.mktemp("straight") / "run"
    train.run(composed(*SMALL, f"run_dir={path}"))
    return path


@pytest.fixture
def begin(composed: Callable[..., DictConfig], tmp_path: Path) -> Callable[..., TrainLoop]:
    """``begin("key=value", ...)``: the same run in a directory of its own, not yet started."""
    return lambda *overrides: train.build(composed(*SMALL, f"run_dir={tmp_path / 'run'}", *overrides))


@pytest.fixture
def resume(composed: Callable[..., DictConfig]) -> Resumed:
    return lambda path, *overrides: train.build(composed(f"resume={path}", *overrides))


def assert_equal(path: Path, other: Path) -> None:
    """Weights, metrics, summary, episodes."""
    assert rows(path) == rows(other)
    assert summary(path) == summary(other)
    for name in ("last", "best"):
        for policy in ("tool", "plan"):
            mine, its = (checkpoint_weights(each / "checkpoints" / name / policy) for each in (path, other))
            assert mine.keys() == its.keys() and all(torch.equal(mine[key], its[key]) for key in mine)
    files = [{file.name: file.read_bytes() for file in (each / "episodes").iterdir()} for each in (path, other)]
    assert files[0] == files[1]


def stop(loop: TrainLoop, where: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run until ``where`` (a coroutine of the loop or of its evaluations) is called after ``at`` iterations, and
    interrupt there.
    """
    owner = loop.held_out if where == "evaluate" else loop
    real = getattr(owner, where)

    async def call(*arguments: Any) -> Any:
        if loop.progress.iteration == at:
            raise KeyboardInterrupt
        return await real(*arguments)

    monkeypatch.setattr(owner, where, call)
    with pytest.raises(KeyboardInterrupt):
        train.train(loop)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "at"),
    # The first evaluation, a rollout, the last evaluation.
    [
        ("evaluate", 0),
        ("collect", 2),
        ("_final_evaluation", 5),
    ],
)
def test_an_interrupted_run_goes_on_to_the_bit(
    begin: Callable[..., TrainLoop],
    resume: Resumed,
    straight: Path,
    where: str,
    at: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = begin()
    stop(loop, where, at, monkeypatch)
    path = loop.directory.path
    assert json.loads((path / "summary.json").read_text())["status"] == "interrupted"
    assert len(rows(path)) == at
    again = resume(path)
    assert again.progress.iteration == at
    train.train(again)
    assert_equal(path, straight)


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_bit(resume: Resumed, straight: Path, tmp_path: Path) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "troupe", "train", *SMALL, "run_dir=run"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
    path, deadline = tmp_path / "run", time.monotonic() + 120
    while not (path / "metrics.jsonl").exists() or len(rows(path)) < 4:  # a row beyond the checkpoint of iteration 3
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"iteration": 5, "roll')  # killed while it wrote
    train.train(resume(path))
    assert_equal(path, straight)


@pytest.mark.slow
def test_a_run_can_be_longer_than_was_planned(begin: Callable[..., TrainLoop], resume: Resumed, straight: Path) -> None:
    loop = begin("loop.iterations=4")
    train.train(loop)
    again = resume(loop.directory.path, "loop.iterations=5", "loop.checkpoint.keep=1")
    train.train(again)
    (loop.directory.path / "episodes" / "test_00004.jsonl").unlink()  # how good it was after the iterations planned
    assert_equal(loop.directory.path, straight)
    kept = OmegaConf.load(loop.directory.path / "config.yaml")
    assert kept.loop.iterations == 5 and kept.loop.checkpoint.keep == 1 and kept.resume is None


@pytest.mark.slow
def test_an_older_checkpoint_can_be_named(resume: Resumed, straight: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    shutil.copytree(straight, path, symlinks=True)
    names = sorted(file.name for file in (path / "checkpoints").iterdir() if not file.is_symlink())
    assert "iteration_00003" in names and names[-1] == "iteration_00005"
    loop = resume(path / "checkpoints" / "iteration_00003")
    assert len(rows(path)) == 3 and not (path / "checkpoints" / "iteration_00005").exists()
    train.train(loop)
    assert_equal(path, straight)


@pytest.mark.slow
def test_a_run_without_a_checkpoint_can_begin_anew(resume: Resumed, straight: Path, tmp_path: Path) -> None:
    """As one that was killed before it wrote the first."""
    path = tmp_path / "copy"
    shutil.copytree(straight, path, symlinks=True)
    start = path / "checkpoints" / "iteration_00000"
    with pytest.raises(CheckpointError, match=r"begun anew only where there is no checkpoint: .*iteration_00005 is"):
        resume(start)
    for folder in (path / "checkpoints").glob("iteration_*"):
        shutil.rmtree(folder)
    with pytest.raises(CheckpointError, match=rf"Nothing can be continued; resume={start} begins it anew"):
        resume(path)
    assert len(rows(path)) == 5
    loop = resume(start)
    assert rows(path) == [] and not (path / "checkpoints" / "last").is_symlink()
    train.train(loop)
    assert_equal(path, straight)


def test_the_whole_command_with_resume(resume: Resumed, straight: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    shutil.copytree(straight, path, symlinks=True)
    loop = resume(path, *SMALL, "loop.iterations=6")
    assert loop.settings.iterations == 6 and loop.progress.iteration == 5
    with pytest.raises(ConfigError, match=r"; seed \(0 in the run, 1 here\)\. resume=RUN_DIR alone"):
        resume(path, *SMALL, "seed=1")


@pytest.mark.slow
def test_another_logger_alone(resume: Resumed, straight: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    shutil.copytree(straight, path, symlinks=True)
    resume(path, "logger=csv", "loop.iterations=6").directory.release()
    kept = OmegaConf.load(path / "config.yaml")
    assert list(kept.logger) == ["csv"] and kept.loop.tasks_per_iteration == 3


@pytest.mark.slow
def test_another_bound_of_the_cache(resume: Resumed, straight: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    shutil.copytree(straight, path, symlinks=True)
    resume(path, "engine.max_cache_gib=0.5", "loop.iterations=6").directory.release()
    assert OmegaConf.load(path / "config.yaml").engine.max_cache_gib == 0.5
    text = (path / "config.yaml").read_text()
    (path / "config.yaml").write_text(text.replace("max_cache_gib: 4", "max_cache_gib: 3"))
    resume(path, *SMALL, "loop.iterations=6").directory.release()  # a whole command, of another version's default


@pytest.mark.slow
def test_a_copy_that_lost_its_empty_folder(resume: Resumed, straight: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    shutil.copytree(straight, path, symlinks=True)
    shutil.rmtree(path / "episodes")
    (path / "episodes").touch()
    with pytest.raises(ValueError, match=r"copy/episodes is a file, not a folder"):
        resume(path, "loop.iterations=6")
    (path / "episodes").unlink()
    train.train(resume(path, "loop.iterations=6"))
    assert (path / "episodes" / "test_00006.jsonl").is_file()


# ---- refusals: nothing is changed ------------------------------------------------------------------------------------


def damage_config(path: Path) -> None:
    text = (path / "config.yaml").read_text()
    (path / "config.yaml").write_text(text.replace("clip_norm: 1.0", "clip_norm: 2.0"))


def damage_weights(path: Path) -> None:
    (path / "checkpoints" / "last" / "plan" / "model.safetensors").write_bytes(b"half")


def lose_rows(path: Path) -> None:
    text = (path / "metrics.jsonl").read_text()
    (path / "metrics.jsonl").write_text(text[text.index("\n") + 1 :])


def no_run(path: Path) -> None:
    (path / "config.yaml").unlink()


def no_checkpoint(path: Path) -> None:
    shutil.rmtree(path / "checkpoints")


MORE = "loop.iterations=6"
REFUSED: dict[str, tuple[list[str], Callable[[Path], None] | None, str]] = {
    "finished": ([], None, r"the run has finished, after 5 iterations; to go on, give a larger loop\.iterations"),
    "two keys": (
        [MORE, "env.horizon=3", "loop.tasks_per_iteration=4"],
        None,
        r"env\.horizon \(2 in the run, 3 here\); loop\.tasks_per_iteration \(3 in the run, 4 here\)",
    ),
    "a bound of the scale": (
        [MORE, "scale.max_cache_gib=1"],
        None,
        r"scale\.max_cache_gib: a run that goes on takes another bound by engine\.max_cache_gib",
    ),
    "another experiment": ([MORE, "experiment=sokoban_shared"], None, r"cannot change .*team\.plan"),
    "another directory": ([MORE, "run_dir=elsewhere"], None, r"not in run_dir=elsewhere; leave run_dir out"),
    "no run": ([MORE], no_run, r"is not a run directory: config\.yaml is missing"),
    "no checkpoint": ([MORE], no_checkpoint, r"checkpoints/last does not exist"),
    "config changed": (
        [MORE],
        damage_config,
        r"algorithm\.update\.clip_norm \(1\.0 in the run, 2\.0 here\)\. .*config\.yaml was changed since",
    ),
    "damaged": (
        [MORE],
        damage_weights,
        r"last/plan/model\.safetensors is damaged: .*Another one is complete: resume=.*iteration_0000\d",
    ),
    "rows lost": ([MORE], lose_rows, r"metrics\.jsonl, line 1: expected iteration 1, found 2"),
}


@pytest.mark.parametrize("case", slow_but(("finished", "two keys", "config changed", "damaged"), REFUSED))
def test_what_cannot_be_continued_is_refused(
    resume: Resumed, composed: Callable[..., DictConfig], straight: Path, tmp_path: Path, case: str
) -> None:
    overrides, harm, message = REFUSED[case]
    path = tmp_path / "copy"
    shutil.copytree(straight, path, symlinks=True)
    if harm:
        harm(path)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises((ConfigError, CheckpointError, RunDirectoryError), match=message):
        resume(path, *overrides)
    with pytest.raises((ConfigError, CheckpointError, RunDirectoryError), match=message):
        checked(composed(f"resume={path}", "dry_run=true", *overrides))
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def test_a_run_of_an_older_version_is_refused_with_the_reason(resume: Resumed, old_run: Path) -> None:
    before = {file: file.read_bytes() for file in old_run.rglob("*") if file.is_file()}
    for place in (old_run, old_run / "checkpoints" / "iteration_00002"):
        with pytest.raises(ConfigError, match=r"resume: .*/old was written by an older version of Troupe"):
            resume(place, MORE)
    assert {file: file.read_bytes() for file in old_run.rglob("*") if file.is_file()} == before


@pytest.mark.slow
def test_a_run_from_before_its_reward_had_a_name_goes_on_with_its_own_outcomes(
    resume: Resumed, straight: Path, tmp_path: Path
) -> None:
    """``lookahead`` stood in its place, in the configuration and in the checkpoint."""
    path = tmp_path / "copy"
    shutil.copytree(straight, path, symlinks=True)
    text = (path / "config.yaml").read_text().replace("  reward:\n    team: own\n", "")
    (path / "config.yaml").write_text(text.replace("    k: 4\n", "    k: 4\n    lookahead: 0\n"))
    last = path / "checkpoints" / "last"
    text = (last / "state.json").read_text()
    older = text.replace('"algorithm.reward.team": "own"', '"algorithm.sampler.lookahead": 0')
    (last / "state.json").write_text(older)
    sums = json.loads((last / "checksums.json").read_text())
    sums["state.json"] = hashlib.sha256(older.encode()).hexdigest()
    (last / "checksums.json").write_text(json.dumps(sums))
    assert older != text
    sampler = resume(path, MORE).sampler
    assert isinstance(sampler, TreeSampler) and sampler.mix.team == "own"


def test_a_dry_run_of_a_run_that_goes_on(composed: Callable[..., DictConfig], straight: Path) -> None:
    before = {file: file.read_bytes() for file in straight.rglob("*") if file.is_file()}
    parts, lacks = checked(composed(f"resume={straight}", "dry_run=true", MORE))
    assert (parts.config.algorithm.credit["_target_"], parts.settings.iterations, lacks) == (
        "troupe.algorithms.credit.shuffled.ShuffledAtGrpo",
        6,
        [],
    )
    assert {file: file.read_bytes() for file in straight.rglob("*") if file.is_file()} == before


def test_a_run_that_is_under_way_is_refused(resume: Resumed, begin: Callable[..., TrainLoop]) -> None:
    loop = begin()
    with pytest.raises(HeldError, match=r"/run is in use by process \d+ on"):
        resume(loop.directory.path)
    loop.directory.release()
    with pytest.raises(
        CheckpointError, match=r"ended before its first checkpoint, or lost it\. Nothing can"
    ):  # and whoever is refused lets go
        resume(loop.directory.path)
    with pytest.raises(CheckpointError):
        resume(loop.directory.path)


def test_a_checkpoint_of_another_run_is_refused(resume: Resumed, straight: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    shutil.copytree(straight, path, symlinks=True)
    text = (path / "config.yaml").read_text()
    (path / "config.yaml").write_text(text.replace("seed: 0", "seed: 3"))
    with pytest.raises(ConfigError, match=r"seed \(0 in the run, 3 here\).*was changed since .*iteration_00005"):
        resume(path, MORE)


# ---- a full disk ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_that_fills_the_disk_says_so_and_goes_on_once_there_is_room(
    composed: Callable[..., DictConfig],
    resume: Resumed,
    straight: Path,
    small_disk: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = small_disk.path / "run"
    loop = train.build(composed(*SMALL, "loop.checkpoint.every=2", f"run_dir={path}"))
    real = loop.checkpoints.write

    def filling(*arguments: Any) -> None:
        if loop.progress.iteration == 4 and not small_disk.filler.exists():
            small_disk.fill()
        real(*arguments)

    monkeypatch.setattr(loop.checkpoints, "write", filling)
    with pytest.raises((DiskFullError, CheckpointError), match=r"disk full: \d+ MiB free at .*"):
        train.train(loop)
    assert loop.progress.iteration == 4
    caplog.clear()  # the report had no room, either
    small_disk.free()
    assert not list(path.rglob("*.tmp"))
    assert [file.name for file in (path / "checkpoints").glob("iteration_*")] == ["iteration_00002"]
    assert train.train(resume(path))["status"] == "finished"
    assert rows(path) == rows(straight)


def test_a_key_on_one_side_alone_differs() -> None:
    check_equal({"a": 1, "b": 2}, {"b": 2, "a": 1}, "")
    for before, after in (({"a": 1}, {}), ({}, {"a": 1}), ({"a": None}, {})):
        with pytest.raises(ConfigError, match=r"cannot change a \(.*'nothing'.*\)\. Do so"):
            check_equal(before, after, "Do so")
