"""bench/compare.py and what it measures with, as far as nothing is measured: its page, its parts, shares by hand."""

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCH = Path(__file__).parents[1] / "bench"
HOW = {"n": 3, "what": "w", "clock": "cpu", "date": "2026-11-23", "commit": "abc1234", "machine": "m"}


@pytest.fixture(scope="module")
def compare() -> Iterator[ModuleType]:
    before = set(sys.modules)
    sys.path.insert(0, str(BENCH))
    import compare

    yield compare
    sys.path.remove(str(BENCH))
    own = (name for name in set(sys.modules) - before if (BENCH / f"{name}.py").exists())
    for name in list(own):
        del sys.modules[name]


def measured(low: float, middle: float, high: float) -> dict[str, Any]:
    return HOW | {"min": low, "median": middle, "max": high}


def test_the_page_has_the_committed_results(compare: ModuleType) -> None:
    results = json.loads((BENCH / "results.json").read_text())
    assert (BENCH / "results.md").read_text() == compare.page(results)
    for name, result in results.items():
        assert re.fullmatch(r"[0-9a-f]{7,}(-dirty)?", result["commit"]), name
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", result["date"]), name
        assert result["clock"] in ({"cpu", "wall"} if "memory" not in name else {None}), name


def test_the_page_names_missed_bars(compare: ModuleType) -> None:
    results = {
        "update_vs_trl": measured(4.4, 4.5, 5.5),
        "rollout_short_vs_hf": measured(2.9, 3.1, 3.2),
        "update_memory_vs_trl": measured(0.2, 0.3, 0.5),
        "two_pools_vs_shared": measured(1.0, 1.1, 1.2),
        "growth_update_k": measured(0.5, 0.6, 0.7),
    }
    text = compare.page(results)
    verdicts = {line.split("`")[1]: line.split(" | ")[2] for line in text.splitlines() if line.startswith("| `")}
    assert verdicts == {
        "update_vs_trl": "**missed**",
        "rollout_short_vs_hf": "met by the median, not by all",
        "update_memory_vs_trl": "met",
        "two_pools_vs_shared": "**missed**",
        "growth_update_k": "",
    }
    [missed] = re.findall(r"\*\*Missed bars\*\*: (.*)\.\n", text)
    assert missed == (
        "`update_vs_trl` (4.50 on not recorded; at least 5), `two_pools_vs_shared` (1.10 on not recorded; at most 1)"
    )
    [absent] = re.findall(r"\*\*Not measured\*\*: (.*)\.\n", text)
    assert "`update_smollm2_vs_trl` (at least 2.3), " in absent and "`share_probe`" in absent
    assert "| **4.50** (4.40 to 5.50); 3, cpu, 2026-11-23, abc1234 |" in text


def test_each_says_what_it_is_by_itself(compare: ModuleType) -> None:
    for name, comparison in compare.COMPARISONS.items():
        assert not comparison.what.startswith("The same"), name


def test_what_an_environment_lacks_is_named(compare: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert find_spec("vllm") is None, "vLLM is in this environment"
    with pytest.raises(SystemExit, match="2"):
        compare.main(["--only", "two_pools_vs_shared", "--only", "rollout_vs_vllm_cpu"])
    said = " ".join(capsys.readouterr().err.split())
    assert 'rollout_vs_vllm_cpu needs the package vllm, which this environment has not; make bench args="--only' in said


def test_a_part_leaves_the_other_one_alone(
    compare: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = tmp_path / "results.json"
    shutil.copy(BENCH / "results.json", place)
    shutil.copy(BENCH / "results.md", place.with_suffix(".md"))
    monkeypatch.setattr(compare, "RESULTS", place)
    monkeypatch.setattr(compare, "commit", lambda: "abc1234")
    compare.main(["--part", "peers", "--only", "rollout_vs_vllm_cpu"])
    compare.main(["--part", "vllm", "--only", "two_pools_vs_shared"])
    assert place.read_bytes() == (BENCH / "results.json").read_bytes()


def test_a_figure_has_the_commit_and_clock_of_its_measurement(
    compare: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compare, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(compare, "commit", lambda: "abc1234")
    monkeypatch.setattr(compare.team_time, "pools", lambda repetitions, clock: [0.9, 0.8, 1.0][:repetitions])
    compare.main(["--only", "two_pools_vs_shared", "--clock", "cpu", "--pairs", "3"])
    result = json.loads((tmp_path / "results.json").read_text())["two_pools_vs_shared"]
    assert {key: result[key] for key in ("n", "min", "median", "max", "clock", "commit")} == {
        **{"n": 3, "min": 0.8, "median": 0.9, "max": 1.0},
        **{"clock": "cpu", "commit": "abc1234"},
    }
    assert "abc1234" in (tmp_path / "results.md").read_text()


def test_the_commit_is_dirty_where_more_than_the_results_differs(
    compare: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    results, code = tmp_path / "bench" / "results.json", tmp_path / "src" / "code.py"
    for file in (results, code):
        file.parent.mkdir()
        file.write_text("1")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.setattr(compare, "RESULTS", results)
    clean = compare.commit()
    assert re.fullmatch(r"[0-9a-f]{7,}", clean)
    results.write_text("2")
    assert compare.commit() == clean
    code.write_text("2")
    assert compare.commit() == f"{clean}-dirty"


def test_the_bar_of_a_speed_is_printed_whole(
    compare: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(compare.engine.SETTINGS, "short", (2, 8, 2, 2))
    monkeypatch.setitem(compare.engine.BAR, "short", 1.5)
    compare.engine.measure("short", 1, time.process_time)
    assert "(the bar is 1.5)" in capsys.readouterr().out


def test_shares_of_periods_with_a_probe_and_a_checkpoint_each(compare: ModuleType) -> None:
    """Iterations of 10 s, each with 8 s of rollout; the first and every tenth after it probe for 1 s, and those after
    the tenth, the twentieth save for 2 s."""
    rows = [{"time/rollout_s": 8.0} | ({"time/probe_s": 1.0} if i % 10 == 0 else {}) for i in range(21)]
    saved = [2.0 if i % 10 == 9 else 0.0 for i in range(21)]
    shares = compare.team_time.shares(rows, [10.0 * i for i in range(21)], saved)
    assert {phase: shares[phase] for phase in ("rollout", "probe", "checkpoint", "explained", "trees")} == {
        "rollout": [0.8, 0.8],
        "probe": [0.01, 0.01],
        "checkpoint": [0.02, 0.02],
        "explained": pytest.approx([0.83, 0.83]),
        "trees": [0.0, 0.0],
    }
    assert set(shares) == set(compare.team_time.SHARES)


def test_figures_of_other_processors_stay(compare: ModuleType) -> None:
    slow = measured(4.4, 4.5, 4.6) | {"processor": "slow"}
    kept = compare.elsewhere(slow | {"elsewhere": [measured(1, 2, 3) | {"processor": "fast"}]}, "fast")
    assert kept == {"elsewhere": [slow]}
    assert compare.elsewhere(slow, "slow") == compare.elsewhere(None, "slow") == {}
    assert compare.elsewhere(measured(1, 2, 3), "slow") == {}  # of the time before the key
    text = compare.page({"update_vs_trl": measured(6, 7, 8) | {"processor": "fast"} | kept})
    assert (
        "| at least 5 | **missed** | **7.00** (6.00 to 8.00); 3, cpu, 2026-11-23, abc1234 | **4.50** (4.40 to" in text
    )
    assert "**Missed bars**: `update_vs_trl` (4.50 on slow; at least 5)." in text
