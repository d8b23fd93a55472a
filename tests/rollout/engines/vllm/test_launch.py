"""The folder and the environment of an engine's process."""

import errno
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import torch

from troupe.models.bases.loading import load_model
from troupe.rollout.engines.base import EngineError
from troupe.rollout.engines.vllm import launch
from troupe.rollout.engines.vllm.expected import ExpectedWeights
from troupe.rollout.engines.vllm.launch import environment
from troupe.rollout.engines.vllm.placement import Placement
from troupe.rollout.engines.vllm.settings import VllmSettings

from .conftest import DIGITS, Build


def test_a_process_sees_its_gpus_and_reads_no_pickles_that_vllm_would(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("CUDA_VISIBLE_DEVICES", "VLLM_ALLOW_INSECURE_SERIALIZATION")
    for name in names:
        monkeypatch.delenv(name, raising=False)

    def values(*placement: Any) -> tuple[str | None, ...]:
        with environment(VllmSettings(), Placement(*placement)):
            return tuple(map(os.environ.get, names))

    assert values((), "shared_memory") == (None, None)
    assert values((1,), "nccl") == ("1", None)
    assert values((2, 3), "shared_memory") == ("2,3", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-5,7")
    assert values((1,), "ipc") == ("GPU-5", None)
    assert values((1, 2), "shared_memory") == ("GPU-5,7", None)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "2,GPU-5,7" and names[1] not in os.environ


def test_temporary_files_are_the_engines_for_as_long_as_it_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = ("TMPDIR", "VLLM_RPC_BASE_PATH")
    monkeypatch.setenv("TMPDIR", "/tmp")
    for name in ("VLLM_RPC_BASE_PATH", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)  # not looked up yet
    with environment(VllmSettings(), None, tmp_path):
        assert [os.environ[name] for name in names] == [str(tmp_path)] * 2
        assert tempfile.gettempdir() == "/tmp"
        assert Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).parent == Path("/tmp"), "the next engine needs it again"
    assert [os.environ.get(name) for name in names] == ["/tmp", None]
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a path that leaves room for a socket's."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_engines_after_each_other_have_one_folder_with_room_for_sockets(
    monkeypatch: pytest.MonkeyPatch, short: Path
) -> None:
    monkeypatch.setattr(launch, "SHARED_MEMORY", short)
    with launch.Folder() as first, launch.Folder() as second, socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"{first.path}/{uuid4()}")
        assert first.path != second.path and first.path.stat().st_mode & 0o777 == 0o700
    assert not list(short.iterdir())
    (first.path / "left" / "behind").mkdir(parents=True)  # by a process that was killed
    (first.path / "link").symlink_to(short)
    first.cleanup()  # once only: the name may be another engine's by now
    with launch.Folder() as third:
        assert third.path == first.path and not list(third.path.iterdir())
    monkeypatch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(OSError(errno.EMFILE, "too many open files")))
    with pytest.raises(OSError, match="too many open files"):
        launch.Folder()
    monkeypatch.undo()
    monkeypatch.setattr(launch, "SHARED_MEMORY", short)
    first.path.rmdir()
    first.path.symlink_to(elsewhere := short / "elsewhere")
    elsewhere.mkdir()
    with launch.Folder() as fourth:
        assert fourth.path == second.path, "what is no folder of this user's is left alone"


def test_a_folder_with_no_room_for_sockets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(launch, "SHARED_MEMORY", tmp_path / "missing")
    monkeypatch.setattr(tempfile, "tempdir", str(deep := tmp_path / ("d" * 60)))
    deep.mkdir()
    with pytest.raises(EngineError, match=rf"^{deep}/troupe-vllm-.*: a socket's path allows a folder of 70 bytes"):
        launch.Folder()
    assert not list(deep.iterdir())


@pytest.mark.parametrize("others", ["weights", "files"])
def test_vllm_reads_the_files_that_the_learner_has_read_while_they_hold_its_weights(
    build: Build, grown: Build, tmp_path: Path, others: str
) -> None:
    base, first, second = (tmp_path / name for name in ("base", "first", "second"))
    build().save_pretrained(base)
    model = load_model(str(base))
    model.config.architectures = ["Another"]
    expected = ExpectedWeights({"plan": model}, VllmSettings(), DIGITS)
    for folder in (first, second):
        folder.mkdir()
        launch._write(expected, folder)
        read = load_model(str(folder))
        assert all(torch.equal(tensor, read.state_dict()[name]) for name, tensor in expected.tensors())
        assert read.config.architectures == ["Qwen3ForCausalLM"]
        linked = (folder / "model.safetensors").is_symlink()
        assert linked == (folder == first)
        if others == "weights":
            expected.update("plan", grown(build(), 1).state_dict(), 1)
        else:
            (base / "model.safetensors").unlink(missing_ok=True)
