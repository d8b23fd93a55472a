"""Loggers, each the real one, read back from what it wrote."""

import csv
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from troupe.runs.faults import Observers
from troupe.runs.loggers import (
    CsvLogger,
    Logger,
    LoggerError,
    Loggers,
    TensorBoardLogger,
    TrackioLogger,
    WandbLogger,
    scalars,
)
from troupe.runs.tables import LogTable, candidate_table, episode_table

from ..run_fixtures import make_episode, make_tree

ROWS = [{"iteration": 1, "train/p/loss": -0.5}, {"iteration": 2, "eval/success": 0.25, "eval/success_ci95": [0.1, 0.4]}]
CONFIG = {"seed": 3, "loop": {"iterations": 2}}


def write(folder: Path, **loggers: Logger) -> None:
    together = Loggers(loggers)
    together.config(folder, CONFIG)
    for row in ROWS:
        together.metrics(row, row["iteration"])
    together.close()


def table(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def test_only_numbers_under_their_own_keys() -> None:
    row = {"a/b": 1, "c": 0.5, "d": True, "status": "failed", "ci95": [0.1, 0.4], "empty": [], "none": None}
    assert scalars(row) == {"a/b": 1, "c": 0.5, "d": True, "ci95_low": 0.1, "ci95_high": 0.4}


def test_csv_keeps_every_row_and_every_start(tmp_path: Path) -> None:
    write(tmp_path, csv=CsvLogger())
    first, second = table(tmp_path / "csv" / "version_0" / "metrics.csv")
    assert (first["step"], first["train/p/loss"], first["eval/success"]) == ("1", "-0.5", "")
    assert (second["step"], second["train/p/loss"], second["eval/success_ci95_high"]) == ("2", "", "0.4")
    before = (tmp_path / "csv" / "version_0" / "metrics.csv").read_bytes()
    write(tmp_path, csv=CsvLogger())
    assert len(table(tmp_path / "csv" / "version_1" / "metrics.csv")) == 2
    assert (tmp_path / "csv" / "version_0" / "metrics.csv").read_bytes() == before


def test_csv_is_on_disk_after_every_row(tmp_path: Path) -> None:
    together = Loggers({"csv": CsvLogger()})
    together.config(tmp_path, CONFIG)
    together.metrics(ROWS[0], 1)
    assert len(table(tmp_path / "csv" / "version_0" / "metrics.csv")) == 1
    together.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of tensorboard's own imports
def test_tensorboard_reads_its_files_back(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    write(tmp_path, tensorboard=TensorBoardLogger())
    read = EventAccumulator(str(tmp_path / "tensorboard"))
    read.Reload()
    found = {tag: [(e.step, e.value) for e in read.Scalars(tag)] for tag in read.Tags()["scalars"]}
    assert found == {
        "iteration": [(1, 1.0), (2, 2.0)],
        "train/p/loss": [(1, -0.5)],
        "eval/success": [(2, 0.25)],
        "eval/success_ci95_low": [(2, pytest.approx(0.1))],
        "eval/success_ci95_high": [(2, pytest.approx(0.4))],
    }
    (text,) = read.Tensors("config/text_summary")
    assert json.loads(text.tensor_proto.string_val[0]) == CONFIG


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of tensorboard's own imports
def test_tensorboard_drops_what_a_continued_run_logs_again(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for loss in (1.0, 2.0):  # the first session logged three iterations; its checkpoint is that of the first
        together = Loggers({"tensorboard": TensorBoardLogger()})
        together.config(tmp_path, CONFIG)
        for step in (1, 2, 3) if loss == 1.0 else (2,):
            together.metrics({"train/p/loss": loss}, step)
        together.close()
        (tmp_path / "metrics.jsonl").write_text('{"iteration": 1}\n')
    read = EventAccumulator(str(tmp_path / "tensorboard"))
    read.Reload()
    assert [(e.step, e.value) for e in read.Scalars("train/p/loss")] == [(1, 1.0), (2, 2.0)]


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B without a key."""
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


def wandb_records(folder: Path) -> list[Any]:
    """What W&B wrote, in its own format: LevelDB's log, of blocks of 32 KiB, after a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    (file,) = folder.glob("run-*.wandb")
    data, place, parts, records = file.read_bytes(), 7, b"", []
    while place + 7 <= len(data):
        if (left := -place % 32768) < 7:
            place += left
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = Record()
            record.ParseFromString(parts)
            records.append(record)
            parts = b""
    return records


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
def test_a_continued_run_is_one_run_of_wandb_with_the_names_of_the_metrics(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb", reason="needs the extra [wandb]")
    for _ in range(2):
        write(tmp_path, wandb=WandbLogger("troupe", "sokoban-3", group="sokoban", tags=["sokoban", "at_grpo"]))
    wandb.teardown()  # its service writes what it holds when it ends
    sessions = [wandb_records(folder) for folder in (tmp_path / "wandb").glob("offline-run-*")]
    assert len(sessions) == 2
    for records in sessions:
        run = next(record.run for record in records if record.HasField("run"))
        assert run.run_id == (tmp_path / "wandb" / "run_id").read_text()
        assert (run.project, run.display_name, run.run_group) == ("troupe", "sokoban-3", "sokoban")
        assert list(run.tags) == ["sokoban", "at_grpo"]
        axes = {(record.metric.glob_name, record.metric.step_metric) for record in records if record.HasField("metric")}
        assert ("*", "iteration") in axes
        rows = [
            {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            for record in records
            if record.HasField("history")
        ]
        own = [{key: value for key, value in row.items() if not key.startswith("_")} for row in rows]
        assert own == [scalars(row) for row in ROWS]


def test_a_continued_run_is_one_run_of_trackio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trackio", reason="needs the extra [trackio]")
    from trackio.sqlite_storage import SQLiteStorage

    for module in ("utils", "sqlite_storage"):
        monkeypatch.setattr(f"trackio.{module}.TRACKIO_DIR", tmp_path / "store")
    for _ in range(2):
        write(tmp_path, trackio=TrackioLogger("troupe", "sokoban-3", group="sokoban"))
    (run,) = SQLiteStorage.get_runs("troupe")
    assert run == f"sokoban-3-{(tmp_path / 'trackio' / 'run_id').read_text()}"
    logged = [{key: row[key] for key in row if key != "timestamp"} for row in SQLiteStorage.get_logs("troupe", run)]
    assert logged == [scalars(row) | {"step": row["iteration"]} for row in ROWS] * 2
    assert SQLiteStorage.get_run_config("troupe", run)["seed"] == 3


TABLES = {
    3: candidate_table([make_tree("t|1", 3, said="<b>_R_")]),
    4: episode_table("test", [make_episode("a", True)] * 30),
}
TEAM_ROW = {"iteration": 1, "rollout/tool/reward": 0.5, "eval/tool/reward": 0.25, "train/both/loss": 2.0, "x": 1.0}


def write_tables(folder: Path, **loggers: Logger) -> None:
    together = Loggers(loggers)
    together.config(folder, CONFIG)
    together.metrics(TEAM_ROW, 1)
    for step, table in TABLES.items():
        together.table(lambda table=table: table, step)
    together.close()
    assert not together.observers.drain()


@pytest.mark.usefixtures("offline")
@pytest.mark.slow
def test_wandb_has_tables(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb", reason="needs the extra [wandb]")
    write_tables(tmp_path, wandb=WandbLogger("troupe", "n"))
    wandb.teardown()
    (session,) = (tmp_path / "wandb").glob("offline-run-*")
    rows = [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in wandb_records(session)
        if record.HasField("history")
    ]
    own = [{key: value for key, value in row.items() if not key.startswith("_")} for row in rows]
    assert own[0] == TEAM_ROW
    for row, (step, table) in zip(own[1:], TABLES.items(), strict=True):
        assert row["iteration"] == step
        shown = table.head(20)
        place = json.loads((session / "files" / row[f"{table.name}/path"]).read_text())
        assert place["columns"] == list(table.columns)
        assert place["data"] == [list(cells) for cells in shown.rows]
    assert len(TABLES[4].rows) == 60 and len(TABLES[4].head(20).rows) == 40


def test_no_tables_where_none_are_asked_for(tmp_path: Path) -> None:
    write_tables(tmp_path, csv=CsvLogger())  # takes none

    def make() -> LogTable:
        raise AssertionError("made for nobody")

    together = Loggers({"csv": CsvLogger()})
    together.config(tmp_path, CONFIG)
    together.table(make, 1)
    together.close()


def test_a_wrong_number_of_episodes_is_named() -> None:
    with pytest.raises(LoggerError, match=r"logger\.wandb\.episodes must be a whole number of at least 0, got -1"):
        WandbLogger("p", "n", episodes=-1)


@pytest.mark.parametrize(
    ("name", "build"), [("tensorboard", TensorBoardLogger), ("wandb", lambda: WandbLogger("p", "n"))]
)
def test_an_absent_extra_is_named(name: str, build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # how Python marks a module that cannot be imported
    with pytest.raises(LoggerError, match=rf"logger\.{name} needs the extra \[{name}\]"):
        build()


def test_an_unknown_mode_is_named() -> None:
    with pytest.raises(LoggerError, match=r"logger\.wandb\.mode=of is unknown. Known: auto, online, offline"):
        WandbLogger("p", "n", "of")


class Recorder:
    """A logger that remembers its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def config(self, folder: Path, config: Mapping[str, Any]) -> None:
        self.calls.append("config")

    def metrics(self, row: Mapping[str, float], step: int) -> None:
        self.calls.append("metrics")

    def close(self) -> None:
        self.calls.append("close")


class Unreachable(Recorder):
    def config(self, folder: Path, config: Mapping[str, Any]) -> None:
        raise LoggerError("logger.far cannot be opened")


def test_a_logger_that_cannot_be_opened_closes_the_others(tmp_path: Path) -> None:
    first, last = Recorder(), Recorder()
    with pytest.raises(LoggerError, match=r"logger\.far"):
        Loggers({"first": first, "far": Unreachable(), "last": last}).config(tmp_path, CONFIG)
    assert (first.calls, last.calls) == (["config", "close"], [])


class Failing(Recorder):
    """Its server is gone after the first row."""

    def metrics(self, row: Mapping[str, float], step: int) -> None:
        super().metrics(row, step)
        if len(self.calls) > 2:
            raise ConnectionError("the server is gone")

    def close(self) -> None:
        super().close()
        raise ConnectionError("the server is gone")


def test_a_logger_that_fails_is_named_once_counted_and_not_missed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    far, last = Failing(), Recorder()
    together = Loggers({"far": far, "last": last})
    together.config(tmp_path, CONFIG)
    counts = []
    for row in [*ROWS, *ROWS]:
        together.metrics(row, row["iteration"])
        counts.append(together.observers.drain()["logger"])
    together.close()
    assert counts == [0, 1, 1, 1] and together.observers.drain() == {"logger": 1}
    assert far.calls == last.calls == ["config", *["metrics"] * 4, "close"]  # it may come back
    (warning,) = caplog.messages
    assert warning.startswith("logger.far failed: ConnectionError: the server is gone; the run goes on")


def test_under_stop_a_logger_that_fails_ends_the_run(tmp_path: Path) -> None:
    together = Loggers({"far": Failing()}, Observers("stop"))
    together.config(tmp_path, CONFIG)
    together.metrics(ROWS[0], 1)
    with pytest.raises(ConnectionError):
        together.metrics(ROWS[1], 2)
