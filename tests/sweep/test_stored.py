"""Runs of earlier sweeps count as finished by their summary alone."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from troupe.runs.files import RunDirectoryError
from troupe.sweep.outcomes import with_readings
from troupe.sweep.page import sweep_page, write_tables
from troupe.sweep.plan import choices
from troupe.sweep.record import SweepRecord, error_file
from troupe.sweep.rows import TableRow
from troupe.sweep.summary import SweepSummary, stored_runs

Store = Callable[..., Path]


@pytest.fixture
def store(disk: Any, tmp_path: Path) -> Store:
    """Three of a sweep's four runs are made, and only the summary of it is kept."""

    def stored(evaluations: tuple[str, ...] = (), code: str | None = None) -> Path:
        record = disk.sweep(tmp_path / "lost", evaluations)
        for seed, k, last in ((0, 2, 0.4), (1, 2, 0.5), (0, 4, 0.7)):
            path = disk.run(tmp_path / "lost" / "game" / f"{seed}{k}", disk.config(seed, k), disk.scores(1, 5, 6), code)
            disk.curve(path, {0: 0.1, 2: 0.3, 4: last}, completions=10 * k)
            for name in evaluations:
                figures = {"success": 0.3, "success_ci95": [0.1, 0.6], "episodes": 10, "task_seed": 9}
                (path / f"{name}.json").write_text(json.dumps(figures))
        replace(record, sealed=9).write()
        write_tables(record.folder)
        file = Path(shutil.copy(record.folder / "summary.jsonl", tmp_path / "stored.jsonl"))
        shutil.rmtree(tmp_path / "lost")
        return file

    return stored


def sweep(disk: Any, tmp_path: Path, *finished: Path, **fields: Any) -> SweepRecord:
    record = replace(disk.sweep(tmp_path / "runs"), finished=finished, **fields)
    record.write()
    return record


def test_rows_answer_the_jobs_whose_runs_are_gone(disk: Any, tmp_path: Path, store: Store) -> None:
    file = store()
    record = sweep(disk, tmp_path, file)
    assert record.jobs_to_run(rerun_stale=True) == record.jobs[3:]
    rows = record.rows()
    assert [(row["status"], row["stale"]) for row in rows] == [("finished", "")] * 3 + [("missing", "")]
    before = SweepSummary.read(file).rows
    assert rows[0] == before[0] and rows[0]["config"]["algorithm.sampler.k"] == 2


def test_rows_survive_from_summary_to_summary(disk: Any, tmp_path: Path, store: Store) -> None:
    """The second sitting adds a run; the third has nothing but the second's summary, and the same page."""
    record = sweep(disk, tmp_path, store())
    path = disk.run(tmp_path / "runs" / "game" / "14", disk.config(1, 4), disk.scores(1, 5, 6))
    disk.curve(path, {0: 0.1, 2: 0.3, 4: 0.9}, completions=40)
    page, _ = write_tables(record.folder)
    second = Path(shutil.copy(record.folder / "summary.jsonl", tmp_path / "second.jsonl"))
    shutil.rmtree(tmp_path / "runs")
    third = sweep(disk, tmp_path, second)
    assert third.jobs_to_run(rerun_stale=True) == []
    assert write_tables(third.folder)[0] == page
    assert (third.folder / "summary.jsonl").read_text() == second.read_text()
    assert "80 completions, 800 tokens, 8 steps" in page, "curves are read anew at equal budgets"


def test_rows_of_other_code_are_stale(disk: Any, tmp_path: Path, store: Store) -> None:
    record = sweep(disk, tmp_path, store(code="older"))
    assert [row["stale"] for row in record.rows()] == ["code", "code", "code", ""]
    assert record.jobs_to_run(rerun_stale=False) == record.jobs[3:]
    assert len(record.jobs_to_run(rerun_stale=True)) == 4
    disk.run(tmp_path / "runs" / "game" / "02", disk.config(0, 2), disk.scores(1, 9, 9))
    assert [(row["stale"], row["after"]) for row in record.rows()[:2]] == [("", 0.9), ("code", 0.5)]


def test_rows_that_were_evaluated_otherwise_say_how(disk: Any, tmp_path: Path, store: Store) -> None:
    record = sweep(disk, tmp_path, store())
    jobs = [replace(job, evaluation={**job.evaluation, "loop.test_tasks": 7}) for job in record.jobs]
    row = replace(record, jobs=jobs).rows()[0]
    assert (row["stale"], row["note"]) == ("evaluation", "evaluated with loop.test_tasks=10, asked 7")


def test_what_needs_the_run_directory_is_said_to_be_missing(disk: Any, tmp_path: Path, store: Store) -> None:
    record = sweep(disk, tmp_path, store(), evaluations=("swapped", "sealed"), sealed=9)
    row = record.rows()[0]
    assert (row["status"], row["swapped"]) == ("finished", None)
    assert row["note"] == "not evaluated: swapped, sealed (the run directory is gone)"
    assert record.jobs_to_run(rerun_stale=False) == record.jobs[3:]


def test_evaluations_of_the_run_are_in_its_row(disk: Any, tmp_path: Path, store: Store) -> None:
    record = sweep(disk, tmp_path, store(("swapped", "sealed")), evaluations=("swapped", "sealed"), sealed=9)
    assert [(row["swapped"], row["sealed"], row["note"]) for row in record.rows()[:3]] == [(0.3, 0.3, "")] * 3
    row = replace(record, sealed=10).rows()[0]
    assert row["note"] == "not evaluated: sealed (the run directory is gone)", "on the tasks of another seed"
    assert (row["sealed"], row["sealed_low"], row["sealed_seed"]) == (None, None, None)


def test_an_error_does_not_hide_a_row_that_is_not_stale(disk: Any, tmp_path: Path, store: Store) -> None:
    record = sweep(disk, tmp_path, store())
    for job in (record.jobs[0], record.jobs[3]):
        error = error_file(record.folder, job.training)
        error.parent.mkdir(exist_ok=True)
        error.write_text("ValueError: no\n")
    assert [row["status"] for row in record.rows()] == ["finished", "finished", "finished", "failed"]


def test_tuning_chooses_from_rows(disk: Any, tmp_path: Path, store: Store) -> None:
    record = sweep(disk, tmp_path, store())
    jobs = [replace(job, setting="cell", variant=job.overrides[0]) for job in record.jobs]
    assert choices(replace(record, jobs=jobs), {"k": [2, 4]}) == {}, "a run is missing"
    assert choices(replace(record, jobs=jobs[:3]), {"k": [2, 4]}) == {"cell": ["k=4"]}


def test_rows_that_answer_nothing_are_named(disk: Any, tmp_path: Path, store: Store) -> None:
    record = sweep(disk, tmp_path, store())
    (other,) = replace(record, jobs=record.jobs[1:]).unanswering()
    assert (other.row["setting"], other.row["seed"]) == ("a", 0)
    assert record.unanswering() == []


def test_of_a_run_in_several_summaries_that_of_the_first_is_taken(disk: Any, tmp_path: Path, store: Store) -> None:
    first = store()
    other = tmp_path / "other.jsonl"
    other.write_text(first.read_text().replace(str(Path("game", "02")), str(Path("game", "99"))))
    for files, name in (((first, other), "02"), ((other, first), "99")):
        record = sweep(disk, tmp_path, *files)
        assert Path(record.rows()[0]["run"]).name == name and record.unanswering() == []


def test_a_summary_that_is_written_again_is_read_again(tmp_path: Path, store: Store) -> None:
    file = store()
    before = file.stat()
    assert len(stored_runs(file)) == 3
    file.write_text("\n".join(file.read_text().splitlines()[:-2]) + "\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert len(stored_runs(file)) == 2


def without_config(row: TableRow) -> TableRow:
    return {key: value for key, value in row.items() if key != "config"}


def test_a_file_that_cannot_count_is_named(tmp_path: Path, store: Store) -> None:
    file = store()
    head, *lines = map(json.loads, file.read_text().splitlines())
    file.write_text("\n".join(map(json.dumps, [head, *map(without_config, lines)])))
    with pytest.raises(RunDirectoryError, match=r"stored.jsonl: its rows have no configuration"):
        stored_runs(file)
    for text in ("", "{}\n{}", "no json"):
        file.write_text(text)
        with pytest.raises(RunDirectoryError, match=r"stored.jsonl is no summary of a sweep or a table"):
            stored_runs(file)
    file.write_bytes(bytes(range(128, 256)) * 100)
    with pytest.raises(RunDirectoryError, match=r"'utf-8' codec can't decode byte 0x80 in position 0") as raised:
        stored_runs(file)
    assert len(str(raised.value)) < len(str(file)) + 300 and str(raised.value).isprintable()


def test_the_page_names_its_commits_and_the_code_that_it_mixes(disk: Any, tmp_path: Path, store: Store) -> None:
    summary = SweepSummary.read(store(code="0123456789abcdef"))

    def page(*changes: TableRow) -> str:
        pairs = zip(summary.rows, (*changes, {}), strict=True)  # the fourth run is missing
        rows = [row | change for row, change in pairs]
        return sweep_page(replace(summary, rows=tuple(rows)))

    one, two, none = {"commit": "v1"}, {"commit": "v2", "code": "fedcba9876543210"}, {"commit": None}
    assert "Commit" not in page(none, none, none)
    assert "Commit of these runs: `v1` (3 runs). In each setting the code is the same.\n" in page(one, one, one)
    assert "Commits of these runs: `v1` (2 runs), not known (1 run)." in page(one, none, one)
    assert (
        "Commits of these runs: `v1` (2 runs), `v2` (1 run). Runs of different code in: a (01234567, fedcba98)."
        in page(one, two, one)
    )
    continued = two | {"code": "0123456789abcdef+fedcba9876543210"}
    assert "in: a (01234567, 01234567+fedcba98)." in page(one, continued, one)


def test_a_row_without_a_curve_is_named(store: Store) -> None:
    summary = SweepSummary.read(store())
    rows = (summary.rows[0] | {"curve": []}, *summary.rows[1:])
    page = sweep_page(replace(summary, rows=rows))
    assert "## At equal budgets" not in page and with_readings(rows, None)[1] == {}
    assert "Without a learning curve, so that their variant has no figures at equal budgets: a, seed 0." in page
