"""What a job leaves of an error.  tests/cli/test_sweep.py has whole jobs."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from troupe.runs.fingerprint import training_hash
from troupe.sweep.job import JobRunner, noting_failure
from troupe.sweep.record import SweepRecord


def test_an_error_is_written_with_its_message_first(tmp_path: Path) -> None:
    file = tmp_path / "errors" / "hash.txt"
    with pytest.raises(ValueError, match="two"), noting_failure(file):
        raise ValueError("two\n  lines")
    message, _, trace = file.read_text().partition("\n")
    assert message == "ValueError: two lines" and "Traceback (most recent call last)" in trace
    with noting_failure(file):
        assert not file.exists()  # the error of the last attempt
    assert not file.exists()


def test_an_interrupt_is_no_error(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), noting_failure(tmp_path / "hash.txt"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_left_to_another_process_is_said_beside_the_file(
    disk: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the sweep would end without it, and without a reason."""
    record = SweepRecord(tmp_path / "sweeps" / "s", "s", "?", tmp_path, (), [], [])
    record.write()
    config = disk.config(0) | {"name": "game"}
    config["strategy"] = {"devices": 1}
    runner = JobRunner(record.folder, False, to_file=True, total=1, train=lambda loop: None)
    with record.lock(training_hash(config)):
        assert runner(OmegaConf.create(config)) == ""
    assert "game, seed 0: training" in (said := capsys.readouterr().out) and "; it is left to that" in said
