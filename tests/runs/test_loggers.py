"""Loggers, each the real one, read back from what it wrote."""

import csv
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from lightning.fabric.utilities.rank_zero import rank_zero_only

from troupe.runs.loggers import CsvLogger, Logger, LoggerError, Loggers, TensorBoardLogger, WandbLogger, scalars

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


def test_wandb_without_a_key_writes_a_run_to_upload_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    write(tmp_path, wandb=WandbLogger("troupe", "sokoban-3"))
    wandb.teardown()  # its service flushes what it holds when it ends
    (run,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    written = run.read_bytes()
    for part in (b"sokoban-3", b"train/p/loss", b"-0.5", b"eval/success_ci95_low"):
        assert part in written


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


def test_only_rank_0_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    write(tmp_path, recorder=recorder)
    assert recorder.calls == ["config", "metrics", "metrics", "close"]
    recorder.calls.clear()
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    write(tmp_path, recorder=recorder)
    assert recorder.calls == []
