"""Memory that malloc keeps between iterations; lack of memory is in tests/models/test_memory.py."""

import ctypes
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from troupe.cli import train
from troupe.kernels.memory import trim_heap

MIB = 1 << 20
glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc_trim is glibc's")


def anonymous_mib() -> float:
    """Counted page by page: `RssAnon` of `status` sums counters per CPU, each up to 128 pages behind."""
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("Anonymous"))


@contextmanager
def kept_pages(mib: int) -> Iterator[None]:
    """malloc keeps so much that was freed: below a block that is in use."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    size = 64 << 10  # below the size from which malloc maps memory of its own
    blocks = [libc.malloc(size) for _ in range(mib * MIB // size + 1)]
    for block in blocks:
        ctypes.memset(block, 1, size)
    for block in blocks[:-1]:
        libc.free(block)
    yield
    libc.free(blocks[-1])


@glibc
def test_free_pages_go_back_to_the_system() -> None:
    trim_heap()
    before = anonymous_mib()
    with kept_pages(64):
        assert anonymous_mib() - before > 32  # less than 64: some blocks lie on pages that were there already
        trim_heap()
        assert anonymous_mib() - before < 8


@pytest.mark.slow
@glibc
def test_no_iteration_leaves_free_pages(
    composed: Callable[..., DictConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ["loop.iterations=2", "loop.tasks_per_iteration=2", "loop.validation_tasks=1", "loop.test_tasks=1"]
    loop = train.build(composed("experiment=couplet_specialized", f"run_dir={tmp_path / 'run'}", *small))
    learn, write, pages = loop._learn, loop.directory.metrics, kept_pages(256)
    sizes: list[float] = []

    async def learning(*arguments: Any) -> dict[str, Any]:
        row = await learn(*arguments)
        if len(sizes) == 1:
            pages.__enter__()
        return row

    def writing(row: dict[str, Any]) -> None:
        sizes.append(anonymous_mib())
        write(row)

    monkeypatch.setattr(loop, "_learn", learning)
    monkeypatch.setattr(loop.directory, "metrics", writing)
    train.train(loop)
    pages.__exit__(None, None, None)
    assert len(sizes) == 2 and sizes[1] - sizes[0] < 128
