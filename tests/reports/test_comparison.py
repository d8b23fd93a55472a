"""The page about several runs."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from troupe.cli.report import gather
from troupe.reports.comparison import RunsPage, render, write_comparison
from troupe.reports.grouping import Setting
from troupe.runs.tables import PlainTable

HOSTILE = '</script><img src=x onerror="alert(1)"><b>bold</b>'


@pytest.fixture
def folders(tmp_path: Path, disk: Any) -> list[Path]:
    """Two settings of two seeds, with learning curves."""
    paths = []
    for k, wins in ((2, 2), (4, 8)):
        for seed in (0, 1):
            path = disk.run(tmp_path / f"k{k}-{seed}", disk.config(seed, k), disk.scores(1, wins + seed, wins))
            rows = [{"iteration": i, "eval/success": i * wins / 40, "rollout/completions": 25} for i in (1, 2, 3, 4)]
            (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            for row in rows:
                disk.episodes(path, f"validation_{row['iteration']:05d}", row["eval/success"], 10)
            paths.append(path)
    return paths


def page(folders: list[Path]) -> str:
    return render(gather(folders))


def test_a_whole_page(folders: list[Path]) -> None:
    text = page(folders)
    assert "<h1>game</h1>" in text and "<span>2 settings</span><span>4 runs</span><span>all finished</span>" in text
    assert "k=2 <small>2 seeds" in text and "k=4 <small>2 seeds" in text
    assert "85.0 %" in text  # (0.8 + 0.9) / 2
    assert "<td>+60.0</td>" in text and "<td>25.0 %</td><td>85.0 %</td><td>2</td><td>10</td>" in text
    assert re.search(r"algorithm\.sampler\.k</th><td[^>]*>2</td><td[^>]*>4</td>", text)
    assert "Success on validation tasks, by completions of training" in text
    assert "Not everything is there" not in text and "Versions differ" not in text


def test_the_page_needs_nothing_else(folders: list[Path]) -> None:
    text = page(folders)
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)[-1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in text
    assert not re.search(r"<(?:link|img|iframe|object|base|form|a)\b|\bsrc=|url\(|@import", text)


def test_what_is_missing_is_named_and_the_rest_is_shown(folders: list[Path]) -> None:
    whole = (folders[0] / "summary.json").read_text()
    (folders[0] / "summary.json").write_text(whole[: len(whole) // 2])
    for file in (folders[1] / "episodes").iterdir():
        file.unlink()
    file = folders[2] / "episodes" / "test_00004.jsonl"
    file.write_text(file.read_text()[:-40])
    (folders[3] / "versions.json").write_text(json.dumps({"run_format": 1, "code": "0123456789abcdef"}))
    (folders[3] / "episodes" / "validation_00002.jsonl").write_text("")
    (folders[3] / "episodes" / "validation_00003.jsonl").unlink()
    (folders[3] / "episodes" / "validation_00003.jsonl").mkdir()
    text = page(folders)
    for part in (
        f"{folders[3]}: episodes/validation_00002.jsonl is empty.",
        f"{folders[3]}: episodes/validation_00003.jsonl is a folder, not a file.",
        f"{folders[0]}: summary.json is not whole JSON",
        f"{folders[1]}: episodes/ holds no episodes.",
        f"{folders[2]}: episodes/test_00004.jsonl, line 10, is not a whole JSON object",
        f"{folders[3]} has layout 1, not 2",
        "trained by 2 versions of the code",
        "01234567",
        "seed 0: 9 of 10 tasks in common",
        "3 finished",
        "<td>+66.7</td>",  # of seed 0 alone: 8 of 9 tasks less 2 of 9
    ):
        assert part in text, part


def test_runs_of_other_code_are_named(folders: list[Path]) -> None:
    for folder, code in zip(folders, "0011", strict=True):
        (folder / "versions.json").write_text(json.dumps({"run_format": 2, "code": code * 16}))
    assert "trained by 2 versions of the code (00000000, 11111111)" in page(folders)


def test_runs_that_did_not_end_say_so(folders: list[Path]) -> None:
    for folder, status in zip(folders, ("failed", "interrupted", None), strict=False):
        summary = json.loads((folder / "summary.json").read_text()) | {"status": status, "error": "out of memory"}
        (folder / "summary.json").write_text(json.dumps(summary))
    text = page(folders)
    assert f"{folders[0]}: the run failed: out of memory." in text
    assert f"{folders[1]}: the run was interrupted" in text
    assert f"{folders[2]}: it was killed, or summary.json is lost." in text


def test_values_of_strange_kinds_do_no_harm(folders: list[Path]) -> None:
    strange = {"eval/success": "high", "eval_before/success_ci95": [None, "x"], "time/wall_s": None, "alarms": {}}
    summary = json.loads((folders[0] / "summary.json").read_text()) | strange | {"iterations": [], "status": 7}
    (folders[0] / "summary.json").write_text(json.dumps(summary))
    (folders[1] / "config.yaml").write_text("seed: [1]\nname: {a: 1}\nalgorithm: none\n")
    (folders[2] / "metrics.jsonl").write_text('{"iteration": 1, "eval/success": NaN, "rollout/completions": "x"}\n')
    text = page(folders)
    assert "2 settings" in text and "k4-1" in text
    assert f"{folders[1]} is left out: config.yaml has no policies, loop, it is cut or damaged." in text


def test_alarms_are_listed(folders: list[Path]) -> None:
    summary = json.loads((folders[0] / "summary.json").read_text()) | {"alarms": [{"text": "entropy fell"}, 7]}
    (folders[0] / "summary.json").write_text(json.dumps(summary))
    assert "<b>k=2, seed 0</b>: entropy fell" in page(folders)


def test_one_setting_has_no_differences(folders: list[Path]) -> None:
    text = page(folders[:2])
    assert "The runs differ in their seeds alone." in text and "Paired differences" not in text


def test_hostile_text_stays_text(folders: list[Path], tmp_path: Path) -> None:
    content = gather(folders)
    settings = [Setting(HOSTILE, content.settings[0].runs), content.settings[1]]
    table = PlainTable(HOSTILE, [HOSTILE], [[HOSTILE]], HOSTILE)
    file = write_comparison(RunsPage(HOSTILE, settings, HOSTILE, [table], [HOSTILE]), tmp_path / "new" / "x.html")
    text = file.read_text()
    assert "<img" not in text and "<b>bold" not in text and "onerror=&#34;" in text
