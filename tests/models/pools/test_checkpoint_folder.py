"""Which checkpoints a run keeps, and what its links mean, with one tiny policy."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from troupe.experience import Sample
from troupe.models.bases.loading import checkpoint_weights
from troupe.models.pools.checkpoint import CheckpointError, CheckpointFolder
from troupe.models.pools.pool import Policy

from ..conftest import Tiny, full_policy, learn

Write = Callable[[int, int | None], None]


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    path = tmp_path / "checkpoints"
    path.mkdir()
    return CheckpointFolder(path, {"seed": 0}, every=5, keep=2)


@pytest.fixture
def policy(tiny: Tiny) -> Policy:
    return full_policy(tiny())


@pytest.fixture
def write(folder: CheckpointFolder, policy: Policy, tokenizer: PreTrainedTokenizerFast) -> Write:
    """``write(iteration, best)``."""

    def write(iteration: int, best: int | None = None) -> None:
        folder.write({"p": policy}, {"p": tokenizer}, {"iteration": iteration, "best_iteration": best})

    return write


def links(folder: CheckpointFolder) -> dict[str, str]:
    return {path.name: path.readlink().name for path in folder.path.iterdir() if path.is_symlink()}


def test_the_newest_stay_and_whatever_was_best_for_one_of_them(folder: CheckpointFolder, write: Write) -> None:
    kept = []
    for iteration, best in [(5, None), (10, 10), (15, 10), (20, 10), (25, 25), (30, 25), (35, 25)]:
        write(iteration, best)
        kept.append(folder.iterations())
    assert kept == [[5], [5, 10], [10, 15], [10, 15, 20], [10, 20, 25], [25, 30], [25, 30, 35]]
    assert links(folder) == {"last": "iteration_00035", "best": "iteration_00025"}
    assert folder.state("last") == folder.state("iteration_00035")
    assert folder.state("last")["config"] == {"seed": 0}


def test_what_is_there_is_not_written_again(
    folder: CheckpointFolder, write: Write, policy: Policy, groups: Callable[..., list[list[Sample]]]
) -> None:
    write(5, None)
    before = (folder.at(5) / "p" / "model.safetensors").stat().st_ino
    write(5, 5)
    assert (folder.at(5) / "p" / "model.safetensors").stat().st_ino == before
    assert links(folder) == {"last": "iteration_00005", "best": "iteration_00005"}
    asyncio.run(learn(policy, groups()))
    write(10, 5)
    one, other = (checkpoint_weights(folder.path / name / "p") for name in ("best", "last"))
    assert any(not torch.equal(one[key], other[key]) for key in one)


def test_a_damaged_one_is_answered_with_one_that_is_whole(folder: CheckpointFolder, write: Write) -> None:
    for iteration in (5, 10):
        write(iteration, 5)
    damaged = folder.at(10) / "p" / "training.pt"
    damaged.write_bytes(b"?")
    with pytest.raises(CheckpointError) as error:
        folder.state("last")
    assert "last/p/training.pt is damaged" in str(error.value)
    assert f"Another one is complete: resume={folder.at(5)}" in str(error.value)
    assert folder.state("iteration_00005")["iteration"] == 5
    (folder.at(5) / "p" / "config.json").unlink()
    with pytest.raises(CheckpointError, match="No other checkpoint is complete"):
        folder.state("last")


def test_the_best_is_checked_too(folder: CheckpointFolder, write: Write) -> None:
    for iteration in (5, 10):
        write(iteration, 5)
    (folder.at(5) / "p" / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"iteration_00005/p/config\.json is missing"):
        folder.state("last")


def test_a_folder_without_any(folder: CheckpointFolder) -> None:
    with pytest.raises(CheckpointError, match=r"checkpoints/last does not exist: the run ended before its first"):
        folder.state("last")


def test_a_copy_without_links_can_be_written_on(folder: CheckpointFolder, write: Write, tmp_path: Path) -> None:
    write(5, 5)
    copied = CheckpointFolder(tmp_path / "copy", {"seed": 0}, every=5, keep=2)
    shutil.copytree(folder.path, copied.path)
    assert copied.state("last")["iteration"] == 5 and not (copied.path / "last").is_symlink()
    copied.point({"iteration": 5, "best_iteration": 5})
    assert links(copied) == {"last": "iteration_00005", "best": "iteration_00005"}


def test_later_ones_are_forgotten(folder: CheckpointFolder, write: Write) -> None:
    for iteration in (5, 10):
        write(iteration, None)
    folder.forget_after(5)
    assert folder.iterations() == [5]


def test_what_cannot_be_written_says_what_is_left(folder: CheckpointFolder, write: Write) -> None:
    (folder.path / "iteration_00005.tmp").write_text("in the way")
    with pytest.raises(
        CheckpointError, match=r"could not be written: .*; of the checkpoints before, there is none yet"
    ):
        write(5, None)
    write(10, None)
    (folder.path / "iteration_00015.tmp").write_text("in the way")
    with pytest.raises(CheckpointError, match=r"of the checkpoints before, .*iteration_00010 is complete"):
        write(15, None)
    assert folder.state("last")["iteration"] == 10


@pytest.mark.parametrize("name", ["every", "keep"])
@pytest.mark.parametrize("value", [0, 1.5, True, "often"])
def test_settings_out_of_range_are_named(tmp_path: Path, name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"loop\.checkpoint\.{name} must be a whole number of at least 1"):
        CheckpointFolder(tmp_path, {}, **{name: value})
