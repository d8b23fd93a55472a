"""A checkpoint is complete or not there, says what is wrong with it, and continues to the bit."""

import asyncio
import errno
import hashlib
import json
import os
import resource
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast, Qwen3ForCausalLM

from troupe.errors import DiskFullError, unwritten
from troupe.models.bases.tiny import build_model
from troupe.models.pools import checkpoint
from troupe.models.pools.checkpoint import CheckpointError, read_state, restore, system_error, write_checkpoint
from troupe.models.pools.pool import Policy

from ..conftest import Groups, full_policy, model_of

Make = Callable[..., dict[str, Policy]]
Write = Callable[..., None]
FILES = [
    "b/config.json",
    "a/model.safetensors",
    "b/training.pt",
    "a/tokenizer.json",
    "rng.pt",
    "state.json",
    "checksums.json",
]


@pytest.fixture(scope="module")
def make(tiny: Callable[..., Qwen3ForCausalLM]) -> Make:
    """Policies with these names, each a tiny Qwen3 under AdamW and a falling rate."""

    def build(*names: str, model: Qwen3ForCausalLM | None = None) -> dict[str, Policy]:
        policies = {}
        for seed, name in enumerate(names):
            policies[name] = full_policy(
                model or tiny(seed=seed),
                name=name,
                optimizer=partial(torch.optim.AdamW, lr=1e-2),
                scheduler=partial(torch.optim.lr_scheduler.LinearLR, start_factor=1.0, end_factor=0.1, total_iters=5),
                mini_batches=2,
            )
        return policies

    return build


@pytest.fixture(scope="module")
def write(tokenizer: PreTrainedTokenizerFast) -> Write:
    def write(folder: Path, policies: Mapping[str, Policy], **state: Any) -> None:
        write_checkpoint(folder, policies, dict.fromkeys(policies, tokenizer), state)

    return write


@pytest.fixture(scope="module")
def original(make: Make, write: Write, groups: Callable[..., Groups], tmp_path_factory: pytest.TempPathFactory) -> Path:
    policies, folder = make("a", "b"), tmp_path_factory.mktemp("original") / "iteration_00001"
    learn(policies, groups())
    write(folder, policies, iteration=1)
    return folder


@pytest.fixture
def written(original: Path, tmp_path: Path) -> Path:
    """A checkpoint of the policies a and b after one update."""
    return Path(shutil.copytree(original, tmp_path / original.name))


def learn(policies: Mapping[str, Policy], samples: Groups) -> None:
    for policy in policies.values():
        asyncio.run(policy.pool.update({policy.name: samples}))


def weights(policies: Mapping[str, Policy]) -> dict[str, torch.Tensor]:
    return {
        f"{name}/{key}": value.clone()
        for name, policy in policies.items()
        for key, value in model_of(policy).state_dict().items()
    }


def rates(policies: Mapping[str, Policy]) -> list[list[float]]:
    return [policy.learner.scheduler.get_last_lr() for policy in policies.values()]


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_what_is_restored_learns_on_as_if_nothing_had_happened(
    make: Make, write: Write, groups: Callable[..., Groups], tmp_path: Path
) -> None:
    straight = make("a", "b")
    learn(straight, groups(seed=1))
    write(tmp_path / "c", straight, iteration=1, note="x")
    middle = weights(straight)
    torch.manual_seed(7)
    for seed in (2, 3):
        learn(straight, groups(seed=seed))

    again = make("a", "b")
    assert read_state(tmp_path / "c") == {"iteration": 1, "note": "x", "versions": {"a": 1, "b": 1}}
    restore(tmp_path / "c", again)
    assert same(weights(again), middle) and {policy.version for policy in again.values()} == {1}
    for seed in (2, 3):
        learn(again, groups(seed=seed))
    assert same(weights(again), weights(straight)) and not same(middle, weights(straight))
    assert rates(again) == rates(straight)


def test_torchs_random_state_is_restored(make: Make, write: Write, tmp_path: Path) -> None:
    policies = make("a")
    torch.manual_seed(3)
    write(tmp_path / "c", policies)
    drawn = torch.rand(3)
    restore(tmp_path / "c", policies)
    assert torch.equal(torch.rand(3), drawn)


def test_a_policy_is_read_as_any_other_model(written: Path) -> None:
    assert isinstance(AutoModelForCausalLM.from_pretrained(written / "a"), Qwen3ForCausalLM)
    assert AutoTokenizer.from_pretrained(written / "a").encode("w3")


# ---- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_a_damaged_file_is_named(written: Path, file: str, damage: str) -> None:
    path = written / file
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 0x04
        path.write_bytes(content)
    elif damage == "truncate":
        path.write_bytes(content[: len(content) // 2])
    else:
        path.unlink()
    with pytest.raises(CheckpointError) as error:
        read_state(written)
    if file != "checksums.json" or damage != "flip":  # a false checksum accuses the file that it is of
        assert f"{path} is {'missing' if damage == 'remove' else 'damaged'}" in str(error.value)


def test_other_policies_are_refused(written: Path, make: Make) -> None:
    with pytest.raises(CheckpointError, match=r"iteration_00001 holds the policies a, b, the configuration has a, c"):
        restore(written, make("a", "c"))


def test_other_shapes_are_refused(written: Path, make: Make, tokenizer: PreTrainedTokenizerFast) -> None:
    policies = make("a", "b", model=build_model(tokenizer, hidden=32, layers=2, heads=2, seed=0))
    with pytest.raises(CheckpointError, match=r"does not fit policy 'a': .*of another shape: .*\(24, 16\) for"):
        restore(written, policies)


def test_another_optimizer_is_refused(written: Path, make: Make) -> None:
    path = written / "b" / "training.pt"
    training = torch.load(path, weights_only=True)
    training["optimizer"]["param_groups"][0]["params"].pop()
    torch.save(training, path)
    with pytest.raises(CheckpointError, match=r"does not fit policy 'b'"):
        restore(written, make("a", "b"))


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "an attribute of the scheduler": (lambda t: t["scheduler"].update(step=1), "scheduler has the unknown key 'step'"),
    "a list for a number": (lambda t: t["scheduler"].update(last_epoch=[1]), "scheduler: last_epoch does not fit"),
    "a key of groups": (lambda t: t["optimizer"]["param_groups"][0].update(x=1), "param_groups has the unknown key"),
    "a group more": (lambda t: t["optimizer"]["param_groups"].append({}), "2 groups of parameters, not 1"),
    "no groups": (lambda t: t["optimizer"].update(param_groups=7), "optimizer: param_groups does not fit"),
    "a state of nobody": (lambda t: t["optimizer"]["state"].update({10**6: {}}), "a state of parameter 1000000, of"),
    "a state by name": (lambda t: t["optimizer"]["state"].update(a={}), "a state of parameter a, of"),
    "another shape": (
        lambda t: t["optimizer"]["state"][0].update(exp_avg=torch.zeros(3, 5, 7)),
        r"exp_avg of a parameter of .* is \(3, 5, 7\)",
    ),
    "a list in the state": (lambda t: t["optimizer"]["state"][0].update(exp_avg=[1.0]), "exp_avg .* is list"),
    "a version in words": (lambda t: t.update(version="1"), "version must be a whole number"),
    "micro-batches of nothing": (lambda t: t.update(max_tokens=0), "max_tokens must be a whole number of at least 1"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_state_that_no_policy_has(written: Path, make: Make, case: str) -> None:
    change, reason = CHANGES[case]
    path = written / "b" / "training.pt"
    training = torch.load(path, weights_only=True)
    change(training)
    torch.save(training, path)
    with pytest.raises(CheckpointError, match=rf"does not fit policy 'b': .*{reason}"):
        restore(written, make("a", "b"))


def test_random_states_of_another_kind_are_refused(written: Path, make: Make) -> None:
    torch.save({"torch": torch.get_rng_state(), "cuda": 7}, written / "rng.pt")
    with pytest.raises(CheckpointError, match=r"rng\.pt does not hold random states"):
        restore(written, make("a", "b"))


def test_a_checksum_of_a_file_elsewhere_is_not_taken(written: Path, tmp_path: Path) -> None:
    for name in ("../../private", "/etc/hostname"):
        (written / "checksums.json").write_text(json.dumps({name: "0"}))
        with pytest.raises(CheckpointError, match=rf"checksums\.json lists {name}, which is not in"):
            read_state(written)


@pytest.mark.parametrize("name", ["checksums.json", "state.json"])
def test_texts_that_are_nested_too_deep(written: Path, name: str) -> None:
    (written / name).write_text('{"a":' * 100_000)
    if name == "state.json":
        (written / "checksums.json").write_text(
            json.dumps({name: hashlib.sha256((written / name).read_bytes()).hexdigest()})
        )
    with pytest.raises(CheckpointError, match=rf"{name} is damaged: {name} is not whole JSON \(it is nested deeper"):
        read_state(written)


# ---- crashes --------------------------------------------------------------------------------------------------------


@contextmanager
def small_disk(size: int) -> Iterator[None]:
    """Within, no file may grow beyond ``size`` bytes; the kernel refuses as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [100, 3000, 20_000])  # met by the configuration, the tokenizer or weights, optimizer
def test_a_disk_that_is_full_leaves_what_was_there(make: Make, write: Write, written: Path, size: int) -> None:
    full = pytest.raises(CheckpointError, match=r"iteration_00002 could not be written: disk full: .*[Ff]ile too large")
    with full, small_disk(size):
        write(written.with_name("iteration_00002"), make("a", "b"), iteration=2)
    assert [path.name for path in written.parent.iterdir()] == ["iteration_00001"]
    assert read_state(written)["iteration"] == 1


def test_the_system_s_error_in_that_of_safetensors(tmp_path: Path) -> None:
    """Also where a smaller file could be written, and nothing else says that the disk is full."""
    with pytest.raises(SafetensorError) as full, small_disk(100):
        save_file({"a": torch.zeros(1000)}, tmp_path / "a.safetensors")
    error = system_error(full.value)
    assert error is not None and error.errno == errno.EFBIG
    assert isinstance(unwritten(error, tmp_path / "a.safetensors"), DiskFullError)
    assert system_error(SafetensorError("invalid header")) is None


def test_a_run_killed_at_any_point_leaves_a_whole_checkpoint_or_none(
    make: Make, write: Write, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies, new = make("a"), written.with_name("iteration_00002")
    steps: list[str] = []
    real = {name: getattr(checkpoint.os, name) for name in ("fsync", "replace")}
    stop = -1

    def counted(name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if len(steps) == stop:
                os._exit(9)  # as a kill: nothing is cleaned up
            steps.append(name)
            return real[name](*arguments)

        return call

    for name in real:
        monkeypatch.setattr(checkpoint.os, name, counted(name))
    write(new, policies, iteration=2)
    points, order = len(steps), list(steps)
    assert order[-2:] == ["replace", "fsync"] and order.count("replace") == 1
    for stop in (0, points // 2, points - 2, points - 1):
        shutil.rmtree(new, ignore_errors=True)
        steps.clear()
        child = os.fork()
        if child == 0:
            write(new, policies, iteration=2)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        assert read_state(written)["iteration"] == 1
        assert new.exists() == (stop == points - 1)
        if new.exists():
            assert read_state(new)["iteration"] == 2
    stop = -1
    shutil.rmtree(new)
    write(new, policies, iteration=2)  # what was left half-written is no obstacle
    assert json.loads((new / "state.json").read_text())["iteration"] == 2
    assert not new.with_name("iteration_00002.tmp").exists()
