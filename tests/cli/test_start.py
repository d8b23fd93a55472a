"""What starts a command."""

import os
from types import SimpleNamespace

import pytest

from troupe.cli import start


def test_a_file_that_cannot_be_read_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """``os.listdir`` in place of a command: its argument is the folder, not a configuration."""
    monkeypatch.setattr(start, "imported", lambda name: SimpleNamespace(run_command=os.listdir))
    with pytest.raises(SystemExit, match=r"^error: \[Errno 2\] No such file or directory: 'run/evaluations'$"):
        start.TaskFunction("eval")("run/evaluations")  # type: ignore[arg-type]
