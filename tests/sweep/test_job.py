"""What a job leaves of an error.  tests/cli/test_sweep.py has whole jobs."""

from pathlib import Path

import pytest

from troupe.sweep.job import FailureNote


def test_an_error_is_written_with_its_message_first(tmp_path: Path) -> None:
    file = tmp_path / "errors" / "hash.txt"
    with pytest.raises(ValueError, match="two"), FailureNote(file):
        raise ValueError("two\n  lines")
    message, _, trace = file.read_text().partition("\n")
    assert message == "ValueError: two lines" and "Traceback (most recent call last)" in trace
    with FailureNote(file):
        assert not file.exists()  # the error of the last attempt
    assert not file.exists()


def test_an_interrupt_is_no_error(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), FailureNote(tmp_path / "hash.txt"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
