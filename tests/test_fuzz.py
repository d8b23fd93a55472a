"""A small share of bench/fuzz_worlds.py and bench/fuzz_overrides.py, the same at every run."""

import asyncio
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from troupe.sandbox import LocalSandbox

BENCH = Path(__file__).parents[1] / "bench"
CHEAP = (
    "sokoban",
    "sokoban full solo",
    "plan_path",
    "plan_path full",
    "sudoku",
    "sudoku full solo",
    "couplet",
    "search",
    "search solo",
    "delegation",
    "delegation sequential",
    "signalling",
    "writing",
    "posts",
    "posts solo",
    "introductions",
    "introductions solo",
    "search questions",
    "search questions solo",
    "micro collaboration",
    "micro collaboration with an expert",
    "collaboration published",
    "arithmetic",
    "arithmetic at once",
    "math team",
    "math team vote",
    "micro code",
)


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, BENCH / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def fuzz() -> Iterator[ModuleType]:
    _load("fuzz_messages")
    yield _load("fuzz_worlds")
    del sys.modules["fuzz_messages"], sys.modules["fuzz_worlds"]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LocalSandbox]:
    shared = LocalSandbox(workers=1)
    yield shared
    asyncio.run(shared.close())


def test_no_reader_or_judge_raises(fuzz: ModuleType) -> None:
    for name, judge in fuzz.all_judges(seed=7).items():
        row = fuzz.fuzz_judge(name, judge, messages=120, seconds=60, seed=7)
        assert row.messages == 120 and not row.errors, row.errors[:2]


async def test_no_message_breaks_a_world_or_earns_too_much(fuzz: ModuleType, sandbox: LocalSandbox) -> None:
    for name in CHEAP:
        row = await fuzz.fuzz_world(name, sandbox, messages=40, seconds=60, seed=7)
        assert row.messages >= 40 and row.good, (row.errors[:2], row)


def test_an_override_composes_or_is_refused_by_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = _load("fuzz_overrides")
    monkeypatch.delitem(sys.modules, "fuzz_overrides")
    monkeypatch.setattr(overrides, "KEPT", 1)
    report = overrides.fuzz(count=8, full=0, seed=3, seconds=60.0)
    assert sum(report.outcomes.values()) == 8 and not report.broken, report.broken
