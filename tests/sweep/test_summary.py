"""The committed summary of a sweep gives the page that its runs gave."""

import json
import runpy
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from troupe.runs.files import RunDirectoryError
from troupe.sweep.page import sweep_page, write_tables
from troupe.sweep.plan import choices
from troupe.sweep.record import SweepRecord
from troupe.sweep.summary import SweepSummary

ROOT = Path(__file__).parents[2]


@pytest.fixture
def sweep(disk: Any, tmp_path: Path) -> Path:
    """A sweep of four finished runs with learning curves; each seed has tasks of its own."""
    record = disk.sweep(tmp_path / "runs")
    for seed, k, last in ((0, 2, 0.4), (1, 2, 0.5), (0, 4, 0.7), (1, 4, 0.9)):
        path = disk.run(tmp_path / "runs" / "game" / f"{seed}{k}", disk.config(seed, k), disk.scores(1, 5, 6))
        disk.curve(path, {0: 0.1, 2: 0.3, 4: last}, completions=10 * k, tasks=f"{seed}-")
    return record.folder


def test_the_page_comes_from_the_summary_alone(sweep: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the charts need it")
    page, _ = write_tables(sweep)
    # Setting a ends at 80 completions, where b has had two of its four iterations.
    assert "## At equal budgets" in page and "80 completions, 800 tokens, 8 steps" in page
    assert "| b | 0.300 (" in page and "](curves.svg)" in page
    (tmp_path / "summaries").mkdir()
    copy = shutil.copy(sweep / "summary.jsonl", tmp_path / "summaries" / "s.jsonl")
    shutil.rmtree(tmp_path / "runs")
    alone = page.replace("![Success on validation tasks over training](curves.svg)\n\n", "")
    assert sweep_page(SweepSummary.read(Path(copy))) == alone
    assert Path(copy).stat().st_size < 4 * 2000
    pages = runpy.run_path(str(ROOT / "docs" / "generators" / "make_results.py"))["pages"]
    found = pages(tmp_path)
    assert found.pop(tmp_path / "s.svg").startswith("<?xml")
    source = "\nWritten by `make results` from [`summaries/s.jsonl`](summaries/s.jsonl).\n"
    assert found == {tmp_path / "s.md": page.replace("curves.svg", "s.svg") + source}


def test_cpu_hours_count_a_run_of_two_summaries_once(sweep: Path, tmp_path: Path) -> None:
    script = runpy.run_path(str(ROOT / "docs" / "generators" / "make_results.py"))
    write_tables(sweep)
    head, *content = [json.loads(line) for line in (sweep / "summary.jsonl").read_text().splitlines()]
    for place, row in enumerate(content):
        row.update(cpu_s=[3600, 1800, 360, None][place], code="a", commit="0123456789", run=f"runs/x/{place}")
    (tmp_path / "summaries").mkdir()
    for name, rows in {"s": content, "t": content[1:]}.items():
        text = "".join(json.dumps(line) + "\n" for line in (head, *rows))
        (tmp_path / "summaries" / f"{name}.jsonl").write_text(text)
    assert script["hours"](tmp_path).splitlines()[2:] == [
        "| sweep [`s`](results/s.md) | 3 of 4 | 1.60 | 0123456 |",
        "| sweep [`t`](results/t.md) | 2 of 3 | 0.60 | 0123456 |",
        "| all, each run once | 3 of 4 | 1.60 |  |",
    ]


@pytest.mark.slow
def test_committed_pages_are_those_of_their_summaries() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "generators" / "make_results.py"))
    for file, page in {**script["pages"](), script["PAGE"]: script["page"]()}.items():
        assert file.read_text(encoding="utf-8") == page, "run `make results`"


def test_a_kept_summary_has_no_folder_of_this_machine(sweep: Path, tmp_path: Path) -> None:
    """And of runs of one code, of a known commit, none is stale for it; else those that are."""
    script = runpy.run_path(str(ROOT / "docs" / "generators" / "keep_results.py"))
    write_tables(sweep)
    content = [json.loads(line) for line in (sweep / "summary.jsonl").read_text().splitlines()]
    for row in content[1:]:
        row.update(stale="code", code="a", commit=None, run="/home/me/runs/x/1")
    assert {row["stale"] for row in script["kept"](content, "/home/me/runs")[1:]} == {"code"}
    for row in content[1:]:
        row.update(commit="v1", run="/home/me/runs/x/1")
    assert {(row["run"], row["stale"]) for row in script["kept"](content, "/home/me/runs")[1:]} == {("runs/x/1", "")}
    content[1].update(stale="code", code="b")  # another setting, of the same commit
    assert script["kept"](content, "/home/me/runs")[1]["stale"] == ""
    for changed in ({"commit": "v2"}, {"commit": "v1-dirty", "code": "a"}):
        content[1].update(stale="code", **changed)
        assert script["kept"](content, "/home/me/runs")[1]["stale"] == "code"
    content[1].update(stale="code", commit="v2", code="b", part="another")
    assert script["kept"](content, "/home/me/runs")[1]["stale"] == ""
    (tmp_path / "summaries").mkdir()
    file = script["keep"](sweep, tmp_path)
    assert file.parent.name == "summaries" and SweepSummary.read(file).name == content[0]["sweep"]


def test_a_file_that_is_no_summary_is_named(tmp_path: Path) -> None:
    head = {"sweep": "s", "question": "", "threshold": None, "verdicts": [], "config": {}}
    damaged = "\n".join(json.dumps(line) for line in (head, {"run": "runs/x", "outcomes": [1]}))
    for text in ("", "{}\n", "no json", damaged):
        (tmp_path / "x.jsonl").write_text(text)
        with pytest.raises(RunDirectoryError, match=r"x\.jsonl is no summary of a sweep"):
            SweepSummary.read(tmp_path / "x.jsonl")


def test_the_best_point_on_validation_is_chosen(sweep: Path) -> None:
    record = SweepRecord.read(sweep)
    jobs = [replace(job, setting="cell", variant=job.overrides[0]) for job in record.jobs]
    # The last validations have means 0.45 and 0.8 over seeds.
    assert choices(replace(record, jobs=jobs), {"k": [2, 4]}) == {"cell": ["k=4"]}
    jobs.append(replace(jobs[0], overrides=("k=8", "seed=0"), training="of no run"))
    assert choices(replace(record, jobs=jobs), {"k": [2, 4, 8]}) == {}
