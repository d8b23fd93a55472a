"""What is done, under way and left, read from run directories."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from troupe.runs.files import LOCK
from troupe.runs.fingerprint import training_hash
from troupe.runs.lock import Lock
from troupe.sweep.reproduction.progress import Progress, TeamProgress, shown


def plan_of(disk: Any, runs: Path) -> Any:
    """A plan of one part, of which the progress reads jobs and the folder."""
    jobs = [SimpleNamespace(training=training_hash(disk.config(seed)), seed=seed) for seed in range(4)]
    record = SimpleNamespace(jobs=jobs, runs=runs, finished=())
    return SimpleNamespace(parts=[SimpleNamespace(name="p", record=record)])


def test_lines(disk: Any, tmp_path: Path) -> None:
    progress = Progress(plan_of(disk, tmp_path), jobs=2)
    assert progress.line() == "0 of 4 runs done, 0 under way, 4 left, time left: known once a run has ended"
    disk.run(tmp_path / "one", disk.config(0), disk.scores(1, 2, 3) | {"time/wall_s": 60.0})
    other = disk.run(tmp_path / "two", disk.config(1), None)
    disk.run(tmp_path / "of another sweep", disk.config(9), disk.scores(1, 2, 3))
    # Three runs of a minute, two at a time.
    with Lock(other / LOCK, "training"):
        assert progress.line() == "1 of 4 runs done, 1 under way, 2 left, about 2 min left"
    assert progress.line().startswith("1 of 4 runs done, 0 under way, 3 left")
    for seed in (1, 2, 3):
        disk.run(tmp_path / f"end {seed}", disk.config(seed), disk.scores(1, 2, 3))
    assert progress.line() == "4 of 4 runs done, 0 under way, 0 left"


def test_changes_are_shown_once_and_the_last_always(disk: Any, tmp_path: Path) -> None:
    lines: list[str] = []
    with shown(Progress(plan_of(disk, tmp_path), jobs=1), lines.append, every_s=3600.0):
        while not lines:
            pass
        disk.run(tmp_path / "one", disk.config(0), disk.scores(1, 2, 3))
    assert [line.partition("] ")[2][:19] for line in lines] == ["0 of 4 runs done, 0", "1 of 4 runs done, 0"]


def test_teams_are_counted_and_the_last_ones_set_the_pace() -> None:
    now = [0.0]
    progress = TeamProgress(30, clock=lambda: now[0])
    assert progress.line() == "0 of 30 teams played, time left: known after two"
    for _ in range(5):  # they were played before
        progress.add()
    for _ in range(TeamProgress.LAST):
        now[0] += 60.0
        progress.add()
    assert progress.line() == "15 of 30 teams played, about 15 min left"
    for _ in range(15):
        progress.add()
    assert progress.line() == "30 of 30 teams played"
