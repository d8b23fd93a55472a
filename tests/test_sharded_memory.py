"""What a process that learns takes of memory is what a dry run plans."""

import runpy
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc, and malloc is glibc's")
@pytest.mark.parametrize("case", ["one process, recomputed", "fsdp2"])
def test_the_plan_is_what_processes_take(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    script = runpy.run_path(str(BENCH / "sharded_memory.py"))
    planned, found = script["planned"](*script["CASES"][case]), script["measured"](case, True)
    for part in ("weights", "gradients", "optimizer"):
        assert found[part] == pytest.approx(planned[part], rel=0.01), part
    assert found["gathered"] == pytest.approx(planned["gathered"], rel=0.1, abs=2e6)
    assert 0.75 < found["peak of an update"] / planned["peak of an update"] < 1.1
