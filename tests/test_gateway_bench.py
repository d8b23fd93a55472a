"""bench/gateway.py: its ratios against a pair by hand."""

import runpy
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench" / "gateway.py"


def test_what_the_engine_spends_is_in_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """Through the gateway 12 tokens for 10; the engine takes 1.2 s for 0.8, all others 1.2 s for 0.2."""
    bench = runpy.run_path(str(BENCH))
    native = bench["Play"](["a", "b"], tokens=10, wall_s=1.0, cpu_s=1.0, engine_s=0.8)
    gateway = bench["Play"](["a", "b"], tokens=12, wall_s=2.0, cpu_s=2.4, engine_s=1.2)
    bench["report"]([(native, gateway)])
    ratios = dict(line.rsplit(": ", 1) for line in capsys.readouterr().out.splitlines() if ": " in line)
    assert ratios == {
        "tokens/s of wall time, gateway / native": "0.6000",
        "CPU of the engine's thread per token, gateway / native": "1.2500",
        "CPU of all threads per token, gateway / native": "2.0000",
        "CPU beside the engine that the gateway adds, of the native CPU": "1.0000",
    }
